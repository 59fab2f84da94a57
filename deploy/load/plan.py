"""Options of a load run and their checks: rates, ramps and users. Pure."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import PlanError, UsageError
from shuffledp.common.runtime.access import CallKind
from shuffledp.deploy.load.behaviour import Behaviour, Tally, assign
from shuffledp.deploy.load.sending import MAX_RATE, Mode, Pattern, Sending

TargetKind = Literal["services", "local", "sink"]

_MIN_ACHIEVED: Final = 0.95
"""Share of the offered rate below which a ramp step fails, because a queue grows."""
_USERS_IN_FLIGHT: Final = 64
_MAX_STEPS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """Rising rates, each tried for `step_seconds`, until the services fail to keep up."""

    first: float
    last: float
    steps: int
    step_seconds: float = 10.0
    p99_limit: float = math.inf
    """Maximum 99th percentile of the waits in milliseconds; above it, a step fails."""

    def __post_init__(self) -> None:
        if not 0 < self.first <= self.last <= MAX_RATE or not 1 <= self.steps <= _MAX_STEPS:
            raise PlanError(
                f"a ramp must have 1 to {_MAX_STEPS} steps and rise from a rate above 0 to at most "
                f"{MAX_RATE:g}"
            )

    @property
    def phases(self) -> list[tuple[float, int]]:
        """Rate and number of users of each step."""
        rates = np.linspace(self.first, self.last, self.steps).tolist()
        return [(rate, max(1, round(rate * self.step_seconds))) for rate in rates]

    def broken_by(self, rate: float, seen: Tally) -> str | None:
        """Return the reason why a ramp step at a rate failed; None if it held."""
        p99 = seen.milliseconds().get("p99", 0.0)
        if seen.given_up:
            return f"users gave up: {seen.given_up}"
        if seen.achieved < _MIN_ACHIEVED * rate:
            return f"{seen.achieved:.0f} users per second of {rate:.0f} offered"
        if p99 > self.p99_limit:
            return f"the 99th percentile is {p99:.0f} ms, above {self.p99_limit:g}"
        return None


def ramp_from(text: str, *, step_seconds: float = 10.0, p99_limit: float = math.inf) -> Ramp:
    """Parse FROM:TO:STEPS, or raise UsageError."""
    try:
        first, last, steps = text.split(":")
        rates = {"first": float(first), "last": float(last)}
        return Ramp(**rates, steps=int(steps), step_seconds=step_seconds, p99_limit=p99_limit)
    except ValueError as error:
        raise UsageError("a ramp must be FROM:TO:STEPS, such as 100:2000:10") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan(Sending):
    """The simulated users, and how they arrive and send; without rates, in a closed loop."""

    n_users: int = 1000
    shares: Mapping[Behaviour, float] = field(default_factory=dict)
    ramp: Ramp | None = None

    def draw_kinds(self, rng: np.random.Generator | None = None) -> NDArray[np.uint8]:
        """Draw the users' behaviours, (n_users,): as many of each by any generator."""
        return assign(self.n_users, self.shares, rng or np.random.default_rng(self.seed))

    @property
    def in_flight(self) -> int:
        """Users or calls in flight in a closed loop."""
        bulk = CallKind.BULK.value.peer_calls * self.processes
        default = _USERS_IN_FLIGHT if self.mode == "users" else bulk
        return default if self.concurrency is None else self.concurrency

    @property
    def is_open(self) -> bool:
        """Whether users arrive on a schedule, independent of the services' speed."""
        return self.rate is not None or self.ramp is not None


def arrivals(
    count: int, rate: float, rng: np.random.Generator, *, burst: int | None = None
) -> NDArray[np.float64]:
    """
    Draw the arrival times of an open loop: ascending seconds from the start, below count / rate.

    No user waits for another's answer, and latency counts from the scheduled time. Measuring from a
    delayed start would miss the longest waits (coordinated omission).

    Arrivals are a Poisson process conditioned on its count: uniform times, so the rate is exact.
    With `burst`, groups of `burst` users arrive at once, at even intervals.
    """
    if burst is not None:
        return np.asarray(np.arange(count) // burst * (burst / rate), dtype=np.float64)
    return np.sort(rng.random(count)) * (count / rate)


_RESULT: Final = "analyzer_token_file certificate key"
_ACCESS: Final = "shuffler_token_file metrics i_run_these_services"
_SENDING: Final = (
    "mode rate concurrency pattern burst p99_limit processes patience fetch_task close json"
)
_NAMED: Final = {"task": "TASK", "analyzer_token_file": "--token-file"}
"""Parameters that are not named like their option."""
_CLOSING: Final = "--close needs --shuffler-token-file"
_CONSENT: Final = (
    "simulated users spoil a real collection, so only the services' operator may send them: "
    "use --shuffler-token-file or --i-run-these-services"
)


def check_options(kind: TargetKind, mode: Mode, pattern: Pattern, given: Collection[str]) -> None:
    """Raise UsageError for `given` options without effect, and for missing ones."""
    present, remote, bursts = {*given}, kind == "services", pattern == "burst"
    sent_nothing = f"replay tokens analyzer {_RESULT} {_ACCESS} {_SENDING}"
    ignored = (
        (
            not remote,
            f"task authority analyzer prepare tokens {_RESULT} {_ACCESS}",
            f"--{kind} sets them",
        ),
        (remote, "draft", "running services already have a task"),
        (kind == "local", "replay", "--local makes new keys, so no prepared file fits"),
        (kind == "sink", "close", "a sink has no batch"),
        ("analyzer" not in present, _RESULT, "there is no --analyzer"),
        ("prepare" in present, sent_nothing, "--prepare sends nothing"),
        ("shuffler_token_file" in present, "i_run_these_services", "the token shows consent"),
        ("replay" in present, "users misbehaving dataset draft", "the prepared file has the users"),
        ("ramp" in present, "rate", "--ramp sets the rates"),
        ("ramp" not in present, "step_seconds p99_limit", "there is no --ramp"),
        (mode == "bulk", "fetch_task", "bulk users do not fetch the task"),
        (not bursts, "burst", "it needs --pattern burst"),
        (bool({"rate", "ramp"} & present), "concurrency", "users arrive on a schedule"),
    )
    for applies, names, why in ignored:
        useless = [name for name in names.split() if applies and name in present]
        if useless:
            options = [_NAMED.get(name, f"--{name.replace('_', '-')}") for name in useless]
            raise UsageError(f"drop {', '.join(options)}: {why}")
    needed = (
        ("analyzer" in present, "analyzer_token_file", "--analyzer needs --token-file"),
        (bursts, "rate ramp", "--pattern burst needs --rate or --ramp"),
        (remote, "task replay", "the task's digest is missing"),
        (remote and "close" in present, "shuffler_token_file", _CLOSING),
        (remote, "shuffler_token_file i_run_these_services prepare", _CONSENT),
    )
    for applies, names, why in needed:
        if applies and not present & {*names.split()}:
            raise UsageError(why)
