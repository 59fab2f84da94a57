"""
Predict the needs of each party for a number of reports per day, from measured costs. Pure.

Submissions arrive all day; front-ends and store are sized for the peak. A day's reports are one
batch, processed after it closes: the shuffler's workers, then the delivery, which one process of
each party does, then the analyzer's workers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from common.errors import PlanError
from deploy.planning.measured_costs import cost
from shuffler.permutation import part_count

Party = Literal["shuffler", "analyzer"]

HOUR: Final = 3600.0
_DAY: Final = 24 * HOUR
_PARTS_HELD: Final = 4
"""Parts of a batch in the memory of one process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Reports per day and how they arrive; checked on construction."""

    reports_per_day: float
    """Sealed reports, dummies included."""
    deadline_hours: float
    """Hours from a batch's close to its result."""
    opening_microseconds: float
    """Time in which one core opens a sealed report."""
    reports_per_user: int = 2
    bulk_share: float = 0.0
    """Share of submissions that relays send in bulk; the rest open a connection each."""
    peak: float = 3.0
    """Peak rate of submissions, as a multiple of the average."""

    def __post_init__(self) -> None:
        """Raise PlanError if a number is out of range."""
        for name, value, least, most in (
            ("reports per day", self.reports_per_day, 1, 1e12),
            ("the deadline in hours", self.deadline_hours, 1e-3, 24),
            ("the microseconds per opening", self.opening_microseconds, 0.01, 1e6),
            ("reports per user", self.reports_per_user, 1, self.reports_per_day),
            ("the share in bulk", self.bulk_share, 0, 1),
            ("the peak factor", self.peak, 1, 1e6),
        ):
            if not least <= value <= most:
                raise PlanError(
                    f"{name} is {value:.10g}; it must lie between {least:.10g} and {most:.10g}"
                )

    @property
    def submissions(self) -> float:
        """Submissions per day."""
        return self.reports_per_day / self.reports_per_user

    def seconds(self, openings: float) -> float:
        """Return the processor seconds of a number of openings."""
        return openings * self.opening_microseconds / 1e6

    def per_submission(self, of_device: str, in_bulk: str) -> float:
        """Return the average of two costs per submission."""
        return (1 - self.bulk_share) * cost(of_device) + self.bulk_share * cost(in_bulk)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Needs of one role at the peak of submissions, or while a batch is processed."""

    party: Party
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


def predict(workload: Workload) -> Sequence[Demand]:
    """Predict the needs of each role; raise PlanError if the deadline is too short for delivery."""
    return *_submission_demands(workload), *_batch_demands(workload)


def bulk_chain_seconds(
    n_reports: int, reports_per_user: int, opening_seconds: float, workers: int
) -> float:
    """Predict the time from a batch's first bulk call to its result, if the parties take turns."""
    ingest = (cost("bulk") + cost("bulk opening")) / reports_per_user
    shared = n_reports * (ingest + cost("shuffle") + cost("prove") + cost("count"))
    delivery = n_reports * max(cost("send"), cost("receive"))
    return opening_seconds * (cost("batch") + delivery + shared / workers)


def _submission_demands(workload: Workload) -> tuple[Demand, ...]:
    """Return the needs of front-ends and store."""
    rows = workload.submissions
    peak = workload.peak * rows / _DAY

    def demand(role: str, openings: float, network: float, memory: float, disk: float) -> Demand:
        cores = workload.seconds(openings) * peak
        processes = math.ceil(cores)
        return Demand(
            party="shuffler",
            role=role,
            processes=processes,
            cores=cores,
            core_hours=cores / workload.peak * 24,
            memory=memory + processes * cost("process memory"),
            disk=disk,
            network=peak * network,
        )

    in_bulk = workload.bulk_share * cost("bulk opening")
    row = cost("row bytes") + workload.reports_per_user * cost("report bytes")
    # One batch collects while the last one is processed.
    held = rows * (1 + workload.deadline_hours / 24)
    return (
        demand(
            "front-ends",
            workload.per_submission("device", "bulk") + in_bulk,
            workload.per_submission("device bytes", "bulk bytes") + row,
            memory=0.0,
            disk=0.0,
        ),
        demand(
            "PostgreSQL",
            workload.per_submission("device row", "bulk row"),
            row,
            memory=held * cost("index bytes"),
            disk=held * row,
        ),
    )


def _batch_demands(workload: Workload) -> tuple[Demand, ...]:
    """Return the needs of coordinators and workers, with the fewest workers in total."""
    reports = workload.reports_per_day
    batch_bytes = reports * cost("report bytes")
    busy = {
        "shuffler": workload.seconds(reports * cost("send")),
        "analyzer": workload.seconds(reports * cost("receive")),
    }
    work = {
        "shuffler": workload.seconds(reports * (cost("shuffle") + cost("prove"))),
        "analyzer": workload.seconds(reports * cost("count")),
    }
    delivery = max(busy.values())
    fixed = delivery + workload.seconds(cost("batch"))
    left = workload.deadline_hours * HOUR - fixed
    if left <= 0:
        raise PlanError(
            f"the deadline is {workload.deadline_hours:g} hours; the delivery of a batch alone "
            f"takes {fixed / HOUR:.2g}"
        )
    proofs = reports * cost("proof bytes")
    memory = cost("process memory") + _PARTS_HELD * batch_bytes / part_count(math.ceil(batch_bytes))
    roots = sum(map(math.sqrt, work.values()))
    demands = []
    for party in ("shuffler", "analyzer"):
        # These minimise the sum of workers, given the sum of both stages' durations.
        workers = math.ceil(math.sqrt(work[party]) * roots / left)
        blocks = reports * cost(f"{party} blocks")
        demands.append(
            Demand(
                party=party,
                role="coordinator",
                processes=1,
                cores=busy[party] / delivery,
                core_hours=busy[party] / HOUR,
                memory=memory,
                disk=proofs if party == "shuffler" else 0.0,
                network=batch_bytes / delivery,
            )
        )
        demands.append(
            Demand(
                party=party,
                role="workers",
                processes=workers,
                cores=workers,
                core_hours=work[party] / HOUR,
                memory=workers * memory,
                disk=blocks,
                network=2 * blocks * workers / work[party],  # written once, read once
            )
        )
    return tuple(demands)
