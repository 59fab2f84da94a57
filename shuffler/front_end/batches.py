"""The batches of a front-end, which gets them and their keys from the coordinator."""

from collections.abc import Callable
from functools import partial
from typing import Final

from common.crypto.hpke import HpkePrivateKey
from common.errors import BatchStateError
from common.runtime.repeat import repeat
from common.runtime.shared_calls import SharedCalls
from common.task_digest import TaskDigest
from shuffler.active_batches import ActiveBatch, FinishedBatch
from shuffler.front_end.coordinator_client import Coordinator, HeldBatch
from shuffler.storage.submission_store import OPEN_STATES, SubmissionStore

_CHECK_SECONDS: Final = 60.0
"""Seconds between checks of the held batches' states."""
_MAX_LOOKUPS: Final = 32
"""Maximum number of tasks that are requested from the coordinator at once."""


class FrontEndBatches:
    """
    Batches whose keys are held in memory only; see Batches.

    A batch's keys are dropped once its submissions are permuted. Until then a front-end goes on
    without the coordinator.
    """

    def __init__(
        self, coordinator: Coordinator, store: SubmissionStore, forget: Callable[[], None]
    ) -> None:
        """`forget` lets worker processes forget keys."""
        self._coordinator = coordinator
        self._store = store
        self._forget = forget
        self._held: dict[TaskDigest, HeldBatch] = {}
        self._finished: dict[TaskDigest, FinishedBatch] = {}
        self._asking = SharedCalls[tuple[TaskDigest, bool], ActiveBatch | FinishedBatch](
            _MAX_LOOKUPS, "task lookups"
        )

    async def find_or_begin(self, digest: TaskDigest) -> ActiveBatch | FinishedBatch:
        """Return the batch of a task, begun on first use; see `Batches.find_or_begin`."""
        return self._known(digest) or await self._ask(digest, begin=True)

    async def find(self, digest: TaskDigest) -> ActiveBatch | FinishedBatch:
        """Return the batch of a task that was requested before; see `Batches.find`."""
        return self._known(digest) or await self._ask(digest, begin=False)

    def envelope_key(self, batch: ActiveBatch) -> HpkePrivateKey:
        """Return the key that a batch's envelopes are sealed to; see `Batches.envelope_key`."""
        held = self._held.get(batch.digest)
        if held is None:
            raise BatchStateError("the task's batch no longer collects")
        return held.envelope_key

    def _known(self, digest: TaskDigest) -> ActiveBatch | FinishedBatch | None:
        held = self._held.get(digest)
        return held.batch if held else self._finished.get(digest)

    async def _ask(self, digest: TaskDigest, *, begin: bool) -> ActiveBatch | FinishedBatch:
        """Ask the coordinator, once for all concurrent callers who want the same."""
        fetch = partial(self._fetch, digest, begin=begin)
        return await self._asking.share((digest, begin), fetch)

    async def _fetch(self, digest: TaskDigest, *, begin: bool) -> ActiveBatch | FinishedBatch:
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
            if (state := states.get(batch.batch_id)) is not None and state not in OPEN_STATES
        ]
        for batch in finished:
            self._finished[batch.digest] = FinishedBatch(
                digest=batch.digest, batch_id=batch.batch_id, closing_rule=batch.closing_rule
            )
            del self._held[batch.digest]
        if finished:
            self._forget()

    async def run(self, pause: float = _CHECK_SECONDS) -> None:
        """Check every `pause` seconds, for as long as the service runs."""
        await repeat(self.check, pause, "batches not checked", wait=True)
