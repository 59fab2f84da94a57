"""What an operator wants of a task before its parameters are known."""

import math
from dataclasses import dataclass
from typing import Final, Literal

from common.accounting.composition import MIN_COMPOSED_DELTA
from common.accounting.epsilon_search import MOST_EPSILON
from common.errors import PlanError
from common.mechanisms.hashing.finite_field import MAX_SEEDS
from common.task.specs import MAX_DOMAIN_SIZE
from common.task.task import MAX_LOCAL_EPSILON, MAX_USERS, MIN_DELTA, honest_share

Trust = Literal["shuffler-dummies", "anonymity", "none"]

MIN_EPSILON: Final = 1e-6
"""Below it reports carry no signal that any number of users would bring out."""
MAX_ROUNDS: Final = 10_000
_ROUNDING: Final = 1e-9
"""By which shares that are decimals may add to more than 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Users, domain, guarantee and caps. A value that exists contradicts no rule of this file."""

    n_users: int
    n_min: int
    """The guarantee must hold for this many; the error is predicted for n_users."""
    domain_size: int
    central_epsilon: float
    """For all rounds together."""
    delta: float
    local_cap: float = math.inf
    """The most local ε that one answer may have; infinite for no cap."""
    messages_cap: float = math.inf
    """The most reports that a user may be expected to send, the own one included."""
    rounds: int = 1
    """Tasks that the same users answer."""
    honest_fraction: float = 1.0
    trust: Trust = "anonymity"
    """What the shuffler is trusted with: permuting and dummies, permuting, or nothing."""
    head: tuple[float, ...] = (0.05,)
    """Expected shares of the most frequent values."""
    most_seeds: int = MAX_SEEDS
    """Seeds that a hash family may have: refining the answers to 2^24 takes minutes."""
    max_mse: float = math.inf
    """The largest mean squared error of a share that is of use."""

    def __post_init__(self) -> None:
        _within("users", self.n_users, 1, MAX_USERS)
        _within("n_min", self.n_min, 1, MAX_USERS)
        if self.n_min > self.n_users:
            raise PlanError(
                f"n_min is {self.n_min} and users is {self.n_users}; "
                "a batch of fewer than n_min users is never released"
            )
        _within("the domain size", self.domain_size, 2, MAX_DOMAIN_SIZE)
        _within("rounds", self.rounds, 1, MAX_ROUNDS)
        self._check_privacy()
        if not self.messages_cap >= 1:
            raise PlanError(
                f"the messages cap is {self.messages_cap:g}; it must be at least 1, "
                "because every user sends the own report"
            )
        self._check_error()

    def _check_privacy(self) -> None:
        if not MIN_EPSILON <= self.central_epsilon <= MOST_EPSILON:
            raise PlanError(
                f"the central epsilon is {self.central_epsilon:g}; "
                f"it must lie between {MIN_EPSILON:g} and {MOST_EPSILON:g}"
            )
        if not MIN_DELTA <= self.delta < 1:
            raise PlanError(
                f"delta is {self.delta:g}; it must be at least {MIN_DELTA:g} and below 1"
            )
        if self.rounds > 1 and self.delta < MIN_COMPOSED_DELTA:
            raise PlanError(
                f"delta is {self.delta:g}; over several rounds it must be at least "
                f"{MIN_COMPOSED_DELTA:g}"
            )
        if not self.local_cap > 0:
            raise PlanError(f"the local cap is {self.local_cap:g}; it must be above 0")
        if self.local_cap < MIN_EPSILON:
            raise PlanError(
                f"the local cap is {self.local_cap:g}; reports carry a local epsilon of "
                f"{MIN_EPSILON:g} or more, so a local cap of {MIN_EPSILON:g} would do"
            )
        if self.central_epsilon / self.rounds < MIN_EPSILON:
            raise PlanError(
                f"{self.rounds} rounds leave each a central epsilon below {MIN_EPSILON:g}; "
                f"{math.floor(self.central_epsilon / MIN_EPSILON)} rounds would do"
            )
        if not 0 < self.honest_fraction <= 1:
            raise PlanError(
                f"the honest fraction is {self.honest_fraction:g}; it must be above 0 and at most 1"
            )
        if self.honest < 1:
            raise PlanError(
                f"an n_min of {self.n_min} and an honest fraction of {self.honest_fraction:g} "
                "leave no honest user to hide; an n_min of "
                f"{math.ceil(1 / self.honest_fraction)} would do"
            )

    def _check_error(self) -> None:
        if not self.max_mse > 0:
            raise PlanError(f"the largest error is {self.max_mse:g}; it must be above 0")
        if len(self.head) > self.domain_size:
            raise PlanError(
                f"the head has {len(self.head)} shares; the domain has {self.domain_size} values"
            )
        if not all(0 < share <= 1 for share in self.head):
            raise PlanError("a share of the head must be above 0 and at most 1")
        if math.fsum(self.head) > 1 + _ROUNDING:
            raise PlanError(
                f"the shares of the head add to {math.fsum(self.head):g}; they may add to 1"
            )

    @property
    def honest(self) -> int:
        """Users whom the guarantee may count on: ⌊n_min · fraction⌋."""
        return honest_share(self.n_min, self.honest_fraction)

    @property
    def noise_cap(self) -> float:
        """The most local ε with noise that one answer may have: all of it if nobody is trusted."""
        cap = min(self.local_cap, MAX_LOCAL_EPSILON)
        if self.trust == "none":
            return min(cap, self.central_epsilon / self.rounds)
        return cap

    @property
    def may_be_plain(self) -> bool:
        """Whether reports without local noise are allowed."""
        return math.isinf(self.local_cap) and self.trust != "none"


def _within(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise PlanError(f"{name} is {value}; it must lie between {least} and {most}")
