"""
How many submissions a batch did not take, by cause, for the shuffler's operator.

Counted in memory and written every second: a crash forgets the last second's refusals, never a
submission.
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
"""Seconds from one writing to the next."""


class RefusalCounts:
    """For every batch, how many submissions were refused, and how many came again."""

    def __init__(self, spool: Spool, pause: float = _PAUSE) -> None:
        self._spool = spool
        self._pause = pause
        self._one_at_a_time = asyncio.Lock()
        """Held while counts are neither here nor surely on the disk."""
        self._unsaved: dict[BatchId, Counter[Outcome]] = {}

    def count(self, batch_id: BatchId, outcomes: Iterable[Outcome]) -> None:
        """Count what was not stored among some outcomes."""
        if found := Counter(outcome for outcome in outcomes if outcome is not Outcome.STORED):
            self._unsaved.setdefault(batch_id, Counter()).update(found)

    async def of(self, batch_id: BatchId) -> Counter[Outcome]:
        """
        Give what was counted of a batch so far, written or not; nothing is written for it.

        Raises:
            StorageError: What is written cannot be read.
        """
        async with self._one_at_a_time:
            stored = await self._spool.refusals(batch_id)
            return stored + self._unsaved.get(batch_id, Counter())

    async def save(self) -> None:
        """
        Write what is not written yet.

        Whatever fails, a full disk as a rule, is raised; the counts are written the next time.
        """
        async with self._one_at_a_time:
            unsaved, self._unsaved = self._unsaved, {}
            if not unsaved:
                return
            writing = asyncio.ensure_future(self._spool.add_refusals(unsaved))
            try:
                await asyncio.shield(writing)
            finally:
                # Also if the service stops meanwhile: only its end tells whether it is written.
                await asyncio.wait({writing})
                if writing.exception() is not None:
                    for batch_id, counted in unsaved.items():
                        self._unsaved.setdefault(batch_id, Counter()).update(counted)

    async def keep_saving(self) -> None:
        """Write what is new, every second, for as long as the service runs."""
        failing = False
        while True:
            await asyncio.sleep(self._pause)
            try:
                await self.save()
            except Exception as error:  # noqa: BLE001  # counts are worth no submission
                if not failing:  # once, not every second
                    _report("refusals not saved yet", error)
                failing = True
            else:
                failing = False

    async def save_last(self) -> None:
        """Write what is left, when the service stops; what cannot be is lost, and in the log."""
        try:
            await self.save()
        except Exception as error:  # noqa: BLE001  # whatever it is, the service stops
            _report("refusals lost", error)


def _report(event: str, error: Exception) -> None:
    foreseen = isinstance(error, ShuffleDpError)
    level: logs.Level = "WARNING" if foreseen else "ERROR"
    logs.event(event, {"error": type(error).__name__}, level=level)
