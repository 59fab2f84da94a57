"""
Predict and show the needs of each party for a number of reports per day, from measured costs.

Submissions arrive all day, each with a token that its device has fetched; issuer, front-ends and
store are sized for the peak. A day's reports are one batch, processed after it closes: the
shuffler's workers, then the delivery, which one process of each party does, then the analyzer's
workers. A second shuffler stands between: every report has a layer for it, which its workers open
as the analyzer's open reports, before they permute.
"""

import math
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from rich.console import Console, JustifyMethod
from rich.table import Table

from shuffledp.common.crypto.hpke import DEFAULT_SUITE, HpkePrivateKey, report_context
from shuffledp.common.errors import PlanError
from shuffledp.common.task_digest import DIGEST_BYTES, TaskDigest
from shuffledp.deploy.terminal.tables import add_columns, print_whole
from shuffledp.shuffler.shuffle_job import part_count

_ROUND: Final = 200
"""Reports opened between two looks at the clock."""
_PLAIN_BYTES: Final = 12
HOUR: Final = 3600.0
_DAY: Final = 24 * HOUR
_TOKEN_ROWS_DAYS: Final = 31
"""Days for which the issuer keeps a day's rows: until 30 days after the key's end."""
_PARTS_HELD: Final = 4
"""Parts of a batch in the memory of one process."""
_COLUMNS: Final[dict[str, JustifyMethod]] = {
    "role": "left",
    **dict.fromkeys(
        ("number", "cores", "core-hours a day", "memory GB", "disk GB", "network MB/s"), "right"
    ),
}


COSTS: Final[Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("measured_costs.toml").read_text(encoding="utf-8")
)
"""The value, the unit and the source of each cost by name, which measured_costs.toml explains."""


def cost(name: str) -> float:
    """Return the value of a cost."""
    return float(COSTS[name]["value"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Reports per day and how they arrive; checked on construction."""

    reports_per_day: float
    """Sealed reports, dummies included."""
    deadline_hours: float
    """Hours from a batch's close to its result."""
    opening_microseconds: float
    """Time in which one core opens a sealed report."""
    reports_per_user: float = 2
    """Average, dummies included."""
    bulk_share: float = 0.0
    """Share of submissions that relays send in bulk; the rest open a connection each."""
    peak: float = 3.0
    """Peak rate of submissions, as a multiple of the average."""
    shufflers: int = 1
    """Number of shufflers of the task, 1 or 2."""

    def __post_init__(self) -> None:
        """Raise PlanError if a number is out of range."""
        for name, value, least, most in (
            ("reports per day", self.reports_per_day, 1, 1e12),
            ("the deadline in hours", self.deadline_hours, 1e-3, 24),
            ("the microseconds per opening", self.opening_microseconds, 0.01, 1e6),
            ("reports per user", self.reports_per_user, 1, self.reports_per_day),
            ("the share in bulk", self.bulk_share, 0, 1),
            ("the peak factor", self.peak, 1, 1e6),
            ("the number of shufflers", self.shufflers, 1, 2),
        ):
            if not least <= value <= most:
                raise PlanError(
                    f"{name} is {value:.10g}; it must lie between {least:.10g} and {most:.10g}"
                )

    @property
    def submissions(self) -> float:
        """Submissions per day."""
        return self.reports_per_day / self.reports_per_user

    @property
    def layer_bytes(self) -> float:
        """Bytes of a report's layers, as its device sends it."""
        return (self.shufflers - 1) * cost("layer bytes")

    def seconds(self, openings: float) -> float:
        """Return the processor seconds of a number of openings."""
        return openings * self.opening_microseconds / 1e6

    def per_submission(self, of_device: str, in_bulk: str) -> float:
        """Return the average of two costs per submission."""
        return (1 - self.bulk_share) * cost(of_device) + self.bulk_share * cost(in_bulk)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Needs of one role at the peak of submissions, or while a batch is processed."""

    party: str
    role: str
    processes: int
    cores: float
    core_hours: float
    """Per day."""
    memory: float
    """Bytes, as `disk`."""
    disk: float
    network: float
    """Bytes per second."""


def measure_opening_seconds(duration: float = 1.0) -> float:
    """
    Return the core-seconds in which this machine opens a sealed report of the default suite.

    Cost: `duration`, in seconds.
    """
    context = report_context(TaskDigest(bytes(DIGEST_BYTES)))
    key = HpkePrivateKey.generate(DEFAULT_SUITE)
    sealed, opened = key.public_key().sealer(context)(bytes(_PLAIN_BYTES)), key.opener(context)
    count, started = 0, time.process_time()
    while (spent := time.process_time() - started) < duration:
        for _ in range(_ROUND):
            opened(sealed)
        count += _ROUND
    return spent / count


def predict(workload: Workload) -> Sequence[Demand]:
    """Predict the needs of each role; raise PlanError if the deadline is too short for delivery."""
    return *_submission_demands(workload), *_batch_demands(workload)


def _submission_demands(workload: Workload) -> Iterator[Demand]:
    """Yield the needs of front-ends, store and issuer."""
    layers = workload.reports_per_user * workload.layer_bytes
    row = cost("row bytes") + workload.reports_per_user * cost("report bytes") + layers
    openings = workload.per_submission("device", "bulk")
    openings += workload.bulk_share * cost("bulk opening")
    sent = workload.per_submission("device bytes", "bulk bytes") + layers
    # One batch collects while the last one is processed.
    held = workload.submissions * (1 + workload.deadline_hours / 24)
    rows = workload.per_submission("device row", "bulk row")
    tokens = workload.submissions * _TOKEN_ROWS_DAYS * cost("token row bytes")
    roles = (
        ("shuffler", "front-ends", openings, sent + row, 0.0, 0.0),
        ("shuffler", "PostgreSQL", rows, row, held * cost("index bytes"), held * row),
        # People fetch tokens themselves, even if relays send their submissions.
        ("issuer", "tokens", cost("token"), cost("token bytes"), 0.0, tokens),
    )
    for party, role, spent, network, memory, disk in roles:
        seconds = workload.seconds(spent) * workload.submissions
        cores = workload.peak * seconds / _DAY
        yield Demand(
            party=party,
            role=role,
            processes=math.ceil(cores),
            cores=cores,
            core_hours=seconds / HOUR,
            memory=memory + math.ceil(cores) * cost("process memory"),
            disk=disk,
            network=workload.peak * workload.submissions / _DAY * network,
        )


def _batch_demands(workload: Workload) -> Iterator[Demand]:
    """Yield the needs of coordinators and workers, with the fewest workers in total."""
    reports = workload.reports_per_day
    send, receive, shuffle, count = (
        workload.seconds(reports * sum(map(cost, stages)))
        for stages in (["send"], ["receive"], ["shuffle", "prove"], ["count"])
    )
    # Of the deliveries, one after the other; the coordinators' time is that of the bytes.
    size, layered = (
        reports * (cost("report bytes") + layers) for layers in (0.0, workload.layer_bytes)
    )
    sizes = [layered, size][2 - workload.shufflers :]
    lasting = [each / size * max(send, receive) for each in sizes]
    longer = sizes[0] / size
    fixed = sum(lasting) + (workload.shufflers + 1) / 2 * workload.seconds(cost("batch"))
    left = workload.deadline_hours * HOUR - fixed
    if left <= 0:
        raise PlanError(
            f"the deadline is {workload.deadline_hours:g} hours; the delivery of a batch alone "
            f"takes {fixed / HOUR:.2g}"
        )
    first = reports * (cost("shuffler blocks") + 2 * workload.layer_bytes)
    proofs, relayed = (reports * cost(each) for each in ("proof bytes", "relay blocks"))
    parties = [
        ("shuffler", [0], longer * send, shuffle, first, proofs),
        ("relay", [0, 1], longer * receive + send, count + shuffle, relayed, 0.0),
        ("analyzer", [-1], receive, count, reports * cost("analyzer blocks"), 0.0),
    ]
    if workload.shufflers == 1:
        del parties[1]
    roots = sum(math.sqrt(work) for _, _, _, work, _, _ in parties)
    for party, taken, busy, work, blocks, kept in parties:
        # These minimize the sum of workers, given the sum of all stages' durations.
        workers = math.ceil(math.sqrt(work) * roots / left)
        moved = 2 * blocks * workers / work  # written once, read once
        duration, delivered = (sum(each[hop] for hop in taken) for each in (lasting, sizes))
        part = sizes[taken[0]]
        memory = cost("process memory") + _PARTS_HELD * part / part_count(math.ceil(part))
        for role, processes, cores, seconds, disk, network in (
            ("coordinator", 1, busy / duration, busy, 0.0, delivered / duration),
            ("workers", workers, workers, work, 0.0, moved),
            ("blocks", 0, 0.0, 0.0, blocks + kept, 0.0),
        ):
            yield Demand(
                party=party,
                role=role,
                processes=processes,
                cores=cores,
                core_hours=seconds / HOUR,
                memory=processes * memory,
                disk=disk,
                network=network,
            )


def to_json(demands: Sequence[Demand], workload: Workload) -> dict[str, Any]:
    """Return the JSON fields; memory and disk are in bytes, network in bytes per second."""
    return {"workload": asdict(workload), "demands": [asdict(demand) for demand in demands]}


def cells(demand: Demand) -> list[str]:
    """Return the cells of a role's row."""
    return [
        demand.party,
        demand.role,
        f"{demand.processes:,}",
        *map(_rounded, (demand.cores, demand.core_hours, demand.memory / 1e9)),
        *map(_rounded, (demand.disk / 1e9, demand.network / 1e6)),
    ]


def show(demands: Sequence[Demand], workload: Workload, console: Console) -> None:
    """Print the needs of each role, and the processor time's shares of connections and tokens."""
    title = (
        f"{workload.reports_per_day:,.0f} reports a day, results in {workload.deadline_hours:g} "
        f"hours, {workload.opening_microseconds:.3g} µs per opening"
    )
    table = Table(title=title)
    add_columns(table, _COLUMNS)
    for party, of_party in groupby(demands, key=lambda demand: demand.party):
        table.add_row(party)
        for demand in of_party:
            _, role, *figures = cells(demand)
            table.add_row(f"  {role}", *figures)
    table.columns[0].no_wrap = True
    print_whole(table, console)
    total = sum(demand.core_hours for demand in demands)
    front_ends, tokens = (
        sum(demand.core_hours for demand in demands if demand.role == role) / total
        for role in ("front-ends", "tokens")
    )
    console.print(
        f"{_rounded(total)} core-hours a day in all, {front_ends:.0%} of them for the front-ends "
        f"and {tokens:.0%} for tokens. How the costs were measured: docs/operators/capacity.md.",
        highlight=False,
    )


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"  # noqa: PLR2004  # two digits
