"""Calls from the shuffler to the analyzer."""

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
from common.wire.batches import chunk_to_wire, delivered_from_wire, manifest_to_wire, wants_reports
from common.wire.tasks import signed_task_from_wire
from protos.shuffledp.v1 import analyzer_pb2, analyzer_pb2_grpc

_PEER: Final = "the analyzer"


class Analyzer(Protocol):
    """The analyzer's methods that the shuffler calls."""

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Fetch a published task."""

    async def deliver(
        self, manifest: BatchManifest, chunks: AsyncIterator[bytes]
    ) -> BatchCommitment | None:
        """
        Deliver a batch; the analyzer has stored it durably when this returns.

        Returns:
            The analyzer's commitment to the batch; None from an earlier version, which signs none.
        """


class AnalyzerClient:
    """Client of the analyzer; a FreshChannel reopens when the shuffler's certificate is renewed."""

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
        with _certificate_refusals():
            response = await reply(self._stub.GetTask(request, timeout=SHORT_DEADLINE), _PEER)
        return signed_task_from_wire(response.task)

    async def deliver(
        self, manifest: BatchManifest, chunks: AsyncIterator[bytes]
    ) -> BatchCommitment | None:
        """
        Send the manifest, and the reports once the analyzer asks for them; see `Analyzer.deliver`.

        The analyzer answers at once if it refuses the manifest or already has the batch. Writing to
        an answered call would make gRPC report INTERNAL instead of the answer.
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
            with _certificate_refusals():
                answer = await reply(call, _PEER)
        except (asyncio.CancelledError, PeerError):
            # gRPC reports a failure to read the chunks here as a cancelled call: raise the cause.
            if failures:
                raise failures[0] from None
            raise
        return delivered_from_wire(answer)


async def _wants_reports(call: grpc.aio.StreamUnaryCall[Any, Any]) -> bool:
    """
    Return whether the analyzer asks for the reports; False if it answers without them.

    The analyzer first composes the population's spent budget, which takes seconds, or minutes
    after dozens of releases.

    Raises:
        PeerError: The analyzer does not respond in time.
    """
    try:
        async with asyncio.timeout(LONG_DEADLINE):
            if wants_reports(await call.initial_metadata()):
                return True
            await call.code()
    except TimeoutError as error:
        raise PeerError("the analyzer does not respond to the batch's manifest") from error
    return False


@contextmanager
def _certificate_refusals() -> Iterator[None]:
    """Convert a refusal of this shuffler's certificate to PeerError: a renewed one may pass."""
    try:
        yield
    except PeerRefusalError as error:
        if error.status == CallerError.status:
            raise PeerError("the analyzer refuses this shuffler's certificate") from error
        raise
