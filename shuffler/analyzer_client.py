"""Calls from the shuffler to the analyzer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import grpc

from common.crypto.signing import SignedTask
from common.errors import CallerError, PeerError, PeerRefusalError
from common.messages.batch import BatchManifest, BatchPart
from common.messages.inclusion_proof import BatchCommitment
from common.runtime.rpc import DELIVERY_DEADLINE, LONG_DEADLINE, SHORT_DEADLINE, FreshChannel, reply
from common.task_digest import TaskDigest
from common.transparency.checkpoint import SignedCheckpoint
from common.wire.batches import (
    arrived_from_wire,
    commitment_from_wire,
    delivery_to_wire,
    part_to_wire,
    wants_reports,
)
from common.wire.tasks import signed_task_from_wire
from common.wire.transparency import log_from_wire
from protos.shuffledp.v1 import analyzer_pb2, analyzer_pb2_grpc, log_pb2

T = TypeVar("T")


class Analyzer(Protocol):
    """The analyzer's methods that the shuffler calls."""

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Fetch a published task."""

    async def begin_delivery(self, manifest: BatchManifest, n_parts: int) -> tuple[set[int], bool]:
        """Announce a batch; return the arrived parts, and whether it is already staged in full."""

    async def deliver_part(self, part: BatchPart, chunks: Iterable[memoryview]) -> None:
        """Deliver a part; the analyzer has stored it durably when this returns."""

    async def finish_delivery(self, digest: TaskDigest) -> BatchCommitment:
        """Return the analyzer's commitment to a batch, all of whose parts have arrived."""


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
        response = await _answer(self._stub.GetTask(request, timeout=SHORT_DEADLINE))
        return signed_task_from_wire(response.task)

    async def get_log(self, after: int) -> tuple[Sequence[bytes], Sequence[SignedCheckpoint]]:
        """Fetch a page of the log's leaves, and its checkpoints, unverified."""
        request = log_pb2.GetLogRequest(after=after)
        return log_from_wire(await _answer(self._stub.GetLog(request, timeout=SHORT_DEADLINE)))

    async def begin_delivery(self, manifest: BatchManifest, n_parts: int) -> tuple[set[int], bool]:
        """
        Announce a batch; see `Analyzer.begin_delivery`.

        The analyzer composes the population's spent budget, which takes seconds, or minutes after
        dozens of releases.
        """
        request = delivery_to_wire(manifest, n_parts)
        call = self._stub.BeginDelivery(request, timeout=LONG_DEADLINE)
        return arrived_from_wire(await _answer(call))

    async def deliver_part(self, part: BatchPart, chunks: Iterable[memoryview]) -> None:
        """
        Send a part's header, and its reports once the analyzer asks for them.

        The analyzer answers at once if it refuses the part or already has it. Writing to an
        answered call would make gRPC report INTERNAL instead of the answer.
        """
        silent: list[PeerError] = []

        async def messages() -> AsyncIterator[analyzer_pb2.DeliverPartRequest]:
            yield part_to_wire(part)
            try:
                wanted = await _wants_reports(call)
            except PeerError as error:
                silent.append(error)
                raise
            if wanted:
                for chunk in chunks:
                    yield analyzer_pb2.DeliverPartRequest(sealed_reports=bytes(chunk))

        call = self._stub.DeliverPart(messages(), timeout=DELIVERY_DEADLINE)
        try:
            await _answer(call)
        except asyncio.CancelledError:
            if silent:  # gRPC reports it as a cancelled call
                raise silent[0] from None
            raise

    async def finish_delivery(self, digest: TaskDigest) -> BatchCommitment:
        """Fetch the commitment, once the analyzer has hashed the batch."""
        request = analyzer_pb2.FinishDeliveryRequest(task_digest=digest)
        call = self._stub.FinishDelivery(request, timeout=DELIVERY_DEADLINE)
        return commitment_from_wire((await _answer(call)).commitment)


async def _wants_reports(call: grpc.aio.StreamUnaryCall[Any, Any]) -> bool:
    """Return whether the analyzer asks for the reports; raise PeerError if it is late."""
    try:
        async with asyncio.timeout(SHORT_DEADLINE):
            if wants_reports(await call.initial_metadata()):
                return True
            await call.code()
    except TimeoutError as error:
        raise PeerError("the analyzer does not respond to a part's header") from error
    return False


async def _answer(call: Awaitable[T]) -> T:
    """Wait for a reply; a refused certificate is a PeerError, as a renewed one may pass."""
    try:
        return await reply(call, "the analyzer")
    except PeerRefusalError as error:
        if error.status == CallerError.status:
            raise PeerError("the analyzer refuses this shuffler's certificate") from error
        raise
