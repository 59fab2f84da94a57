"""
A server that takes submissions and stores nothing: what the generator alone can do.

It speaks what simulated users speak, over TLS with a certificate of its own, in a process of its
own, and says `stored` to everything that has the task's length.
"""

import asyncio
import multiprocessing
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, Final

import grpc

from analyzer.registry import complete
from common.crypto.hpke import HpkePrivateKey
from common.crypto.randomness import secure_generator
from common.crypto.signing import SIGNATURE_BYTES, SignedTask, SigningIdentity
from common.errors import SettingsError
from common.messages.submission import Outcome
from common.runtime.clock import SystemClock
from common.runtime.rpc import bind
from common.runtime.tls import Tls, development_files
from common.task.draft import TaskDraft
from common.task.task import NONCE_BYTES, Task
from common.wire.fields import MAX_MESSAGE_BYTES
from common.wire.submissions import outcomes_to_wire
from common.wire.tasks import signed_task_to_wire
from deploy.load.connection import SERVICE, Destination
from protos.shuffledp.v1 import shuffler_pb2

_RECEIPT: Final = bytes(SIGNATURE_BYTES)
_START_SECONDS: Final = 30.0


def publish_for_nobody(draft: TaskDraft) -> SignedTask:
    """Make a task of a draft, with keys that nobody keeps."""
    task = complete(
        replace(draft, shuffler_key=HpkePrivateKey.generate(draft.suite).public_key().raw),
        analyzer_key=HpkePrivateKey.generate(draft.suite).public_key().raw,
        nonce=secure_generator().bytes(NONCE_BYTES),
    )
    return SigningIdentity.generate().sign(task.to_bytes())


@contextmanager
def sink(signed: SignedTask) -> Iterator[tuple[Destination, int]]:
    """Serve for as long as the block runs; give where, and the process's number."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="shuffledp-sink-") as directory:
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=_run, args=(theirs, signed, Path(directory)), daemon=True)
        process.start()
        theirs.close()
        try:
            if not ours.poll(_START_SECONDS):
                raise SettingsError(f"the sink did not start within {_START_SECONDS:g} seconds")
            address: str = ours.recv()
            authority = (Path(directory) / "authority.pem").read_bytes()
            yield Destination(address=address, authority=authority), process.pid or 0
        except EOFError as error:
            raise SettingsError("the sink did not start") from error
        finally:
            ours.close()
            process.terminate()
            process.join()


def _run(pipe: Pipe, signed: SignedTask, directory: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_serve(pipe, signed, directory))


async def _serve(pipe: Pipe, signed: SignedTask, directory: Path) -> None:
    clock = SystemClock()
    tls = Tls.open(development_files(directory, "shuffler", clock), "shuffler", clock)
    server = grpc.aio.server(
        options=[("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ("grpc.so_reuseport", 0)]
    )
    server.add_generic_rpc_handlers((_Sink(signed),))
    address = bind(server, "127.0.0.1:0", tls)
    await server.start()
    pipe.send(address)
    with suppress(EOFError):
        await asyncio.to_thread(pipe.recv)  # until the other end is closed
    await server.stop(None)


class _Sink(grpc.GenericRpcHandler):
    def __init__(self, signed: SignedTask) -> None:
        self._size = Task.from_bytes(signed.task_bytes).envelope_bytes
        self._task = shuffler_pb2.FetchTaskResponse(task=signed_task_to_wire(signed))
        self._methods: dict[str, Any] = {
            SERVICE + "FetchTask": grpc.unary_unary_rpc_method_handler(
                self._fetch, response_serializer=shuffler_pb2.FetchTaskResponse.SerializeToString
            ),
            SERVICE + "Submit": grpc.unary_unary_rpc_method_handler(
                self._submit,
                request_deserializer=shuffler_pb2.SubmitRequest.FromString,
                response_serializer=shuffler_pb2.SubmitResponse.SerializeToString,
            ),
            SERVICE + "SubmitBulk": grpc.unary_unary_rpc_method_handler(
                self._submit_bulk,
                request_deserializer=shuffler_pb2.SubmitBulkRequest.FromString,
                response_serializer=shuffler_pb2.SubmitBulkResponse.SerializeToString,
            ),
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:  # noqa: ANN401
        """Find the method."""
        return self._methods.get(str(handler_call_details.method))

    async def _fetch(self, _request: bytes, _context: object) -> shuffler_pb2.FetchTaskResponse:
        return self._task

    async def _submit(
        self,
        request: shuffler_pb2.SubmitRequest,
        context: Any,  # noqa: ANN401  # gRPC's own types vary
    ) -> shuffler_pb2.SubmitResponse:
        if len(request.envelope) != self._size:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not of the task's length")
        return shuffler_pb2.SubmitResponse(receipt=_RECEIPT)

    async def _submit_bulk(
        self, request: shuffler_pb2.SubmitBulkRequest, _context: object
    ) -> shuffler_pb2.SubmitBulkResponse:
        size = self._size
        outcomes = [
            Outcome.STORED if len(envelope) == size else Outcome.MALFORMED
            for envelope in request.envelopes
        ]
        return outcomes_to_wire(outcomes, _RECEIPT)
