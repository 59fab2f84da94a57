"""Requirements from which the planner chooses a task's parameters. Pure."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field
from numbers import Integral
from typing import Any, Final, Literal, Self

from shuffledp.common.accounting.epsilon_search import MAX_EPSILON
from shuffledp.common.errors import UsageError
from shuffledp.common.limits import MAX_LOCAL_EPSILON, MAX_USERS
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.hashing.finite_field import MAX_SEEDS
from shuffledp.common.mechanisms.hashing.local_hashing import REPORT_DTYPE as HASHED_REPORT
from shuffledp.common.messages.submission import PLAIN_REPORT
from shuffledp.common.protocols import Kind
from shuffledp.common.task.domain_spec import group_count
from shuffledp.common.task.draft import RelayDraft, TaskDraft
from shuffledp.common.task.kinds import KINDS, check_options
from shuffledp.common.task.shuffler_spec import ItemNoise
from shuffledp.common.task.specs import MAX_DOMAIN_SIZE
from shuffledp.common.task.task import MIN_COMPOSED_DELTA, MIN_DELTA, envelope_bytes, honest_share

Prefix = Literal["average", "worst"]
TrustLevel = Literal["shuffler-dummies", "anonymity", "none"]
Accounting = Literal["published", "tight"]
Progress = Callable[[str], None]
"""Function that receives the name of the protocol to be planned next."""
MIN_CENTRAL_EPSILON: Final = 1e-6
"""Least ε; below it, reports carry no usable signal with any number of users."""
MIN_VALUE_EPSILON: Final = 0.01
"""Least local ε that a search tries for kinds other than items."""
MAX_ROUNDS: Final = 10_000
USUAL_MESSAGES: Final = 5.0
"""Default cap on messages per user, for protocols that can trade messages for accuracy."""
UNUSED_KEY: Final = bytes(31) + b"\x09"
"""Placeholder for public keys in tasks that encrypt nothing."""
RELAY_KEY: Final = bytes(31) + b"\x08"
"""Placeholder for the key of a second shuffler."""
Noises = tuple[ItemNoise, ...]
"""The noise of a shuffler on the items of each view."""
_UNUSED_DEADLINE: Final = 4_000_000_000
_ROUNDING: Final = 1e-9
"""Amount by which the sum of decimal shares may exceed 1."""
_WHOLE: Final = frozenset({"n_users", "n_min", "domain_size", "rounds"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """Number of users, domain, target guarantee and caps; checked on construction."""

    kind: Kind = "categorical"
    n_users: int
    """Number of users for which the error is predicted."""
    n_min: int
    """Number of users for which the guarantee must hold."""
    domain_size: int
    """Number of items, of a vector's numbers, or of keys; 1 for a number or for texts."""
    central_epsilon: float
    """Target ε against the analyzer, for all rounds together."""
    delta: float
    local_cap: float = math.inf
    """Largest local ε per answer; infinite for no cap."""
    messages_cap: float = math.inf
    """Largest expected number of messages per user, dummies included."""
    bytes_cap: float = math.inf
    """Largest average number of bytes of a submission."""
    influence_cap: float = math.inf
    """Most users by which one dishonest submission may move an item's count."""
    rounds: int = 1
    """Number of tasks that the same users answer."""
    honest_fraction: float = 1.0
    trust: TrustLevel = "anonymity"
    """What the shuffler is trusted with: permuting and adding dummies, permuting, or nothing."""
    head: tuple[float, ...] = (0.05,)
    """Expected shares of the most frequent values."""
    most_seeds: int = MAX_SEEDS
    """Largest number of seeds of a hash family; refinement takes minutes for 2^24 seeds."""
    shufflers: int = 1
    """Number of shufflers; two must each add noise, and reports have no local noise."""
    coalition_epsilon: float = 4.0
    """Target ε of a task against the analyzer with either of two shufflers."""
    max_mse: float = math.inf
    """Largest useful mean squared error of a share; of ordered buckets, of a prefix."""
    protocol: str = ""
    """The only protocol to plan; empty for all of the kind."""
    accounting: Accounting = "tight"
    """Whether the papers' own bounds, or the exact accountant, must meet the target."""
    useful_mse: float = math.inf
    """Error of a share from which on another family's design is better."""
    prefix: Prefix = "average"
    """The prefix of ordered buckets whose error counts."""
    margin_share: float = 0.1
    """Share of μ² for tables of one attribute beside those of two."""
    draft_fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the task's draft, such as labels, a population or the range of numbers."""

    def __post_init__(self) -> None:
        """Raise UsageError if a field breaks a rule."""
        items = KINDS[self.kind].histogram
        optional = [each for each in dataclasses.fields(self) if each.default is not MISSING]
        given = [each.name for each in optional if getattr(self, each.name) != each.default]
        check_options(self.kind, {name: name for name in given})
        least_cap = MIN_CENTRAL_EPSILON if items else MIN_VALUE_EPSILON
        for name, value, least, most in (
            ("n_users", self.n_users, 1, MAX_USERS),
            ("n_min", self.n_min, 1, MAX_USERS),
            ("domain_size", self.domain_size, 2 if items else 1, MAX_DOMAIN_SIZE),
            ("rounds", self.rounds, 1, MAX_ROUNDS),
            ("central_epsilon", self.central_epsilon, MIN_CENTRAL_EPSILON, MAX_EPSILON),
            ("shufflers", self.shufflers, 1, 2),
            ("coalition_epsilon", self.coalition_epsilon, MIN_CENTRAL_EPSILON, MAX_EPSILON),
            ("local_cap", self.local_cap, least_cap, math.inf),
            ("messages_cap", self.messages_cap, 1, math.inf),
            ("bytes_cap", self.bytes_cap, envelope_bytes(PLAIN_REPORT.itemsize, 1), math.inf),
            ("influence_cap", self.influence_cap, 1, math.inf),
            ("max_mse", self.max_mse, 0, math.inf),
            ("margin_share", self.margin_share, 0.001, 0.999),
            ("honest_fraction", self.honest_fraction, 1 / MAX_USERS, 1),
        ):
            rule = f"{name} is {value:.10g}; it must lie between {least:.10g} and {most:.10g}"
            _require(least <= value <= most, rule)
            if name in _WHOLE:
                whole = isinstance(value, Integral)
                _require(whole, f"{name} is {value:.10g}; it must be a whole number")
        _require(
            self.shufflers == 1 or math.isinf(self.local_cap),
            f"local_cap is {self.local_cap:g}; with two shufflers reports have no local noise: "
            "leave it out, and use coalition_epsilon",
        )
        _require(
            self.n_min <= self.n_users,
            f"n_min is {self.n_min} and n_users is {self.n_users}; n_min must be at most n_users, "
            "because a smaller batch is never released",
        )
        least_delta = MIN_DELTA if self.rounds == 1 else MIN_COMPOSED_DELTA
        rounds = " over several rounds" * (self.rounds > 1)
        _require(
            least_delta <= self.delta < 1,
            f"delta is {self.delta:g}; it must be at least {least_delta:g}{rounds} and below 1",
        )
        _require(
            self.central_epsilon / self.rounds >= MIN_CENTRAL_EPSILON,
            f"each of {self.rounds} rounds has a central epsilon below {MIN_CENTRAL_EPSILON:g}; "
            f"rounds must be at most {math.floor(self.central_epsilon / MIN_CENTRAL_EPSILON)}",
        )
        _require(
            self.honest >= 1,
            f"an n_min of {self.n_min} and an honest_fraction of {self.honest_fraction:g} leave "
            f"no honest user; n_min must be at least {math.ceil(1 / self.honest_fraction)}",
        )
        shares, total = len(self.head), math.fsum(self.head)
        _require(
            shares <= self.domain_size and min(self.head, default=1) > 0 and total <= 1 + _ROUNDING,
            f"the head has {shares} shares that sum to {total:g}; at most {self.domain_size} "
            "shares are possible, each above 0, with a sum of at most 1",
        )

    def draft(self, protocol: str, **fields: Any) -> TaskDraft:  # noqa: ANN401  # fields of any type
        """Return a protocol's task draft with these fields and a placeholder key and deadline."""
        return TaskDraft(
            protocol=protocol,
            domain_size=self.domain_size // self.groups,
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
    def of_items(self) -> Self:
        """The same for flat histograms, which are planned for the least error of a share."""
        if not KINDS[self.kind].histogram:
            return self
        return dataclasses.replace(self, kind="categorical", prefix="average")

    @property
    def groups(self) -> int:
        """Number of groups of the breakdown, which the domain size includes."""
        return group_count(self.draft_fields.get("breakdown"))

    def prefix_error(self, variances: Vector) -> float:
        """Return the error that counts, the average or the worst, of a prefix for each bucket."""
        return float(variances.max() if self.prefix == "worst" else variances.mean())

    def most_messages(self, *, hashed: bool) -> float:
        """Return the most messages per user on average that the caps allow; may be infinite."""
        empty, one = (envelope_bytes(item_report(hashed=hashed), number) for number in (0, 1))
        return min(self.messages_cap, (self.bytes_cap - empty) / (one - empty))

    @property
    def honest(self) -> int:
        """Number of users assumed honest, ⌊n_min · honest_fraction⌋."""
        return honest_share(self.n_min, self.honest_fraction)

    @property
    def noise_cap(self) -> float:
        """Largest local ε of a noisy answer; at most a round's ε if the shuffler is not trusted."""
        cap = min(self.local_cap, MAX_LOCAL_EPSILON)
        if self.trust == "none":
            return min(cap, self.central_epsilon / self.rounds)
        return cap

    @property
    def may_be_plain(self) -> bool:
        """Whether reports without local noise are allowed."""
        return math.isinf(self.local_cap) and self.trust != "none"


def _require(holds: bool, rule: str) -> None:  # noqa: FBT001  # the condition to check
    if not holds:
        raise UsageError(rule)


def noise_fields(first: Noises, second: Noises = ()) -> dict[str, Any]:
    """Return a draft's fields for the noise of one shuffler, or of each of two, by view."""
    fields: dict[str, Any] = {"noises": first}
    if second:
        relay = RelayDraft(name="second", key=RELAY_KEY, noises=second)
        fields |= {"shuffler_name": "first", "relay": relay}
    return fields


def item_report(*, hashed: bool) -> int:
    """Return the bytes of a report of items before sealing."""
    return (HASHED_REPORT if hashed else PLAIN_REPORT).itemsize
