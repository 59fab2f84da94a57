"""Requirements on a task whose parameters are not yet known, for every kind of value. Pure."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from common.accounting.composition import MIN_COMPOSED_DELTA
from common.accounting.epsilon_search import MAX_EPSILON
from common.errors import PlanError
from common.mechanisms.hashing.finite_field import MAX_SEEDS
from common.protocols import Kind
from common.task.draft import TaskDraft
from common.task.specs import MAX_DOMAIN_SIZE
from common.task.task import MAX_LOCAL_EPSILON, MAX_USERS, MIN_DELTA, honest_share

Trust = Literal["shuffler-dummies", "anonymity", "none"]

MIN_EPSILON: Final = 1e-6
"""Below it reports carry no usable signal, however many users there are."""
MIN_VALUE_EPSILON: Final = 0.01
"""The smallest local ε that a search tries for other kinds than items."""
MAX_ROUNDS: Final = 10_000
UNUSED_KEY: Final = bytes(31) + b"\x09"
"""Stands for a task's public keys where nothing is sealed."""
_UNUSED_DEADLINE: Final = 4_000_000_000
_ROUNDING: Final = 1e-9
"""Decimal shares may add to this much more than 1."""
_OF_ITEMS_ONLY: Final = ("rounds", "messages_cap", "trust", "head", "max_mse")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """Users, domain, guarantee and caps; an instance that exists breaks no rule of this file."""

    kind: Kind = "categorical"
    n_users: int
    """The error is predicted for these."""
    n_min: int
    """The guarantee must hold for this many."""
    domain_size: int
    """Items, the numbers of a vector, or keys; 1 for a number or for texts."""
    central_epsilon: float
    """For all rounds together."""
    delta: float
    local_cap: float = math.inf
    """Largest local ε of one answer; infinite for no cap."""
    messages_cap: float = math.inf
    """Most messages expected of a user, the own report included."""
    rounds: int = 1
    """Number of tasks that the same users answer."""
    honest_fraction: float = 1.0
    trust: Trust = "anonymity"
    """The shuffler's trusted duties: permuting and dummies, permuting, or nothing."""
    head: tuple[float, ...] = (0.05,)
    """Expected shares of the most frequent values."""
    most_seeds: int = MAX_SEEDS
    """Seeds that a hash family may have: refining the answers to 2^24 takes minutes."""
    max_mse: float = math.inf
    """Largest mean squared error of a share that is of use."""
    draft_fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the task's draft, such as labels, a population or the range of numbers."""

    def __post_init__(self) -> None:
        """Check every field; raise PlanError if one breaks a rule."""
        items = self.kind == "categorical"
        for each in dataclasses.fields(self):
            given = each.name in _OF_ITEMS_ONLY and getattr(self, each.name) != each.default
            option = each.name.replace("_", "-")
            _require(
                items or not given, f"{option} is for categorical data; this is {self.kind} data"
            )
        least_cap = MIN_EPSILON if items else MIN_VALUE_EPSILON
        for name, value, least, most in (
            ("users", self.n_users, 1, MAX_USERS),
            ("n_min", self.n_min, 1, MAX_USERS),
            ("the domain size", self.domain_size, 2 if items else 1, MAX_DOMAIN_SIZE),
            ("rounds", self.rounds, 1, MAX_ROUNDS),
            ("the central epsilon", self.central_epsilon, MIN_EPSILON, MAX_EPSILON),
            ("the local cap", self.local_cap, least_cap, math.inf),
            ("the messages cap", self.messages_cap, 1, math.inf),
            ("the honest fraction", self.honest_fraction, 1 / MAX_USERS, 1),
        ):
            rule = f"{name} is {value:.10g}; it must lie between {least:.10g} and {most:.10g}"
            _require(least <= value <= most, rule)
        _require(
            self.n_min <= self.n_users,
            f"n_min is {self.n_min} and users is {self.n_users}; "
            "a batch of fewer than n_min users is never released",
        )
        least_delta = MIN_DELTA if self.rounds == 1 else MIN_COMPOSED_DELTA
        rounds = " over several rounds" * (self.rounds > 1)
        _require(
            least_delta <= self.delta < 1,
            f"delta is {self.delta:g}; it must be at least {least_delta:g}{rounds} and below 1",
        )
        _require(
            self.central_epsilon / self.rounds >= MIN_EPSILON,
            f"{self.rounds} rounds leave each a central epsilon below {MIN_EPSILON:g}; "
            f"{math.floor(self.central_epsilon / MIN_EPSILON)} rounds would do",
        )
        _require(
            self.honest >= 1,
            f"an n_min of {self.n_min} and an honest fraction of {self.honest_fraction:g} leave "
            f"no honest user to hide; an n_min of {math.ceil(1 / self.honest_fraction)} would do",
        )
        shares, total = len(self.head), math.fsum(self.head)
        _require(
            shares <= self.domain_size and min(self.head, default=1) > 0 and total <= 1 + _ROUNDING,
            f"the head has {shares} shares that add to {total:g}; each must be above 0, there may "
            f"be {self.domain_size}, and they may add to 1",
        )

    def draft(self, protocol: str, **fields: Any) -> TaskDraft:  # noqa: ANN401  # a draft's
        """Return the draft of a task for a protocol; the fields are further ones of the draft."""
        return TaskDraft(
            protocol=protocol,
            domain_size=self.domain_size,
            delta=self.delta,
            n_min=self.n_min,
            target_size=self.n_users,
            assumed_honest_fraction=self.honest_fraction,
            shuffler_key=UNUSED_KEY,
            deadline=_UNUSED_DEADLINE,
            **fields,
            **self.draft_fields,
        )

    @property
    def honest(self) -> int:
        """Users that the guarantee may count on: ⌊n_min · fraction⌋."""
        return honest_share(self.n_min, self.honest_fraction)

    @property
    def noise_cap(self) -> float:
        """Largest local ε of an answer with noise; without a trusted shuffler a round's whole ε."""
        cap = min(self.local_cap, MAX_LOCAL_EPSILON)
        if self.trust == "none":
            return min(cap, self.central_epsilon / self.rounds)
        return cap

    @property
    def may_be_plain(self) -> bool:
        """Whether reports without local noise are allowed."""
        return math.isinf(self.local_cap) and self.trust != "none"


def _require(holds: bool, rule: str) -> None:  # noqa: FBT001  # a condition
    if not holds:
        raise PlanError(rule)
