"""A coordinator that only offers jobs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shuffledp.common.runtime.access import connections_of
from shuffledp.common.runtime.admission import Admission
from shuffledp.common.runtime.admission_interceptor import AdmissionInterceptor
from shuffledp.common.runtime.parts.jobs import OfferedJobs
from shuffledp.common.runtime.rpc import bind, make_server
from shuffledp.common.runtime.tls import Tls, VerifiedCallers
from shuffledp.protos.shuffledp.v1 import jobs_pb2_grpc


@asynccontextmanager
async def coordinator(tls: Tls, jobs: OfferedJobs) -> AsyncIterator[str]:
    """Serve jobs; yield the address."""
    admission = AdmissionInterceptor(Admission(), VerifiedCallers(tls))
    server = make_server(admission, connections_of("shuffledp.v1.Jobs"))
    jobs_pb2_grpc.add_JobsServicer_to_server(jobs, server)
    address = bind(server, "127.0.0.1:0", tls, ask_for_certificates=True)
    await server.start()
    try:
        yield address
    finally:
        await server.stop(0)
