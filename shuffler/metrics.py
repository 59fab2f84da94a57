"""What the shuffler's metrics tell of its batches: rows of common/runtime/metric_definitions.py."""

from collections import Counter
from collections.abc import Mapping

from common.messages.batch import BatchId, BatchState
from common.messages.submission import Outcome
from common.runtime.metric_definitions import COUNTED_REFUSALS, COUNTED_STATES
from common.runtime.process_metrics import ProcessMetrics
from shuffler.states import AFTER_COLLECTING

_WAITING = frozenset({BatchState.CLOSED, BatchState.PERMUTED})
"""States between closing and delivery."""


class BatchMetrics:
    """
    Counts batches as they move. A submission moves nothing here, nor does the call that begins a
    batch: one that collects is in no number.
    """

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

    def moved(self, batch_id: BatchId, before: BatchState, state: BatchState, n_users: int) -> None:
        """Take note of a batch's next state, once it is on the disk."""
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
        """Take note of what a batch refused; it is counted once its next state is on the disk."""
        self._refused[batch_id] = counted

    def tried(self, stuck: int, error: Exception | None = None) -> None:
        """Take note that a batch was to move on, with what error; `stuck` ones could not."""
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
        """Measure in the metrics page's thread, on a copy: the event loop moves batches."""
        now = self._now()
        oldest = min(list(self._closed_at.values()), default=now)
        self._metrics.set("shuffledp_oldest_undelivered_seconds", round(max(0.0, now - oldest)))
