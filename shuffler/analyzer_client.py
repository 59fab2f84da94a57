"""The calls that a shuffler makes: all of them to the analyzer."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

import grpc

from common.crypto.signing import SignedTask
from common.errors import CallerError, PeerError, PeerRefusalError
from common.messages.batch import BatchManifest
from common.messages.inclusion_proof import BatchCommitment
from common.runtime.rpc import DELIVERY_DEADLINE, LONG_DEADLINE, SHORT_DEADLINE, FreshChannel, reply
from common.task_digest import TaskDigest
from common.wire.batches import chunk_to_wire, manifest_to_wire, wants_reports
from common.wire.evidence import delivered_from_wire
from common.wire.tasks import signed_task_from_wire
from protos.shuffledp.v1 import analyzer_pb2, analyzer_pb2_grpc

_WHOM: Final = "the analyzer"


class Analyzer(Protocol):
    """What a shuffler needs of an analyzer."""

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Fetch a published task."""

    async def deliver(
        self, manifest: BatchManifest, chunks: AsyncIterator[bytes]
    ) -> BatchCommitment | None:
        """
        Deliver a batch; when it returns, the analyzer has stored it durably.

        Returns:
            What the analyzer signed of what it received, if it signs.
        """


class AnalyzerClient:
    """An analyzer at the other end of a channel, which may be one that is opened anew."""

    def __init__(self, channel: FreshChannel | grpc.aio.Channel) -> None:
        self._channel = channel

    @property
    def _stub(self) -> "analyzer_pb2_grpc.AnalyzerAsyncStub":
        fresh = (
            self._channel.current() if isinstance(self._channel, FreshChannel) else self._channel
        )
        return analyzer_pb2_grpc.AnalyzerStub(fresh)

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Fetch a published task."""
        request = analyzer_pb2.GetTaskRequest(task_digest=digest)
        with _own_certificate_apart():
            response = await reply(self._stub.GetTask(request, timeout=SHORT_DEADLINE), _WHOM)
        return signed_task_from_wire(response.task)

    async def deliver(
        self, manifest: BatchManifest, chunks: AsyncIterator[bytes]
    ) -> BatchCommitment | None:
        """
        Deliver a batch; when it returns, the analyzer has stored it durably.

        The manifest goes first. Reports follow once the analyzer wants them: if it refuses the
        manifest, or has the batch, it answers at once, and what is written to a call that has been
        answered makes gRPC show INTERNAL in place of the answer.

        Returns:
            What the analyzer signed of what it received, if it signs.
        """
        failures: list[Exception] = []

        async def messages() -> AsyncIterator[analyzer_pb2.DeliverBatchRequest]:
            yield manifest_to_wire(manifest)
            try:
                if not await _wants_reports(call):
                    return
                async for chunk in chunks:
                    yield chunk_to_wire(chunk)
            except Exception as error:
                failures.append(error)
                raise

        try:
            call = self._stub.DeliverBatch(messages(), timeout=DELIVERY_DEADLINE)
            with _own_certificate_apart():
                answer = await reply(call, _WHOM)
        except (asyncio.CancelledError, PeerError):
            # gRPC turns a failure to read our own chunks into a cancelled call: say what it was.
            if failures:
                raise failures[0] from None
            raise
        return delivered_from_wire(answer)


async def _wants_reports(call: grpc.aio.StreamUnaryCall[Any, Any]) -> bool:
    """
    Wait until the analyzer asks for the reports, or has answered without them.

    It composes what the population has spent first: seconds, and minutes after dozens of releases.

    Raises:
        PeerError: It does neither.
    """
    try:
        async with asyncio.timeout(LONG_DEADLINE):
            if wants_reports(await call.initial_metadata()):
                return True
            await call.code()
    except TimeoutError as error:
        raise PeerError("the analyzer says nothing to the batch's manifest") from error
    return False


@contextmanager
def _own_certificate_apart() -> Iterator[None]:
    """Tell a refusal of the certificate, which can be mended, from one of what was sent."""
    try:
        yield
    except PeerRefusalError as error:
        if error.status == CallerError.status:
            raise PeerError("the analyzer does not take this shuffler's certificate") from error
        raise
