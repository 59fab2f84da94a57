"""Metrics of the shuffler's batches."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from common.messages.batch import BatchId, BatchState
from common.runtime.metrics import COUNTED_REFUSALS, COUNTED_STATES, ProcessMetrics
from shuffler.refusals import RefusalCounts

_WAITING: Final = frozenset({BatchState.CLOSED, BatchState.PERMUTED, BatchState.SENT})
"""States between closing and delivery."""


class BatchMetrics:
    """Counts batches by state. No figure changes with a submission or the start of a batch."""

    def __init__(self, process_metrics: ProcessMetrics, refusals: RefusalCounts) -> None:
        self._metrics = process_metrics.metrics
        self._now = process_metrics.now
        self._note = process_metrics.note_failure
        self._refusals = refusals
        self._states: Counter[BatchState] = Counter()
        self._closed_at: dict[BatchId, float] = {}
        self._metrics.on_collect(self._measure_waiting)

    def resume(
        self, states: Mapping[BatchId, BatchState | None], deadlines: Mapping[BatchId, int]
    ) -> None:
        """
        Resume with the batches of an earlier run.

        Closing times are never stored on the disk, so batches count as waiting since their
        deadline, or since now if it is not in the past. Unknown states (None) are not counted.
        """
        self._states = Counter(state for state in states.values() if state is not None)
        self._show_states()
        now = self._now()
        for batch_id, state in states.items():
            if state in _WAITING:
                self._closed_at[batch_id] = min(now, deadlines.get(batch_id, now))

    def record_move(
        self, batch_id: BatchId, before: BatchState, state: BatchState, n_users: int
    ) -> None:
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
        if before is BatchState.CLOSED or state is BatchState.EXPIRED:  # the number is final now
            self._metrics.add("shuffledp_users_collected_total", n_users)
            refused = self._refusals.of(batch_id)
            for outcome in COUNTED_REFUSALS:
                cause = {"cause": outcome.value}
                self._metrics.add("shuffledp_submissions_refused_total", refused[outcome], cause)

    def record_attempt(self, stuck: int, error: Exception | None = None) -> None:
        """Record an attempt to move a batch, any error, and the number of `stuck` batches."""
        self._metrics.set("shuffledp_batches_stuck", stuck)
        if error is not None:
            self._note(error)

    def _show_states(self) -> None:
        for state in COUNTED_STATES:
            self._metrics.set("shuffledp_batches", self._states[state], {"state": state.value})

    def _measure_waiting(self) -> None:
        """Measure the longest wait on a copy, since this runs in the metrics server's thread."""
        now = self._now()
        oldest = min(list(self._closed_at.values()), default=now)
        self._metrics.set("shuffledp_oldest_undelivered_seconds", round(max(0.0, now - oldest)))
