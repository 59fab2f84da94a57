"""Metrics of the analyzer: their allow-list, and counts of its batches."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, get_args

from shuffledp.analyzer.storage.store import DeliveredState
from shuffledp.common.messages.ledger_entry import Decision
from shuffledp.common.messages.result import RefusalCause, Result
from shuffledp.common.runtime.metrics import OF_KEY_HOLDERS, MetricRow, ProcessMetrics
from shuffledp.common.runtime.parts.executor import OF_PARTS
from shuffledp.common.task_digest import TaskDigest

METRICS: Final = (
    *OF_KEY_HOLDERS,
    *OF_PARTS,
    MetricRow(
        "shuffledp_batches",
        "Batches by state, of all time; unusable ones include quarantined ones.",
        {"state": ("staged", "released", "unusable")},
    ),
    MetricRow(
        "shuffledp_batches_moved_total",
        "Batches that entered a state.",
        {"state": ("staged", "released", "unusable", "quarantined")},
    ),
    MetricRow("shuffledp_tasks_open", "Tasks before their deadline without a batch."),
    MetricRow("shuffledp_releases_total", "Results released."),
    MetricRow("shuffledp_release_failures_total", "Failed releases, which are retried."),
    MetricRow("shuffledp_users_counted_total", "Users of released batches."),
    MetricRow(
        "shuffledp_reports_received_total", "Reports of released batches, refused ones included."
    ),
    MetricRow(
        "shuffledp_reports_refused_total",
        "Reports of released batches that were not counted.",
        {"cause": get_args(RefusalCause)},
    ),
    MetricRow(
        "shuffledp_sentinels_missing_total",
        "Acknowledged sentinels lost by a shuffler that must keep every report.",
    ),
    MetricRow("shuffledp_open_seconds", "Seconds to open the reports of the last release."),
    MetricRow("shuffledp_estimate_seconds", "Seconds to estimate the last release."),
    MetricRow("shuffledp_ledger_entries", "Entries of the ledger."),
    MetricRow(
        "shuffledp_oldest_cosignature_seconds",
        "Seconds since the witness that is silent longest cosigned the log, or since the start if "
        "that is unknown; absent without witnesses.",
        absent=True,
    ),
    MetricRow(
        "shuffledp_budget_spent_ratio",
        "Largest share of a promised budget that any population has spent: epsilon composed at "
        "the budget's delta, over the budget.",
        absent=True,
    ),
)


class ReleaseMetrics:
    """Counts batches and releases. Digests and populations are not exported."""

    def __init__(self, process_metrics: ProcessMetrics) -> None:
        self._metrics = process_metrics.metrics
        self._now = process_metrics.now
        self._note = process_metrics.note_failure
        self._states: dict[TaskDigest, DeliveredState] = {}
        self._deadlines: dict[TaskDigest, int] = {}
        """Deadlines of tasks without a batch."""
        self._entries = 0
        self._shares: dict[str, float] = {}
        self._metrics.on_collect(self._count_open_tasks)

    def resume(
        self,
        states: Mapping[TaskDigest, DeliveredState],
        deadlines: Mapping[TaskDigest, int],
        ledger_entries: int,
    ) -> None:
        """Resume with an earlier run's state; `deadlines` are those of tasks without a result."""
        self._states = dict(states)
        self._deadlines = {
            digest: deadline for digest, deadline in deadlines.items() if digest not in states
        }
        self._entries = ledger_entries
        self._show()

    def record_task(self, digest: TaskDigest, deadline: int) -> None:
        """Record a published task, and forget tasks whose deadline has passed."""
        now = self._now()
        self._deadlines = {known: end for known, end in self._deadlines.items() if end > now}
        self._deadlines[digest] = deadline

    def record_staged(self, digest: TaskDigest) -> None:
        """Record a batch that was staged."""
        self._move(digest, "staged")

    def record_unusable(self, digest: TaskDigest, *, quarantined: bool, n_missing: int = 0) -> None:
        """Record a batch that cannot be released, and the sentinels missing from it."""
        self._metrics.add("shuffledp_sentinels_missing_total", n_missing)
        if self._states.get(digest) != "unusable":
            self._move(digest, "unusable", "quarantined" if quarantined else "unusable")

    def record_decision(self, digest: TaskDigest, decision: Decision) -> None:
        """Record a decision on a batch, which may count as unusable before: also in quarantine."""
        self._entries += 1
        state: DeliveredState = "staged" if decision == "release" else "unusable"
        if self._states.get(digest) == state:
            self._show()
        else:
            self._move(digest, state)

    def record_release(self, result: Result) -> None:
        """Record a release."""
        self._entries += 1
        self._move(result.task_digest, "released")
        add = self._metrics.add
        add("shuffledp_releases_total")
        add("shuffledp_users_counted_total", result.n_users)
        add("shuffledp_reports_received_total", result.n_reports)
        for cause, count in result.refused.items():
            add("shuffledp_reports_refused_total", count, {"cause": cause})
        self._metrics.set("shuffledp_open_seconds", result.open_seconds)
        self._metrics.set("shuffledp_estimate_seconds", result.estimate_seconds)

    def record_failure(self, error: Exception) -> None:
        """Record a failed release, which is retried."""
        self._metrics.add("shuffledp_release_failures_total")
        self._note(error)

    def record_spent(self, shares: Iterable[tuple[str, float]]) -> None:
        """
        Record the shares that populations have spent of their budgets.

        The first call has every population. Budgets are never refunded, so of two shares of one
        population the larger is the newer one.
        """
        for population, share in shares:
            self._shares[population] = max(share, self._shares.get(population, 0.0))
        self._metrics.set("shuffledp_budget_spent_ratio", max(self._shares.values(), default=0.0))

    def watch_witnesses(self, cosigned: Callable[[], Sequence[float]]) -> None:
        """Measure at each reading the time since the oldest of the witnesses' cosignatures."""

        @self._metrics.on_collect
        def measure() -> None:
            if times := cosigned():
                seconds = max(0.0, self._now() - min(times))
                self._metrics.set("shuffledp_oldest_cosignature_seconds", seconds)

    def _move(
        self,
        digest: TaskDigest,
        state: DeliveredState,
        moved_to: Literal["staged", "released", "unusable", "quarantined"] | None = None,
    ) -> None:
        self._states[digest] = state
        self._deadlines.pop(digest, None)
        self._metrics.add("shuffledp_batches_moved_total", 1, {"state": moved_to or state})
        self._show()

    def _show(self) -> None:
        counts = Counter(self._states.values())
        for state in ("staged", "released", "unusable"):
            self._metrics.set("shuffledp_batches", counts[state], {"state": state})
        self._metrics.set("shuffledp_ledger_entries", self._entries)

    def _count_open_tasks(self) -> None:
        """Count open tasks on a copy, since this runs in the metrics server's thread."""
        now, deadlines = self._now(), list(self._deadlines.values())
        self._metrics.set("shuffledp_tasks_open", sum(end > now for end in deadlines))
