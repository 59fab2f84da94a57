"""Metrics of the shuffler's batches, and the counts of refused submissions."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from common.errors import ShuffleDpError
from common.messages.batch import BatchId, BatchState
from common.messages.submission import Outcome
from common.runtime import logs
from common.runtime.metrics import COUNTED_REFUSALS, COUNTED_STATES
from common.runtime.process_metrics import ProcessMetrics
from shuffler.active_batches import AFTER_COLLECTING
from shuffler.storage.spool import Spool

_WAITING = frozenset({BatchState.CLOSED, BatchState.PERMUTED})
"""States between closing and delivery."""


class BatchMetrics:
    """Counts batches by state. Neither a submission nor the start of a batch changes any figure."""

    def __init__(self, process_metrics: ProcessMetrics) -> None:
        self._metrics = process_metrics.metrics
        self._now = process_metrics.now
        self._note = process_metrics.failures.note
        self._states: Counter[BatchState] = Counter()
        self._closed_at: dict[BatchId, float] = {}
        self._refused: dict[BatchId, Mapping[Outcome, int]] = {}
        self._metrics.ask(self._measure_waiting)

    def resume(
        self, states: Mapping[BatchId, BatchState], deadlines: Mapping[BatchId, int]
    ) -> None:
        """
        Resume with the batches of an earlier run.

        Closing times are not stored, so that no time is on the disk: batches count as waiting since
        their deadline, or since now if it has not passed.
        """
        self._states = Counter(states.values())
        self._show_states()
        now = self._now()
        for batch_id, state in states.items():
            if state in _WAITING:
                self._closed_at[batch_id] = min(now, deadlines.get(batch_id, now))

    def moved(self, batch_id: BatchId, before: BatchState, state: BatchState, n_users: int) -> None:
        """Record a batch's next state, once it is stored."""
        if before in COUNTED_STATES:
            self._states[before] -= 1
        self._states[state] += 1
        self._show_states()
        self._metrics.add("shuffledp_batches_moved_total", 1, {"state": state.value})
        if state is BatchState.CLOSED:
            self._closed_at[batch_id] = self._now()
        elif state not in _WAITING:
            self._closed_at.pop(batch_id, None)
        if state is BatchState.DELIVERED:
            self._metrics.add("shuffledp_users_released_total", n_users)
        if state in AFTER_COLLECTING:
            self._metrics.add("shuffledp_users_collected_total", n_users)
            self._count_refused(self._refused.pop(batch_id, {}))

    def batch_ends(self, batch_id: BatchId, counted: Mapping[Outcome, int]) -> None:
        """Record a batch's refusals, to be counted once its next state is stored."""
        self._refused[batch_id] = counted

    def tried(self, stuck: int, error: Exception | None = None) -> None:
        """Record an attempt to move a batch, its error, and the number of `stuck` batches."""
        self._metrics.set("shuffledp_batches_stuck", stuck)
        if error is not None:
            self._note(error)

    def _count_refused(self, counted: Mapping[Outcome, int]) -> None:
        for outcome in COUNTED_REFUSALS:
            self._metrics.add(
                "shuffledp_submissions_refused_total",
                counted.get(outcome, 0),
                {"cause": outcome.value},
            )

    def _show_states(self) -> None:
        for state in COUNTED_STATES:
            self._metrics.set("shuffledp_batches", self._states[state], {"state": state.value})

    def _measure_waiting(self) -> None:
        """Measure on a copy, since this runs in the metrics server's thread."""
        now = self._now()
        oldest = min(list(self._closed_at.values()), default=now)
        self._metrics.set("shuffledp_oldest_undelivered_seconds", round(max(0.0, now - oldest)))


_PAUSE: Final = 1.0
"""Seconds between saves."""


class RefusalCounts:
    """
    Counts the refused and the repeated submissions of every batch, for the operator.

    Saved every second: a crash loses the last second's refusals, never a submission.
    """

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
