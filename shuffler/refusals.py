"""Counts of refused and repeated submissions, for the operator."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from shuffledp.common.errors import ShuffleDpError, StorageError
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.messages.submission import Outcome
from shuffledp.common.runtime import logs
from shuffledp.shuffler.storage.submission_store import SubmissionStore

_PAUSE: Final = 1.0
"""Seconds between saves."""
_FOLLOW_PAUSE: Final = 15.0
"""Seconds between readings of what other processes counted."""


class RefusalCounts:
    """
    Counts the refused and the repeated submissions of every batch, by all processes.

    Changes are saved every second: a crash loses the last second's counts, never a submission.
    """

    def __init__(self, store: SubmissionStore) -> None:
        self._store = store
        self._saved: dict[BatchId, Counter[Outcome]] = {}
        """The stored counts, those of other processes as of the last `load`."""
        self._unsaved: dict[BatchId, Counter[Outcome]] = {}
        self._using_store = asyncio.Lock()
        self._saving: asyncio.Task[None] | None = None
        self._counted = asyncio.Event()
        """Set while counts are unsaved."""

    def count(self, batch_id: BatchId, outcomes: Iterable[Outcome]) -> None:
        """Count the outcomes other than STORED."""
        if counted := Counter(outcome for outcome in outcomes if outcome is not Outcome.STORED):
            self._unsaved.setdefault(batch_id, Counter()).update(counted)
            self._counted.set()

    def of(self, batch_id: BatchId) -> Counter[Outcome]:
        """Return a batch's counts so far."""
        return self._saved.get(batch_id, Counter()) + self._unsaved.get(batch_id, Counter())

    async def load(self) -> None:
        """Load the counts of earlier runs and of other processes."""
        async with self._using_store:
            self._saved = await self._store.refusals()

    async def save(self) -> None:
        """Save the new counts; on failure, keep them for the next save and raise."""
        self._saving = asyncio.create_task(self._save())
        await asyncio.shield(self._saving)  # counts must not be saved twice if the service stops

    async def _save(self) -> None:
        async with self._using_store:
            counts, self._unsaved = self._unsaved, {}
            try:
                if counts:
                    await self._store.add_refusals(counts)
            except BaseException:
                _add(self._unsaved, counts)
                raise
            _add(self._saved, counts)

    async def run(self, pause: float = _PAUSE) -> None:
        """
        Save new counts after `pause` seconds while the service runs.

        The first of several failures is logged.
        """
        failing = False
        while True:
            await self._counted.wait()
            await asyncio.sleep(pause)
            self._counted.clear()
            try:
                await self.save()
            except Exception as error:  # noqa: BLE001  # a failed count must not stop submissions
                if not failing:  # log once, not every second
                    _report("refusals not saved yet", error)
                failing = True
                self._counted.set()
            else:
                failing = False

    async def follow(self, pause: float = _FOLLOW_PAUSE) -> None:
        """Load the counts of other processes again and again, while the service runs."""
        while True:
            await asyncio.sleep(pause)
            with suppress(StorageError):  # the store's own metrics show it
                await self.load()

    async def save_last(self) -> None:
        """Save when the service stops; log the loss if that fails."""
        try:
            await self.save()
        except Exception as error:  # noqa: BLE001  # the service is stopping anyway
            _report("refusals lost", error)


def _add(counts: dict[BatchId, Counter[Outcome]], more: Mapping[BatchId, Counter[Outcome]]) -> None:
    for batch_id, counted in more.items():
        counts.setdefault(batch_id, Counter()).update(counted)


def _report(event: str, error: Exception) -> None:
    level: logs.Level = "WARNING" if isinstance(error, ShuffleDpError) else "ERROR"
    logs.event(event, {"error": type(error).__name__}, level=level)
