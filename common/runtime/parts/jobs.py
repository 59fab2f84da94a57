"""
Jobs of an engine's parts: offered by the coordinator, fetched by the workers.

A job with its keys stays in memory, and is offered only while its parts run. A worker holds it
while it runs a part.
"""

import asyncio
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Self, TypeVar

from shuffledp.common import errors
from shuffledp.common.crypto.secret import forbid_core_dumps
from shuffledp.common.runtime.parts.executor import Job
from shuffledp.common.runtime.rpc import SHORT_DEADLINE, FreshChannel, reply
from shuffledp.common.runtime.settings import KeyHolderSettings
from shuffledp.common.runtime.tls import Tls, TlsFiles
from shuffledp.common.wire.fields import MAX_RESULT_BYTES
from shuffledp.protos.shuffledp.v1 import jobs_pb2, jobs_pb2_grpc

J = TypeVar("J", bound=Job)


class OfferedJobs(jobs_pb2_grpc.JobsServicer):
    """Serves workers the jobs whose parts run now, by kind (the class) and folder of blocks."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, str], Job] = {}

    @contextmanager
    def offer(self, job: Job) -> Generator[str]:
        """Offer a job, in place of an earlier one of its kind and folder; yield its kind."""
        kind = type(job).__name__
        self._jobs[kind, job.folder] = job
        try:
            yield kind
        finally:
            if self._jobs.get((kind, job.folder)) is job:
                del self._jobs[kind, job.folder]

    async def GetJob(  # noqa: N802  # the name in the service
        self, request: jobs_pb2.GetJobRequest, _context: object
    ) -> jobs_pb2.GetJobResponse:
        """Return an offered job with its secrets; raise UnknownJobError for any other."""
        job = self._jobs.get((request.kind, request.folder))
        if job is None:
            raise errors.UnknownJobError("no part of this job runs now")
        return job_to_wire(job)


class PartRunner:
    """Runs parts in a worker of an engine."""

    def __init__(
        self, coordinator: str, tls: Tls, jobs: Iterable[type[Job]], places: Mapping[str, Any]
    ) -> None:
        """
        Run parts of these classes of jobs, fetched from the coordinator at host:port.

        `places` are the fields that do not travel: the stores of the job's data.
        """
        limit = MAX_RESULT_BYTES  # a job holds a task and all sentinels' leaves
        self._channel = FreshChannel(coordinator, "coordinator", tls, receive_limit=limit)
        self._jobs = {job.__name__: job for job in jobs}
        self._places = places

    @classmethod
    def of(
        cls, settings: KeyHolderSettings, jobs: Iterable[type[Job]], places: Mapping[str, Any]
    ) -> Self:
        """
        Make the runner of a process with the role `worker`, which must not dump core.

        Raises SettingsError for another role, or an unusable certificate.
        """
        coordinator, directory = settings.coordinator, settings.internal_tls_directory
        if settings.role != "worker" or coordinator is None or directory is None:
            raise errors.SettingsError(f"the role is {settings.role}; parts run in workers")
        forbid_core_dumps()
        files = TlsFiles.within(directory, settings.role)
        return cls(coordinator, Tls(files=files, identity=files.read()), jobs, places)

    async def run(self, kind: str, folder: str, stage: str, part: int) -> Any:  # noqa: ANN401  # any stage's
        """
        Fetch the job, and run one part of a stage in a thread.

        Raises PeerError if the coordinator offers no such job now, and the stage's errors.
        """
        stub = jobs_pb2_grpc.JobsStub(self._channel.current())
        request = jobs_pb2.GetJobRequest(kind=kind, folder=folder)
        try:
            message = await reply(stub.GetJob(request, timeout=SHORT_DEADLINE), "the coordinator")
        except errors.PeerRefusalError as error:  # which cannot be pickled
            raise errors.PeerError(f"the coordinator refuses a worker: {error}") from None
        job = job_from_wire(self._jobs[kind], message, self._places)
        return await asyncio.to_thread(getattr(job, stage), part)

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()


def job_to_wire(job: Job) -> jobs_pb2.GetJobResponse:
    """Convert a job's numbers, texts and bytes, secrets included; leave out all other fields."""
    found = {field.name: getattr(job, field.name) for field in fields(job)}
    return jobs_pb2.GetJobResponse(
        numbers={name: value for name, value in found.items() if isinstance(value, int)},
        texts={name: value for name, value in found.items() if isinstance(value, str)},
        contents={name: value for name, value in found.items() if isinstance(value, bytes)},
    )


def job_from_wire(kind: type[J], message: jobs_pb2.GetJobResponse, places: Mapping[str, Any]) -> J:
    """
    Convert a job of this class, whose other fields are in `places`. Run by workers.

    Raises WireError if a field is missing or of another type. Ranges are not checked: the message
    comes from this party's own coordinator.
    """
    by_type: dict[object, Mapping[str, Any]] = {
        int: message.numbers,
        str: message.texts,
        bytes: message.contents,
    }
    values = {}
    for field in fields(kind):
        own_type = getattr(field.type, "__supertype__", field.type)  # that of a NewType
        found = by_type.get(own_type, places)
        if field.name not in found:
            raise errors.WireError(f"the job has no {field.name}")
        values[field.name] = found[field.name]
    return kind(**values)
