"""
Predict the machines that a number of reports per day needs, from measured costs. Pure.

Submissions arrive all day; front-ends and store are sized for the peak. A batch is processed after
it closes: first the shuffler's parts, then the delivery, then the analyzer's parts. Workers share
the parts; the delivery is one stream.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Final, Literal

from common.crypto.hpke import DEFAULT_SUITE, suite_named
from common.errors import PlanError
from common.messages.inclusion_proof import HASH_BYTES
from common.task.task import envelope_bytes
from deploy.planning.measured_costs import COSTS, OPENING_RATE, MeasuredCost
from shuffler.permutation import part_count

Costs = Mapping[str, MeasuredCost]
Deployment = Literal["one machine", "front-ends", "engine"]
Party = Literal["shuffler", "analyzer"]
Through = Literal["devices", "relays"]

_SHUFFLE: Final = ("throw", "permute", "prove")
_ANALYZE: Final = ("split", "merge", "open")
"""Costs of each party's stages, which its workers share."""
_HOUR: Final = 3600.0
_DAY: Final = 24 * _HOUR
_PARTS_HELD: Final = 4
"""Parts in a process's memory at once."""
_PROOF_DAYS: Final = 30
"""Default of the setting `keep_inclusion_days`."""
_CONNECTIONS: Final = 8192
"""Connections that a front-end accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Cores, memory and disk in bytes, and network in bytes per second."""

    cores: float = 0.0
    memory: float = 0.0
    disk: float = 0.0
    network: float = 0.0


ONE_MACHINE: Final = Resources(cores=8, memory=32e9, disk=1e12, network=125e6)
"""A common server, with a network of 1 Gbit/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Reports per day, how they arrive and the machines; checked on construction."""

    reports_per_day: float
    """Sealed reports, dummies included."""
    deadline_hours: float
    """Hours from a batch's close to its result; at most until the next batch closes."""
    through: Through = "devices"
    """Whether each device connects, or relays send many submissions per call."""
    reports_per_user: int = 2
    report_bytes: int = 60
    """Length of a sealed report."""
    suite: str = DEFAULT_SUITE
    batches_per_day: float = 1.0
    peak: float = 3.0
    """Peak rate of submissions, as a multiple of the average."""
    opening_rate: float = OPENING_RATE
    """Reports of the default suite that one core opens per second."""
    machine: Resources = ONE_MACHINE
    """The machine of each party, if one suffices."""

    def __post_init__(self) -> None:
        """Raise PlanError if a number is out of range."""
        parts = [
            (f"the machine's {r.name}", getattr(self.machine, r.name)) for r in fields(Resources)
        ]
        for name, value, least, most in (
            ("reports per day", self.reports_per_day, 1, 1e12),
            ("reports per user", self.reports_per_user, 1, self.reports_per_day),
            ("batches per day", self.batches_per_day, 1e-3, self.reports_per_day),
            ("the deadline in hours", self.deadline_hours, 1e-3, 24 / self.batches_per_day),
            ("the peak factor", self.peak, 1, 1e6),
            ("the opening rate", self.opening_rate, 1, 1e9),
            *((name, value, 1, 1e18) for name, value in parts),
        ):
            if not least <= value <= most:
                raise PlanError(
                    f"{name} is {value:.10g}; it must lie between {least:.10g} and {most:.10g}"
                )

    @property
    def submissions(self) -> float:
        """Submissions per second, on average."""
        return self.reports_per_day / self.reports_per_user / _DAY

    @property
    def envelope_bytes(self) -> int:
        """Length of a submission."""
        report = self.report_bytes - suite_named(self.suite).overhead_bytes
        return envelope_bytes(report, self.reports_per_user, self.suite)

    @property
    def batch_reports(self) -> float:
        """Reports of one batch."""
        return self.reports_per_day / self.batches_per_day


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand(Resources):
    """Needs of one role at the peak of submissions, or while a batch is processed."""

    party: Party
    role: str
    average_cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSeconds:
    """Processing time of one batch: core-seconds of the parties' parts, seconds of the delivery."""

    shuffle: float
    deliver: float
    analyze: float

    def with_workers(self, workers: float) -> float:
        """Return the duration with a number of workers at each party."""
        return (self.shuffle + self.analyze) / workers + self.deliver


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Predicted needs of a workload."""

    demands: Sequence[Demand]
    front_ends: int
    """Processes that answer devices or relays."""
    workers: int
    """Workers at each party that finish a batch by the deadline."""
    batch_seconds: float
    """Processing time of a batch with these workers."""
    limits: Mapping[str, float]
    """Needed multiple of each resource of one machine or process, the scarcest first."""
    deployment: Deployment
    """The smallest that suffices, apart from its disks. All but one machine need PostgreSQL."""


def batch_seconds(workload: Workload, costs: Costs = COSTS) -> BatchSeconds:
    """Predict the processing time of one batch."""
    unit = workload.batch_reports / workload.opening_rate
    openings = {name: cost.value for name, cost in costs.items()}
    openings["open"] += _extra_opening(workload, costs)
    return BatchSeconds(
        shuffle=unit * sum(openings[name] for name in _SHUFFLE),
        deliver=unit * max(openings["send"], openings["receive"]),
        analyze=unit * sum(openings[name] for name in _ANALYZE),
    )


def predict(workload: Workload, costs: Costs = COSTS) -> Capacity:
    """
    Predict the needs of a workload, and the smallest deployment that meets them.

    Raises PlanError if the delivery alone takes longer than the deadline.
    """
    times, hours = batch_seconds(workload, costs), workload.deadline_hours
    if times.deliver >= hours * _HOUR:
        raise PlanError(
            f"the deadline is {hours:g} hours and the delivery of a batch alone takes "
            f"{times.deliver / _HOUR:.2g}; use more batches per day, or a later deadline"
        )
    sizing = _Sizing(workload, costs, times)
    alone = sizing.multiples()
    deployment: Deployment = "one machine"
    if sizing.workers() > workload.machine.cores:
        deployment = "engine"
    elif any(multiple > 1 for name, multiple in alone.items() if not name.startswith("disk")):
        deployment = "front-ends"
    sizing = replace(sizing, deployment=deployment)
    return Capacity(
        demands=(*sizing.submissions(), *sizing.batches()),
        front_ends=sizing.front_ends(),
        workers=sizing.workers(),
        batch_seconds=times.with_workers(sizing.workers() / sizing.overhead()),
        limits=dict(sorted(alone.items(), key=lambda limit: -limit[1])),
        deployment=deployment,
    )


def _extra_opening(workload: Workload, costs: Costs) -> float:
    """Return the openings by which the task's suite is slower to open than the default suite."""
    return costs["hybrid opening"].value - 1 if suite_named(workload.suite).hybrid else 0.0


@dataclass(frozen=True, slots=True)
class _Sizing:
    """Computes the needs of the roles in a deployment."""

    workload: Workload
    costs: Costs
    times: BatchSeconds
    deployment: Deployment = "one machine"

    def _value(self, name: str) -> float:
        return self.costs[name].value

    def _peak_cores(self, openings: float) -> float:
        """Return the cores that submissions keep busy at the peak."""
        workload = self.workload
        return openings * workload.peak * workload.submissions / workload.opening_rate

    def _connections(self) -> float:
        """Return the cores that front-ends' own processes need; each process has one."""
        if self.workload.through == "relays":
            return self._peak_cores(self._value("relay"))
        extra = _extra_opening(self.workload, self.costs)
        return self._peak_cores(self._value("device") + extra)

    def _front_end_cores(self) -> float:
        """Return the cores of all front-ends, with those of the workers that open bulk calls."""
        if self.workload.through == "devices":
            return self._connections()
        extra = _extra_opening(self.workload, self.costs)
        return self._connections() + self._peak_cores(self._value("relay envelope") + extra)

    def front_ends(self) -> int:
        """Return the number of front-ends, each on one machine."""
        if self.deployment == "one machine":
            return 1
        machines = self._front_end_cores() / self.workload.machine.cores
        return math.ceil(max(self._connections(), machines))

    def overhead(self) -> float:
        """Return the factor by which an engine lengthens the work."""
        return self._value("engine") if self.deployment == "engine" else 1.0

    def workers(self) -> int:
        """Return the workers at each party that finish a batch by its deadline."""
        seconds = self.workload.deadline_hours * _HOUR - self.times.deliver
        return math.ceil((self.times.shuffle + self.times.analyze) * self.overhead() / seconds)

    def multiples(self) -> dict[str, float]:
        """Return the needs as multiples of one process, of one stream, and of a machine a party."""
        found = {
            "connections of one front-end": self._connections(),
            "time for the delivery": self.times.deliver / self.workload.deadline_hours / _HOUR,
        }
        for party, name in itertools.product(
            ("shuffler", "analyzer"), asdict(self.workload.machine)
        ):
            steady = [getattr(d, name) for d in self.submissions() if d.party == party]
            # The delivery and the workers take turns.
            turns = [getattr(d, name) for d in self.batches() if d.party == party]
            needed = sum(steady) + max(turns)
            found[f"{name} of the {party}"] = needed / getattr(self.workload.machine, name)
        return found

    def submissions(self) -> Iterator[Demand]:
        """Yield the needs of front-ends and store."""
        workload, alone = self.workload, self.deployment == "one machine"
        directly, per_second = workload.through == "devices", workload.peak * workload.submissions
        memory = directly * _CONNECTIONS * self._value("connection memory")
        yield Demand(
            party="shuffler",
            role="front-ends",
            average_cores=self._front_end_cores() / workload.peak,
            cores=self._front_end_cores(),
            memory=self.front_ends() * (self._value("process memory") + memory),
            network=per_second * (workload.envelope_bytes + directly * self._value("connection")),
        )
        store, cost = "SQLite" if alone else "PostgreSQL", "device" if directly else "relay"
        # SQLite runs in the front-end.
        cores = 0.0 if alone else self._peak_cores(self._value(f"{cost} store"))
        row = workload.reports_per_user * workload.report_bytes + self._value(f"{store} row")
        # One batch collects while an earlier one is processed.
        batches = 1 + workload.deadline_hours * workload.batches_per_day / 24
        rows = batches * workload.batch_reports / workload.reports_per_user
        yield Demand(
            party="shuffler",
            role=store,
            average_cores=cores / workload.peak,
            cores=cores,
            memory=rows * self._value(f"{store} memory"),
            disk=rows * row,
            network=0.0 if alone else per_second * row,
        )

    def batches(self) -> Iterator[Demand]:
        """Yield the needs of the deliveries and of the workers."""
        workload, times, workers = self.workload, self.times, self.workers()
        batch = workload.batch_reports * workload.report_bytes
        hashes, per_day = workload.batch_reports * HASH_BYTES, workload.batches_per_day / _DAY
        memory = self._value("process memory") + _PARTS_HELD * batch / part_count(math.ceil(batch))
        proofs = workload.reports_per_day * _PROOF_DAYS * self._value("proof")
        seconds = self.overhead() * (times.shuffle + times.analyze) / workers
        # Core-seconds, bytes of blocks on the disk, and bytes of blocks written and read.
        parties: tuple[tuple[Party, str, float, float, float], ...] = (
            ("shuffler", "send", times.shuffle, 2 * batch + proofs, 5 * batch + 4 * hashes),
            ("analyzer", "receive", times.analyze, 3 * batch + 2 * hashes, 5 * batch + 3 * hashes),
        )
        for party, delivery, work, disk, moved in parties:
            busy = self._value(delivery) / max(self._value("send"), self._value("receive"))
            yield Demand(
                party=party,
                role="delivery",
                average_cores=busy * times.deliver * per_day,
                cores=busy,
                memory=memory,
                network=batch / times.deliver,
            )
            yield Demand(
                party=party,
                role="workers",
                average_cores=self.overhead() * work * per_day,
                cores=workers,
                memory=workers * memory,
                disk=disk,
                network=moved / seconds if self.deployment == "engine" else 0.0,
            )
