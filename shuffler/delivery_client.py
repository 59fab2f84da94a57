"""Calls from a shuffler to the party that it delivers to: the analyzer, or a relay."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import grpc

from shuffledp.common.crypto.signing import PublicIdentity, SignedTask
from shuffledp.common.errors import CallerError, PeerError, PeerRefusalError
from shuffledp.common.messages.batch import BatchManifest, BatchPart
from shuffledp.common.messages.inclusion_proof import BatchCommitment
from shuffledp.common.runtime import rpc
from shuffledp.common.runtime.rpc import SHORT_DEADLINE, FreshChannel, reply
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.transparency.checkpoint import SignedCheckpoint
from shuffledp.common.wire import batches
from shuffledp.common.wire.tasks import signed_task_from_wire
from shuffledp.common.wire.transparency import log_from_wire
from shuffledp.protos.shuffledp.v1 import analyzer_pb2, analyzer_pb2_grpc, log_pb2, relay_pb2_grpc

T = TypeVar("T")


class NextHop(Protocol):
    """The methods of the party that a batch is delivered to."""

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Fetch a task, which the party takes part in."""

    async def begin_delivery(self, manifest: BatchManifest, n_parts: int) -> tuple[set[int], bool]:
        """Announce a batch; return the arrived parts, and whether it is already staged in full."""

    async def deliver_part(self, part: BatchPart, chunks: Iterable[memoryview]) -> None:
        """Deliver a part; the party has stored it durably when this returns."""

    async def finish_delivery(self, digest: TaskDigest) -> BatchCommitment:
        """Return the party's commitment to a batch, all of whose parts have arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivingParty:
    """The party that a batch is delivered to."""

    name: str
    client: NextHop
    identity: PublicIdentity
    """Signs the commitment."""


class DeliveryClient(NextHop):
    """Client of the next hop, a relay; a FreshChannel reopens on a new certificate of its own."""

    party: ClassVar[str] = "relay"
    """Name of the next hop in messages."""
    stub: ClassVar[type[Any]] = relay_pb2_grpc.RelayStub

    def __init__(self, channel: FreshChannel | grpc.aio.Channel) -> None:
        self._channel = channel

    @property
    def _stub(self) -> Any:  # noqa: ANN401  # of either class
        fresh = (
            self._channel.current() if isinstance(self._channel, FreshChannel) else self._channel
        )
        return self.stub(fresh)

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        request = analyzer_pb2.GetTaskRequest(task_digest=digest)
        response = await self._answer(self._stub.GetTask(request, timeout=SHORT_DEADLINE))
        return signed_task_from_wire(response.task)

    async def begin_delivery(self, manifest: BatchManifest, n_parts: int) -> tuple[set[int], bool]:
        """
        Announce a batch; see `NextHop.begin_delivery`.

        The analyzer composes the population's spent budget, which takes seconds, or minutes after
        dozens of releases.
        """
        request = batches.delivery_to_wire(manifest, n_parts)
        call = self._stub.BeginDelivery(request, timeout=rpc.LONG_DEADLINE)
        return batches.arrived_from_wire(await self._answer(call))

    async def deliver_part(self, part: BatchPart, chunks: Iterable[memoryview]) -> None:
        """
        Send a part's header, and its reports once the next hop asks for them.

        It answers at once if it refuses the part or already has it. Writing to an answered call
        would make gRPC report INTERNAL instead of the answer.
        """
        silent: list[PeerError] = []

        async def messages() -> AsyncIterator[analyzer_pb2.DeliverPartRequest]:
            yield batches.part_to_wire(part)
            try:
                wanted = await self._wants_reports(call)
            except PeerError as error:
                silent.append(error)
                raise
            if wanted:
                for chunk in chunks:
                    yield analyzer_pb2.DeliverPartRequest(sealed_reports=bytes(chunk))

        call = self._stub.DeliverPart(messages(), timeout=rpc.DELIVERY_DEADLINE)
        try:
            await self._answer(call)
        except asyncio.CancelledError:
            if silent:  # gRPC reports it as a cancelled call
                raise silent[0] from None
            raise

    async def finish_delivery(self, digest: TaskDigest) -> BatchCommitment:
        """Fetch the commitment, once the next hop has hashed the batch."""
        request = analyzer_pb2.FinishDeliveryRequest(task_digest=digest)
        call = self._stub.FinishDelivery(request, timeout=rpc.DELIVERY_DEADLINE)
        return batches.commitment_from_wire((await self._answer(call)).commitment)

    async def _wants_reports(self, call: grpc.aio.StreamUnaryCall[Any, Any]) -> bool:
        """Return whether the next hop asks for the reports; raise PeerError if it is late."""
        try:
            async with asyncio.timeout(SHORT_DEADLINE):
                if batches.wants_reports(await call.initial_metadata()):
                    return True
                await call.code()
        except TimeoutError as error:
            raise PeerError(f"the {self.party} does not respond to a part's header") from error
        return False

    async def _answer(self, call: Awaitable[T]) -> T:
        """Wait for a reply; a refused certificate is a PeerError, as a renewed one may pass."""
        try:
            return await reply(call, f"the {self.party}")
        except PeerRefusalError as error:
            if error.status == CallerError.status:
                raise PeerError(f"the {self.party} refuses this shuffler's certificate") from error
            raise


class AnalyzerClient(DeliveryClient):
    """Client of the analyzer."""

    party = "analyzer"
    stub = analyzer_pb2_grpc.AnalyzerStub

    async def get_log(self, after: int) -> tuple[Sequence[bytes], Sequence[SignedCheckpoint]]:
        """Fetch a page of the log's leaves, and its checkpoints, unverified."""
        request = log_pb2.GetLogRequest(after=after)
        answer = await self._answer(self._stub.GetLog(request, timeout=SHORT_DEADLINE))
        return log_from_wire(answer)
