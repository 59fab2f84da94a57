"""Metrics of the shuffler: their allow-list, counts of its batches, and its store."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from shuffledp.common.messages.batch import BatchId, BatchState
from shuffledp.common.messages.submission import REFUSALS, Outcome
from shuffledp.common.runtime.metrics import OF_KEY_HOLDERS, MetricRow, ProcessMetrics
from shuffledp.common.runtime.parts.executor import OF_PARTS

COUNTED_STATES: Final = tuple(state for state in BatchState if state is not BatchState.COLLECTING)
"""Counted states of a batch: all but collecting, which a single call can start."""
COUNTED_REFUSALS: Final = tuple(cause for cause in REFUSALS if cause is not Outcome.CLOSED)
"""Reasons to refuse submissions while a batch collects. Later submissions are not counted."""
_STATES: Final = {"state": tuple(state.value for state in COUNTED_STATES)}
METRICS: Final = (
    *OF_KEY_HOLDERS,
    *OF_PARTS,
    MetricRow(
        "shuffledp_batches",
        "Batches by state, of all time, except those that are collecting.",
        _STATES,
    ),
    MetricRow("shuffledp_batches_moved_total", "Batches that entered a state.", _STATES),
    MetricRow("shuffledp_batches_stuck", "Batches whose last attempt to advance failed."),
    MetricRow(
        "shuffledp_oldest_undelivered_seconds",
        "Seconds since the longest-waiting undelivered batch closed; 0 if none waits. After a "
        "restart, it counts from the task's deadline or the restart, whichever is earlier.",
    ),
    MetricRow(
        "shuffledp_users_collected_total",
        "Users of batches, counted when a batch is permuted, dropped before, or expires; compare "
        "refused submissions with this number.",
    ),
    MetricRow("shuffledp_users_released_total", "Users of delivered batches, counted at delivery."),
    MetricRow(
        "shuffledp_submissions_refused_total",
        "Submissions refused while a batch collected, counted when the batch is permuted, "
        "dropped before, or expires.",
        {"cause": tuple(cause.value for cause in COUNTED_REFUSALS)},
    ),
    MetricRow(
        "shuffledp_layers_discarded_total",
        "Layers that a relay discarded, as they do not open or repeat others, counted when their "
        "batch is permuted.",
    ),
    MetricRow(
        "shuffledp_store_connected",
        "1 while the store's PostgreSQL server is connected; absent with SQLite.",
        absent=True,
    ),
    MetricRow(
        "shuffledp_store_commit_seconds",
        "Seconds of the slowest transaction in PostgreSQL in the last whole five minutes.",
        absent=True,
    ),
)
_WAITING: Final = frozenset({BatchState.CLOSED, BatchState.PERMUTED, BatchState.SENT})
"""States between closing and delivery."""


class BatchMetrics:
    """Counts batches by state. No figure changes with a submission or the start of a batch."""

    def __init__(self, process_metrics: ProcessMetrics) -> None:
        self._metrics = process_metrics.metrics
        self._now = process_metrics.now
        self._note = process_metrics.note_failure
        self.refusals: Callable[[BatchId], Counter[Outcome]] = lambda _: Counter()
        """Counts the refused submissions of a batch."""
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
        self,
        batch_id: BatchId,
        before: BatchState,
        state: BatchState,
        n_users: int,
        n_discarded: int,
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
        if state is BatchState.PERMUTED:
            self._metrics.add("shuffledp_layers_discarded_total", n_discarded)
        if state is BatchState.DELIVERED:
            self._metrics.add("shuffledp_users_released_total", n_users)
        if before is BatchState.CLOSED or state is BatchState.EXPIRED:  # the number is final now
            self._metrics.add("shuffledp_users_collected_total", n_users)
            refused = self.refusals(batch_id)
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


class StoreMetrics:
    """Measures the connection to a store in PostgreSQL."""

    def __init__(self, process_metrics: ProcessMetrics) -> None:
        self._metrics = process_metrics.metrics
        self._window = process_metrics.window
        self._slowest: dict[int, float] = {}
        """Seconds of the slowest transaction of each window."""
        self._committed = False
        """Whether there has been a transaction."""
        self._metrics.on_collect(self._measure_slowest)

    def record_connection(self, *, connected: bool) -> None:
        """Record that the server is connected, or that the connection is lost."""
        self._metrics.set("shuffledp_store_connected", int(connected))

    def record_commit(self, seconds: float) -> None:
        """Record a committed transaction, reading ones included."""
        window = self._window()
        self._committed = True
        self._slowest[window] = max(seconds, self._slowest.get(window, 0.0))

    def _measure_slowest(self) -> None:
        now = self._window()
        if self._committed:
            slowest = self._slowest.get(now - 1, 0.0)
            self._metrics.set("shuffledp_store_commit_seconds", slowest)
        for window in list(self._slowest):
            if window < now - 1:
                self._slowest.pop(window, None)
