"""
Metrics whose names and labels are an allow-list, and which move with batches only.

`TABLE` holds all of them, each with every value that its labels can take: adding one is a review of
what it reveals, and what is not in it raises. A series that is counted stands there from the start
with 0, so that not even its appearance tells anything.

There is no label for a user, a peer, a connection or a submission: those are what the shuffler
forgets. There is none for a task, a batch or a population either, for another reason: they have no
bound, each would be a series that is kept for ever, and a batch that is looked for is found in the
log by its id.

Nothing here moves when a batch begins or while it collects, however many submit: it appears when it
closes or expires, counters are advanced when a batch changes its state, and what calls run into
(`incidents.py`) shows by whole five minutes. The rows that say `of_process` are the exception. CPU
seconds and memory move with whatever the process does: read often, they tell about how many
submissions came between two readings, and nothing of who sent them or what. Anybody who may look at
the process list of the machine reads the same. They are for the process's own operator, and so is
the address where all this is served.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Final, Literal, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from common.crypto.key_ring import KeyState
from common.messages.batch import BatchState
from common.messages.result import RefusalCause
from common.messages.submission import REFUSALS, Outcome
from common.version import VERSION

Party = Literal["analyzer", "shuffler", "user_agent"]
MetricName = Literal[
    "shuffledp_up",
    "shuffledp_certificate_days_left",
    "shuffledp_process_cpu_seconds_total",
    "shuffledp_process_resident_memory_bytes",
    "shuffledp_memory_limit_bytes",
    "shuffledp_state_free_bytes",
    "shuffledp_state_size_bytes",
    "shuffledp_overloaded",
    "shuffledp_storage_failing",
    "shuffledp_keys",
    "shuffledp_batches",
    "shuffledp_batches_moved_total",
    "shuffledp_batches_stuck",
    "shuffledp_oldest_undelivered_seconds",
    "shuffledp_users_collected_total",
    "shuffledp_users_released_total",
    "shuffledp_submissions_refused_total",
    "shuffledp_tasks_open",
    "shuffledp_releases_total",
    "shuffledp_release_failures_total",
    "shuffledp_users_counted_total",
    "shuffledp_reports_received_total",
    "shuffledp_reports_refused_total",
    "shuffledp_sentinels_missing_total",
    "shuffledp_open_seconds",
    "shuffledp_estimate_seconds",
    "shuffledp_ledger_entries",
    "shuffledp_budget_spent_ratio",
]
Label = Literal["party", "version", "certificate", "state", "cause"]
"""
`party` and `version`: the program's own. `certificate`: the process's own, or the authority's.
`state`: of a batch or a key. `cause`: of a refusal.
"""
Labels = Mapping[Label, str]


class MetricKind(Enum):
    """What a number may do."""

    COUNTER = CounterMetricFamily
    """Only grow, from 0 at each start."""
    GAUGE = GaugeMetricFamily


PARTIES: Final[tuple[Party, ...]] = get_args(Party)
_KEY_HOLDERS: Final[tuple[Party, ...]] = ("analyzer", "shuffler")
STATES_TOLD: Final = tuple(state for state in BatchState if state is not BatchState.COLLECTING)
"""Of a batch at the shuffler. It begins to collect with one person's call, which is not told."""
REFUSALS_TOLD: Final = tuple(one for one in REFUSALS if one is not Outcome.CLOSED)
"""By a batch while it collects. What comes too late is counted nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One metric of one or several parties."""

    name: MetricName
    kind: MetricKind
    help: str
    parties: tuple[Party, ...]
    labels: tuple[tuple[Label, tuple[str, ...]], ...] = ()
    """Each label, with every value that it can take."""
    absent: bool = False
    """Not there until it is known; otherwise it begins with 0."""
    of_process: bool = False
    """Moves with what the process or its machine does, not with batches."""

    def series(self) -> list[tuple[str, ...]]:
        """Give every series that it can have: the values of its labels, in their order."""
        return list(product(*(values for _, values in self.labels)))


TABLE: Final = (
    Row(
        name="shuffledp_up",
        kind=MetricKind.GAUGE,
        help="1: the service runs.",
        parties=PARTIES,
        labels=(("party", PARTIES), ("version", (VERSION,))),
        absent=True,
    ),
    Row(
        name="shuffledp_certificate_days_left",
        kind=MetricKind.GAUGE,
        help="Whole days until a certificate ends; negative once it has.",
        parties=PARTIES,
        labels=(("certificate", ("own", "authority")),),
        absent=True,
    ),
    Row(
        name="shuffledp_process_cpu_seconds_total",
        kind=MetricKind.COUNTER,
        help="Seconds of processor time of the process and all its workers, ended ones too.",
        parties=PARTIES,
        of_process=True,
    ),
    Row(
        name="shuffledp_process_resident_memory_bytes",
        kind=MetricKind.GAUGE,
        help="Resident memory of the process and its workers; what they share counts for each.",
        parties=PARTIES,
        of_process=True,
    ),
    Row(
        name="shuffledp_memory_limit_bytes",
        kind=MetricKind.GAUGE,
        help="Memory of the machine, or of the container if that has less.",
        parties=PARTIES,
        absent=True,
        of_process=True,
    ),
    Row(
        name="shuffledp_state_free_bytes",
        kind=MetricKind.GAUGE,
        help="Free space of the state directory's disk, in hundredths of its size.",
        parties=_KEY_HOLDERS,
        absent=True,
        of_process=True,
    ),
    Row(
        name="shuffledp_state_size_bytes",
        kind=MetricKind.GAUGE,
        help="Size of the state directory's disk.",
        parties=_KEY_HOLDERS,
        absent=True,
        of_process=True,
    ),
    Row(
        name="shuffledp_overloaded",
        kind=MetricKind.GAUGE,
        help="1: in the last whole five minutes a call was refused for lack of room.",
        parties=_KEY_HOLDERS,
    ),
    Row(
        name="shuffledp_storage_failing",
        kind=MetricKind.GAUGE,
        help="1: in the last whole five minutes the disk was full, read-only, failed or damaged.",
        parties=_KEY_HOLDERS,
    ),
    Row(
        name="shuffledp_keys",
        kind=MetricKind.GAUGE,
        help="Encryption keys by state.",
        parties=_KEY_HOLDERS,
        labels=(("state", tuple(state.value for state in KeyState)),),
    ),
    Row(
        name="shuffledp_batches",
        kind=MetricKind.GAUGE,
        help="Batches by state, of all time; none that still collects.",
        parties=("shuffler",),
        labels=(("state", tuple(state.value for state in STATES_TOLD)),),
    ),
    Row(
        name="shuffledp_batches",
        kind=MetricKind.GAUGE,
        help="Batches by state, of all time; quarantined ones are among the unusable.",
        parties=("analyzer",),
        labels=(("state", ("staged", "released", "unusable")),),
    ),
    Row(
        name="shuffledp_batches_moved_total",
        kind=MetricKind.COUNTER,
        help="Batches that came to a state.",
        parties=("shuffler",),
        labels=(("state", tuple(state.value for state in STATES_TOLD)),),
    ),
    Row(
        name="shuffledp_batches_moved_total",
        kind=MetricKind.COUNTER,
        help="Batches that came to a state.",
        parties=("analyzer",),
        labels=(("state", ("staged", "released", "unusable", "quarantined")),),
    ),
    Row(
        name="shuffledp_batches_stuck",
        kind=MetricKind.GAUGE,
        help="Batches that could not move on when it was last tried.",
        parties=("shuffler",),
    ),
    Row(
        name="shuffledp_oldest_undelivered_seconds",
        kind=MetricKind.GAUGE,
        help="Since the batch closed that waits longest for its delivery; 0 if none does. After a "
        "restart, since the task's deadline or the start.",
        parties=("shuffler",),
    ),
    Row(
        name="shuffledp_users_collected_total",
        kind=MetricKind.COUNTER,
        help="Users that a batch held when it was permuted or expired, counted then: what its "
        "refused submissions are compared with.",
        parties=("shuffler",),
    ),
    Row(
        name="shuffledp_users_released_total",
        kind=MetricKind.COUNTER,
        help="Users in delivered batches, counted at the delivery.",
        parties=("shuffler",),
    ),
    Row(
        name="shuffledp_submissions_refused_total",
        kind=MetricKind.COUNTER,
        help="Submissions that a batch refused while it collected, counted when it is permuted or "
        "expires.",
        parties=("shuffler",),
        labels=(("cause", tuple(outcome.value for outcome in REFUSALS_TOLD)),),
    ),
    Row(
        name="shuffledp_tasks_open",
        kind=MetricKind.GAUGE,
        help="Tasks before their deadline of which no batch has come.",
        parties=("analyzer",),
    ),
    Row(
        name="shuffledp_releases_total",
        kind=MetricKind.COUNTER,
        help="Results released.",
        parties=("analyzer",),
    ),
    Row(
        name="shuffledp_release_failures_total",
        kind=MetricKind.COUNTER,
        help="Releases that failed and are tried again.",
        parties=("analyzer",),
    ),
    Row(
        name="shuffledp_users_counted_total",
        kind=MetricKind.COUNTER,
        help="Users of released batches.",
        parties=("analyzer",),
    ),
    Row(
        name="shuffledp_reports_received_total",
        kind=MetricKind.COUNTER,
        help="Reports of released batches, refused ones too.",
        parties=("analyzer",),
    ),
    Row(
        name="shuffledp_reports_refused_total",
        kind=MetricKind.COUNTER,
        help="Reports of released batches that were not counted.",
        parties=("analyzer",),
        labels=(("cause", get_args(RefusalCause)),),
    ),
    Row(
        name="shuffledp_sentinels_missing_total",
        kind=MetricKind.COUNTER,
        help="Acknowledged sentinels that a shuffler lost which was to keep every report.",
        parties=("analyzer",),
    ),
    Row(
        name="shuffledp_open_seconds",
        kind=MetricKind.GAUGE,
        help="How long the reports of the last release took to open.",
        parties=("analyzer",),
    ),
    Row(
        name="shuffledp_estimate_seconds",
        kind=MetricKind.GAUGE,
        help="How long the estimate of the last release took.",
        parties=("analyzer",),
    ),
    Row(
        name="shuffledp_ledger_entries",
        kind=MetricKind.GAUGE,
        help="Entries of the ledger.",
        parties=("analyzer",),
    ),
    Row(
        name="shuffledp_budget_spent_ratio",
        kind=MetricKind.GAUGE,
        help="Largest share that any population has spent of a budget it was promised: epsilon "
        "composed at the budget's delta, over the budget.",
        parties=("analyzer",),
        absent=True,
    ),
)
