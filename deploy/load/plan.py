"""What a load run is to do: options that were checked. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from common.errors import PlanError
from common.runtime.access import CallKind
from deploy.load.arrivals import Pattern
from deploy.load.behaviour import Behaviour, check_shares

Mode = Literal["users", "bulk"]

MODES: Final[tuple[Mode, ...]] = ("users", "bulk")
PATTERNS: Final[tuple[Pattern, ...]] = ("steady", "burst")
MAX_PROCESSES: Final = 256
MAX_USERS: Final = 10**9
_RAMP_PARTS: Final = 3
_USERS_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """Rates that are tried one after the other, each for some seconds, until one does not hold."""

    first: float
    """Users a second."""
    last: float
    steps: int
    seconds: float = 10.0
    """Of each step."""
    p99_limit: float = math.inf
    """Milliseconds; a step whose 99th percentile is above does not hold."""

    def __post_init__(self) -> None:
        if not 0 < self.first <= self.last < math.inf:
            raise PlanError(
                f"a ramp from {self.first:g} to {self.last:g}: rates must be above 0, finite, "
                "and not fall"
            )
        if not 1 <= self.steps <= 1000:  # noqa: PLR2004  # more would be a mistake
            raise PlanError(f"a ramp of {self.steps} steps; it must have 1 to 1000")
        if not 0 < self.seconds < math.inf:
            raise PlanError(f"a step of {self.seconds:g} seconds; it must be above 0 and finite")
        if not self.p99_limit > 0:
            raise PlanError(f"the limit of the 99th percentile is {self.p99_limit:g}, not above 0")

    @property
    def rates(self) -> list[float]:
        """Users a second, step by step."""
        between = max(1, self.steps - 1)
        return [
            self.first + (self.last - self.first) * step / between for step in range(self.steps)
        ]

    @property
    def users(self) -> list[int]:
        """Users of each step."""
        return [max(1, round(rate * self.seconds)) for rate in self.rates]


def ramp_from(text: str, *, seconds: float, p99_limit: float) -> Ramp:
    """
    Read FROM:TO:STEPS.

    Raises:
        PlanError: It is none.
    """
    parts = text.split(":")
    try:
        if len(parts) == _RAMP_PARTS:
            return Ramp(
                first=float(parts[0]),
                last=float(parts[1]),
                steps=int(parts[2]),
                seconds=seconds,
                p99_limit=p99_limit,
            )
    except ValueError as error:
        raise PlanError("a ramp is FROM:TO:STEPS, three numbers") from error
    raise PlanError("a ramp is FROM:TO:STEPS, such as 100:2000:10")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """How users come. Who they are stands in the prepared file."""

    mode: Mode = "users"
    """`users`: a connection each. `bulk`: many in a call."""
    rate: float | None = None
    """Users a second, in an open loop; None for a closed one."""
    concurrency: int | None = None
    """In a closed loop, users (or calls, in bulk) under way at once, over all processes; None for
    64 users, or 4 calls a process."""
    pattern: Pattern = "steady"
    burst: int = 100
    """Users who arrive at once, of the pattern `burst`."""
    ramp: Ramp | None = None
    processes: int = 1
    """That send."""
    patience: float = 120.0
    """Seconds for which a submission is made again while services do not answer."""
    fetch_task: bool = False
    """In `users` mode, let each fetch the task before it submits, as a device does."""
    seed: int | None = None
    """Of people, behaviours and moments; what is sealed is never repeated."""

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise PlanError(f"the mode is {self.mode!r}; it must be one of {', '.join(MODES)}")
        if self.pattern not in PATTERNS:
            raise PlanError(f"the pattern is {self.pattern!r}; it must be {' or '.join(PATTERNS)}")
        if self.rate is not None and not 0 < self.rate < math.inf:
            raise PlanError(f"the rate is {self.rate:g}; it must be above 0 and finite")
        if self.rate is not None and self.ramp is not None:
            raise PlanError("give a rate or a ramp, not both")
        if self.pattern == "burst" and self.rate is None and self.ramp is None:
            raise PlanError("bursts need a rate: without one, users follow each other's answers")
        for name, value, most in (
            ("concurrency", self.at_once, 100_000),
            ("burst", self.burst, MAX_USERS),
            ("processes", self.processes, MAX_PROCESSES),
        ):
            if not 1 <= value <= most:
                raise PlanError(f"{name} is {value}; it must lie between 1 and {most}")
        if not 0 <= self.patience < math.inf:
            raise PlanError(f"patience is {self.patience:g}; it must be at least 0 and finite")
        if self.fetch_task and self.mode == "bulk":
            raise PlanError("in bulk nobody fetches the task; leave fetch-task out")

    @property
    def at_once(self) -> int:
        """Users or calls under way at once, in a closed loop."""
        if self.concurrency is not None:
            return self.concurrency
        return (
            _USERS_AT_ONCE if self.mode == "users" else CallKind.BULK.value.share * self.processes
        )

    @property
    def is_open(self) -> bool:
        """Users come by a schedule, and not when others are through."""
        return self.rate is not None or self.ramp is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """Who the simulated users are."""

    n_users: int
    shares: Mapping[Behaviour, float] = field(default_factory=dict)
    """Of those who misbehave."""

    def __post_init__(self) -> None:
        if not 1 <= self.n_users <= MAX_USERS:
            raise PlanError(f"users is {self.n_users}; it must lie between 1 and {MAX_USERS}")
        check_shares(self.shares)
