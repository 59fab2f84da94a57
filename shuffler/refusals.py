"""
Count refused submissions by batch and cause, for the shuffler's operator.

Counts are saved every second: a crash loses the last second's refusals, never a submission.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Final

from common.errors import ShuffleDpError
from common.messages.batch import BatchId
from common.messages.submission import Outcome
from common.runtime import logs
from shuffler.storage.spool import Spool

_PAUSE: Final = 1.0
"""Seconds between saves."""


class RefusalCounts:
    """The refused and the repeated submissions of every batch."""

    def __init__(self, spool: Spool, pause: float = _PAUSE) -> None:
        self._spool = spool
        self._pause = pause
        self._saving = asyncio.Lock()
        """Held while a save is under way."""
        self._unsaved: dict[BatchId, Counter[Outcome]] = {}

    def count(self, batch_id: BatchId, outcomes: Iterable[Outcome]) -> None:
        """Count the outcomes other than STORED."""
        if found := Counter(outcome for outcome in outcomes if outcome is not Outcome.STORED):
            self._unsaved.setdefault(batch_id, Counter()).update(found)

    async def of(self, batch_id: BatchId) -> Counter[Outcome]:
        """
        Return a batch's counts so far, saved or not. Saves nothing.

        Raises:
            StorageError: The saved counts cannot be read.
        """
        async with self._saving:
            stored = await self._spool.refusals(batch_id)
            return stored + self._unsaved.get(batch_id, Counter())

    async def save(self) -> None:
        """Save the unsaved counts; on failure raise, and keep them for the next save."""
        async with self._saving:
            unsaved, self._unsaved = self._unsaved, {}
            if not unsaved:
                return
            writing = asyncio.ensure_future(self._spool.add_refusals(unsaved))
            try:
                await asyncio.shield(writing)
            finally:
                # Even if the service stops: only the finished write tells whether it succeeded.
                await asyncio.wait({writing})
                if writing.exception() is not None:
                    for batch_id, counted in unsaved.items():
                        self._unsaved.setdefault(batch_id, Counter()).update(counted)

    async def run(self) -> None:
        """Save every second for as long as the service runs."""
        failing = False
        while True:
            await asyncio.sleep(self._pause)
            try:
                await self.save()
            except Exception as error:  # noqa: BLE001  # counts must not stop submissions
                if not failing:  # log once, not every second
                    _report("refusals not saved yet", error)
                failing = True
            else:
                failing = False

    async def save_last(self) -> None:
        """Save when the service stops; log the loss if that fails."""
        try:
            await self.save()
        except Exception as error:  # noqa: BLE001  # the service stops anyway
            _report("refusals lost", error)


def _report(event: str, error: Exception) -> None:
    foreseen = isinstance(error, ShuffleDpError)
    level: logs.Level = "WARNING" if foreseen else "ERROR"
    logs.event(event, {"error": type(error).__name__}, level=level)
