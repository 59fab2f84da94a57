"""The batches of a front-end, which gets them and their keys from the coordinator."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from shuffledp.common import errors
from shuffledp.common.crypto.batch_key import KEY_BYTES, BatchKey
from shuffledp.common.crypto.hpke import PRIVATE_KEY_BYTES, HpkePrivateKey
from shuffledp.common.crypto.signing import IDENTITY_BYTES, SigningIdentity
from shuffledp.common.limits import parse_fixed
from shuffledp.common.messages.batch import BATCH_ID_BYTES, BatchId
from shuffledp.common.runtime.clock import repeat
from shuffledp.common.runtime.rpc import SHORT_DEADLINE, FreshChannel, reply
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.transparency.checkpoint import SignedCheckpoint
from shuffledp.common.wire.fields import Codec
from shuffledp.common.wire.tasks import signed_task_from_wire, signed_task_to_wire
from shuffledp.common.wire.transparency import log_from_wire
from shuffledp.protos.shuffledp.v1 import coordinator_pb2, coordinator_pb2_grpc, log_pb2
from shuffledp.shuffler.active_batches import ActiveBatch, Batches, FinishedBatch
from shuffledp.shuffler.batch_states import UNPERMUTED_STATES, ClosingRule
from shuffledp.shuffler.storage.submission_store import SubmissionStore

_PEER: Final = "the coordinator"
_CHECK_SECONDS: Final = 60.0
"""Seconds between checks of the held batches' states."""
_MAX_LOOKUPS: Final = 32
"""Maximum number of concurrent requests to the coordinator of each kind: to begin, and to find."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBatch:
    """A batch with the keys to collect it."""

    batch: ActiveBatch
    envelope_key: HpkePrivateKey


class Coordinator(Protocol):
    """The coordinator's methods that front-ends call."""

    async def get_batch(self, digest: TaskDigest, *, begin: bool) -> HeldBatch | FinishedBatch:
        """Fetch a task's batch and its keys; with `begin`, begin it on first use."""


class CoordinatorClient:
    """Client of the coordinator."""

    def __init__(self, channel: FreshChannel) -> None:
        self._channel = channel

    @property
    def _stub(self) -> "coordinator_pb2_grpc.ShufflerCoordinatorAsyncStub":
        return coordinator_pb2_grpc.ShufflerCoordinatorStub(self._channel.current())

    async def get_identity(self) -> SigningIdentity:
        """Fetch the identity that receipts are signed with. Raises the errors of `reply`."""
        request = coordinator_pb2.GetIdentityRequest()
        answer = await reply(self._stub.GetIdentity(request, timeout=SHORT_DEADLINE), _PEER)
        return SigningIdentity(parse_fixed("signing_key", answer.signing_key, IDENTITY_BYTES))

    async def get_log(self, after: int) -> tuple[Sequence[bytes], Sequence[SignedCheckpoint]]:
        """Fetch a page of the log's leaves, and its checkpoints, unverified."""
        request = log_pb2.GetLogRequest(after=after)
        return log_from_wire(
            await reply(self._stub.RelayLog(request, timeout=SHORT_DEADLINE), _PEER)
        )

    async def get_batch(self, digest: TaskDigest, *, begin: bool) -> HeldBatch | FinishedBatch:
        """Fetch a task's batch and its keys. Raises the errors of `Batches.find_or_begin`."""
        request = coordinator_pb2.GetBatchRequest(task_digest=digest, begin=begin)
        try:
            answer = await reply(self._stub.GetBatch(request, timeout=SHORT_DEADLINE), _PEER)
        except errors.PeerRefusalError as error:
            if error.status == errors.UnknownTaskError.status:
                raise errors.UnknownTaskError(str(error)) from error
            if error.status == errors.CallerError.status:  # not the device's fault
                raise errors.PeerError(
                    "the coordinator refuses this front-end's certificate"
                ) from error
            raise
        return batch_from_wire(digest, answer)


_CLOSING_RULE: Final = Codec(ClosingRule, coordinator_pb2.GetBatchResponse)


def batch_to_wire(
    batch: ActiveBatch | FinishedBatch, envelope_key: HpkePrivateKey | None
) -> coordinator_pb2.GetBatchResponse:
    """Encode a batch, with its keys unless `envelope_key` is None. Run by the coordinator."""
    answer = _CLOSING_RULE.to_wire(batch.closing_rule)
    answer.batch_id = batch.batch_id
    if isinstance(batch, ActiveBatch) and envelope_key is not None:
        collecting = coordinator_pb2.CollectingBatch(
            task=signed_task_to_wire(batch.signed),
            batch_key=batch.key.private_bytes(),
            envelope_key=envelope_key.private_bytes(),
        )
        answer.collecting.CopyFrom(collecting)
    return answer


def batch_from_wire(
    digest: TaskDigest, message: coordinator_pb2.GetBatchResponse
) -> HeldBatch | FinishedBatch:
    """Parse the batch of the task with this digest, with its keys unless it is permuted."""
    batch_id = BatchId(parse_fixed("batch_id", message.batch_id, BATCH_ID_BYTES))
    rule = _CLOSING_RULE.from_wire(message)
    if not message.HasField("collecting"):
        return FinishedBatch(batch_id=batch_id, closing_rule=rule)
    signed = signed_task_from_wire(message.collecting.task)
    task = Task.from_bytes(signed.task_bytes)
    key = BatchKey(parse_fixed("batch_key", message.collecting.batch_key, KEY_BYTES))
    batch = ActiveBatch(
        digest=digest, signed=signed, task=task, batch_id=batch_id, key=key, closing_rule=rule
    )
    raw = parse_fixed("envelope_key", message.collecting.envelope_key, PRIVATE_KEY_BYTES)
    return HeldBatch(batch=batch, envelope_key=HpkePrivateKey(task.suite, raw))


class FrontEndBatches(Batches):
    """
    Batches whose keys are held in memory only; see Batches.

    A batch's keys are dropped once its submissions are permuted. Until then a front-end goes on
    without the coordinator.
    """

    def __init__(
        self, coordinator: Coordinator, store: SubmissionStore, forget: Callable[[], None]
    ) -> None:
        """`forget` lets worker processes forget keys."""
        super().__init__(_MAX_LOOKUPS)
        self._coordinator = coordinator
        self._store = store
        self._forget = forget
        self._held: dict[TaskDigest, HeldBatch] = {}

    def envelope_key(self, batch: ActiveBatch) -> HpkePrivateKey:
        held = self._held.get(batch.digest)
        if held is None:
            raise errors.BatchStateError("the task's batch no longer collects")
        return held.envelope_key

    def _known(self, digest: TaskDigest) -> ActiveBatch | FinishedBatch | None:
        held = self._held.get(digest)
        return held.batch if held else self._finished.get(digest)

    async def _look_up(self, digest: TaskDigest, *, begin: bool) -> ActiveBatch | FinishedBatch:
        found = await self._coordinator.get_batch(digest, begin=begin)
        if isinstance(found, HeldBatch):
            return self._held.setdefault(digest, found).batch
        self._finished[digest] = found
        return found

    async def check(self) -> None:
        """
        Drop the keys of batches that are permuted or expired; raise StorageError if unknown.

        An idle front-end thereby also notices a lost store.
        """
        batches = [held.batch for held in self._held.values()]  # one may begin meanwhile
        states = await self._store.states()
        finished = [
            batch
            for batch in batches
            if (state := states.get(batch.batch_id)) is not None and state not in UNPERMUTED_STATES
        ]
        for batch in finished:
            self._finished[batch.digest] = FinishedBatch(
                batch_id=batch.batch_id, closing_rule=batch.closing_rule
            )
            del self._held[batch.digest]
        if finished:
            self._forget()

    async def run(self, pause: float = _CHECK_SECONDS) -> None:
        """Check every `pause` seconds, for as long as the service runs."""
        await repeat(self.check, pause, "batches not checked", wait=True)
