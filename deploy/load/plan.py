"""The checked options of a load run: rates, ramps and users. Pure."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from common.errors import PlanError
from common.runtime.access import CallKind
from deploy.datasets.catalogue import IPUMS_1940_CITY
from deploy.load.behaviour import Behaviour
from deploy.load.tally import Tally

Mode = Literal["users", "bulk"]
Pattern = Literal["steady", "burst"]
TargetKind = Literal["services", "local", "sink"]

_MIN_ACHIEVED: Final = 0.95
"""Least share of the offered rate; at less, a queue grows."""
_USERS_IN_FLIGHT: Final = 64
_MAX_RATE: Final = 1e9
_MAX_STEPS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """Rates tried one after the other, each for some seconds, until one does not hold."""

    first: float
    """Users a second."""
    last: float
    steps: int
    step_seconds: float = 10.0
    p99_limit: float = math.inf
    """Milliseconds; a step whose 99th percentile is above it does not hold."""

    def __post_init__(self) -> None:
        if not 0 < self.first <= self.last <= _MAX_RATE or not 1 <= self.steps <= _MAX_STEPS:
            raise PlanError(
                f"a ramp has 1 to {_MAX_STEPS} steps, and climbs from a rate above 0 to one of at "
                f"most {_MAX_RATE:g}"
            )

    @property
    def phases(self) -> list[tuple[float, int]]:
        """The rate and the users of each step."""
        rates = np.linspace(self.first, self.last, self.steps).tolist()
        return [(rate, max(1, round(rate * self.step_seconds))) for rate in rates]

    def broken_by(self, rate: float, seen: Tally) -> str | None:
        """Return why a step at a rate did not hold; None if it did."""
        p99 = seen.milliseconds().get("p99", 0.0)
        if seen.given_up:
            return f"users gave up: {seen.given_up}"
        if seen.achieved < _MIN_ACHIEVED * rate:
            return f"{seen.achieved:.0f} a second where {rate:.0f} were offered"
        if p99 > self.p99_limit:
            return f"the 99th percentile is {p99:.0f} ms, above {self.p99_limit:g}"
        return None


def ramp_from(text: str, *, step_seconds: float = 10.0, p99_limit: float = math.inf) -> Ramp:
    """Parse FROM:TO:STEPS; raise PlanError if the text is no ramp."""
    try:
        first, last, steps = text.split(":")
        rates = {"first": float(first), "last": float(last)}
        return Ramp(**rates, steps=int(steps), step_seconds=step_seconds, p99_limit=p99_limit)
    except ValueError as error:
        raise PlanError("a ramp is FROM:TO:STEPS, such as 100:2000:10") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """The simulated users, and how they arrive and send."""

    n_users: int = 1000
    shares: Mapping[Behaviour, float] = field(default_factory=dict)
    """Shares of misbehaving users."""
    dataset: str = IPUMS_1940_CITY
    """Source of items, as `deploy.datasets.choice` names it; other kinds of values are random."""
    mode: Mode = "users"
    """`users`: a connection each. `bulk`: many users in a call."""
    rate: float | None = None
    """Users a second, in an open loop; None for a closed one."""
    concurrency: int | None = None
    """Users (calls, in bulk) in flight in a closed loop; None for 64, or 4 calls a process."""
    pattern: Pattern = "steady"
    """Of an open loop. `steady`: a Poisson process. `burst`: `burst` users at the same moment."""
    burst: int = 100
    ramp: Ramp | None = None
    processes: int = 1
    patience: float = 120.0
    """Seconds for which a user retries while services do not answer."""
    fetch_task: bool = False
    """In `users` mode, each user fetches the task before it submits, as a device does."""
    seed: int | None = None
    """Chooses people, behaviours and arrival times. Sealing is never repeatable."""

    @property
    def in_flight(self) -> int:
        """Users or calls in flight in a closed loop."""
        bulk = CallKind.BULK.value.share * self.processes
        default = _USERS_IN_FLIGHT if self.mode == "users" else bulk
        return default if self.concurrency is None else self.concurrency

    @property
    def is_open(self) -> bool:
        """Whether users arrive on a schedule, however slow the services are."""
        return self.rate is not None or self.ramp is not None


def arrivals(
    count: int, rate: float, rng: np.random.Generator, *, burst: int | None = None
) -> NDArray[np.float64]:
    """
    Draw the arrival times of an open loop: ascending seconds from the start, below count / rate.

    In an open loop no user waits for another's answer, and latency is measured from the scheduled
    time. A generator that waited for a slow service before it sent the next request, and measured
    from there, would leave out the users who waited longest (coordinated omission).

    Arrivals are a Poisson process given its number: uniform times, so that the rate is exact. With
    `burst`, so many users arrive at the same moment, evenly spaced.
    """
    if burst is not None:
        return np.asarray(np.arange(count) // burst * (burst / rate), dtype=np.float64)
    return np.sort(rng.random(count)) * (count / rate)


_RESULT: Final = "token_file certificate key"
_ACCESS: Final = "shuffler_token_file metrics i_run_these_services"
_SENDING: Final = (
    "mode rate concurrency pattern burst p99_limit processes patience fetch_task close json"
)
_CLOSING: Final = "--close needs --shuffler-token-file"
_CONSENT: Final = (
    "simulated users spoil a real collection, and only the services' operator may send them: "
    "give --shuffler-token-file or --i-run-these-services"
)


def check_options(kind: TargetKind, mode: Mode, pattern: Pattern, given: Collection[str]) -> None:
    """Raise PlanError for `given` options that have no effect, or that need another one."""
    present, remote, bursts = {*given}, kind == "services", pattern == "burst"
    sent_nothing = f"replay analyzer {_RESULT} {_ACCESS} {_SENDING}"
    ignored = (
        (not remote, f"task authority analyzer prepare {_RESULT} {_ACCESS}", f"--{kind} has these"),
        (remote, "draft", "running services have their task"),
        (kind == "local", "replay", "--local has new keys, which fit no prepared file"),
        (kind == "sink", "close", "a sink holds no batch"),
        ("analyzer" not in present, _RESULT, "there is no --analyzer"),
        ("prepare" in present, sent_nothing, "--prepare sends nothing"),
        ("shuffler_token_file" in present, "i_run_these_services", "the token shows consent"),
        ("replay" in present, "users misbehaving dataset draft", "the prepared file has the users"),
        ("ramp" in present, "rate", "a ramp has rates of its own"),
        ("ramp" not in present, "step_seconds p99_limit", "there is no --ramp"),
        (mode == "bulk", "fetch_task", "users in bulk fetch no task"),
        (not bursts, "burst", "users come in bursts with --pattern burst"),
        (bool({"rate", "ramp"} & present), "concurrency", "users arrive on a schedule"),
    )
    for applies, names, why in ignored:
        useless = [name for name in names.split() if applies and name in present]
        if useless:
            options = {name: f"--{name.replace('_', '-')}" for name in useless} | {"task": "TASK"}
            raise PlanError(f"leave {', '.join(options[name] for name in useless)} out: {why}")
    needed = (
        ("analyzer" in present, "token_file", "--analyzer needs --token-file"),
        (bursts, "rate ramp", "bursts need a rate or a ramp"),
        (remote, "task replay", "name the task: its digest"),
        (remote and "close" in present, "shuffler_token_file", _CLOSING),
        (remote, "shuffler_token_file i_run_these_services prepare", _CONSENT),
    )
    for applies, names, why in needed:
        if applies and not present & {*names.split()}:
            raise PlanError(why)
