"""The plan of a load run: its users, their behaviours and arrivals. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.runtime.access import CallKind
from shuffledp.deploy.datasets.names import IPUMS_1940_CITY
from shuffledp.deploy.load.behaviour import MISBEHAVING, Behaviour, assign
from shuffledp.deploy.load.scenario import LoadScenario, Ramp, Sending

TargetKind = Literal["services", "local", "sink"]

_DEFAULT_USERS: Final = 1000
_USERS_IN_FLIGHT: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan(Sending):
    """The simulated users, and how they arrive and send; without rates, in a closed loop."""

    n_users: int = _DEFAULT_USERS
    dataset: str = IPUMS_1940_CITY
    seed: int | None = None
    shares: Mapping[Behaviour, float] = field(default_factory=dict)
    ramp: Ramp | None = None

    @classmethod
    def of(cls, scenario: LoadScenario, people: int | None = None) -> Self:
        """Return the plan of a scenario, for a file of so many people."""
        ramp, shares = scenario.ramp, vars(scenario.misbehaving)
        climbing = 0 if ramp is None else sum(count for _, count in ramp.phases) + 1
        return cls(
            **vars(scenario.sending),
            n_users=scenario.people.users or climbing or people or _DEFAULT_USERS,
            dataset=scenario.people.dataset,
            seed=scenario.people.seed,
            shares={kind: shares[kind.name.lower()] for kind in MISBEHAVING},
            ramp=ramp,
        )

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
