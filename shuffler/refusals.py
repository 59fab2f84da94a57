"""Counts of refused and repeated submissions, for the operator."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Final

from common.errors import ShuffleDpError
from common.messages.batch import BatchId
from common.messages.submission import Outcome
from common.runtime import logs
from shuffler.storage.sqlite_store import SqliteStore

_PAUSE: Final = 1.0
"""Seconds between saves."""


class RefusalCounts:
    """
    Counts the refused and the repeated submissions of every batch.

    Changes are saved every second: a crash loses the last second's counts, never a submission.
    """

    def __init__(self) -> None:
        self._counts: dict[BatchId, Counter[Outcome]] = {}
        self._unsaved: set[BatchId] = set()

    def count(self, batch_id: BatchId, outcomes: Iterable[Outcome]) -> None:
        """Count the outcomes other than STORED."""
        if counted := Counter(outcome for outcome in outcomes if outcome is not Outcome.STORED):
            self._counts.setdefault(batch_id, Counter()).update(counted)
            self._unsaved.add(batch_id)

    def of(self, batch_id: BatchId) -> Counter[Outcome]:
        """Return a batch's counts so far."""
        return Counter(self._counts.get(batch_id, ()))

    async def load(self, store: SqliteStore) -> None:
        """Load the counts of an earlier run."""
        self._counts = await store.refusals()

    async def save(self, store: SqliteStore) -> None:
        """Save the changed counts; on failure, keep them for the next save and raise."""
        changed, self._unsaved = self._unsaved, set()
        try:
            if changed:
                await store.save_refusals({batch_id: self.of(batch_id) for batch_id in changed})
        except BaseException:  # if the service stops, the write may not have begun
            self._unsaved |= changed
            raise

    async def run(self, store: SqliteStore, pause: float = _PAUSE) -> None:
        """Save every `pause` seconds while the service runs; log the first of several failures."""
        failing = False
        while True:
            await asyncio.sleep(pause)
            try:
                await self.save(store)
            except Exception as error:  # noqa: BLE001  # a failed count must not stop submissions
                if not failing:  # log once, not every second
                    _report("refusals not saved yet", error)
                failing = True
            else:
                failing = False

    async def save_last(self, store: SqliteStore) -> None:
        """Save when the service stops; log the loss if that fails."""
        try:
            await self.save(store)
        except Exception as error:  # noqa: BLE001  # the service is stopping anyway
            _report("refusals lost", error)


def _report(event: str, error: Exception) -> None:
    level: logs.Level = "WARNING" if isinstance(error, ShuffleDpError) else "ERROR"
    logs.event(event, {"error": type(error).__name__}, level=level)
