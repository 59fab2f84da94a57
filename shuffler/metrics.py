"""What the shuffler's metrics tell of its batches: rows of common/runtime/metric_table.py."""

from collections import Counter
from collections.abc import Mapping

from common.batch import BatchId, BatchState
from common.runtime.vitals import Vitals
from common.submission import REFUSALS, Outcome

_WAITING = frozenset({BatchState.CLOSED, BatchState.PERMUTED})
"""States between closing and delivery."""


class BatchMetrics:
    """Counts batches as they move. A submission moves nothing here."""

    def __init__(self, vitals: Vitals) -> None:
        self._metrics = vitals.metrics
        self._now = vitals.now
        self._note = vitals.incidents.note
        self._states: Counter[BatchState] = Counter()
        self._closed_at: dict[BatchId, float] = {}
        self._metrics.ask(self._measure_waiting)

    def resume(
        self, states: Mapping[BatchId, BatchState], deadlines: Mapping[BatchId, int]
    ) -> None:
        """
        Take up the batches of an earlier run.

        When they closed is written nowhere: it would be a time on the disk. They count as waiting
        since their deadline, or since now if that is still to come.
        """
        self._states = Counter(states.values())
        self._show_states()
        now = self._now()
        for batch_id, state in states.items():
            if state in _WAITING:
                self._closed_at[batch_id] = min(now, deadlines.get(batch_id, now))

    def moved(
        self, batch_id: BatchId, before: BatchState | None, state: BatchState, n_users: int
    ) -> None:
        """Take note of a batch's next state, once it is on the disk; its first comes after None."""
        if before is not None:
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

    def batch_closed(self, counted: Mapping[Outcome, int]) -> None:
        """Count what a batch refused until it closed or expired; what comes too late is in none."""
        for outcome in REFUSALS:
            count = counted.get(outcome, 0)
            self._metrics.add(
                "shuffledp_submissions_refused_total", count, {"cause": outcome.value}
            )

    def tried(self, stuck: int, error: Exception | None = None) -> None:
        """Take note that a batch was to move on, with what error; `stuck` ones could not."""
        self._metrics.set("shuffledp_batches_stuck", stuck)
        if error is not None:
            self._note(error)

    def _show_states(self) -> None:
        for state in BatchState:
            self._metrics.set("shuffledp_batches", self._states[state], {"state": state.value})

    async def _measure_waiting(self) -> None:
        waited = self._now() - min(self._closed_at.values()) if self._closed_at else 0.0
        self._metrics.set("shuffledp_oldest_undelivered_seconds", round(max(0.0, waited)))
