"""
Find the design with the least error that keeps a guarantee, for every kind of value. Pure.

Every figure of a plan is the exact accountant's or an exact variance; approximations only guide
the search.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from common.accounting.epsilon_search import MAX_EPSILON
from common.accounting.guarantees import claimed_guarantee, guarantees_under
from common.errors import PlanError, TaskError
from common.messages.guarantee import Guarantee
from common.protocols import protocols_of
from common.task.task import MAX_LOCAL_EPSILON, MAX_USERS
from deploy.planning.design import Design
from deploy.planning.frontier import Frontier
from deploy.planning.requirements import Requirements
from deploy.planning.search import approximate_mse, search_protocols
from deploy.planning.value_design import ValueDesign, value_design

_ILLUSTRATION: Final = "for illustration, not promised: if half of all users colluded"
_RELAXED: Final = 1.1
_MATTERS: Final = 0.998
"""A constraint binds if a tenth more of it would take the error below this share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The best design and the best of every other protocol, with the guarantees of the best."""

    best: Design
    runners_up: tuple[Design, ...]
    promise: Guarantee
    """The guarantee that was asked for: that of the users assumed honest."""
    guarantees: tuple[Guarantee, ...]
    """For n_min users and all rounds together, one a coalition."""
    binding: tuple[str, ...] = ()
    """Names of the constraints that, relaxed, would lower the error; known for items only."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Why there is no design of a protocol, by its name; for other kinds than items."""

    @property
    def wanted(self) -> Requirements:
        """The requirements."""
        return self.best.wanted


def plan(wanted: Requirements) -> Plan:
    """
    Find the design with the least mean squared error that keeps every requirement.

    Raises PlanError if there is none, TaskError if the requirements break a rule of tasks of the
    kind. Cost: some thirty evaluations of δ, seconds at a million users; for other kinds than items
    some ten tasks a protocol, tenths of a second each.
    """
    found: Sequence[Design]
    binding, left_out = tuple[str, ...](), dict[str, str]()
    if wanted.kind == "categorical":
        frontier, found = search_protocols(wanted)
        binding = _binding(frontier)
        if found[0].mse > wanted.max_mse:
            raise _infeasible(frontier, found[0], binding)
    else:
        found, left_out = _value_designs(wanted)
    terms = found[0].terms
    promise = claimed_guarantee(terms, wanted.n_min)
    first, *others = guarantees_under(terms, wanted.n_min)
    if first == promise and wanted.n_min > 1:
        half = dataclasses.replace(terms, assumed_honest_fraction=0.5)
        row = claimed_guarantee(half, wanted.n_min)
        others.insert(0, dataclasses.replace(row, assumptions=(_ILLUSTRATION, *row.assumptions)))
    return Plan(
        best=found[0],
        runners_up=tuple(found[1:]),
        promise=promise,
        guarantees=(first, *others),
        binding=binding,
        left_out=left_out,
    )


def _value_designs(wanted: Requirements) -> tuple[list[ValueDesign], dict[str, str]]:
    """Return the designs, unbiased ones first, then by error; and why protocols are left out."""
    found, errors = list[ValueDesign](), dict[str, PlanError | TaskError]()
    for name in protocols_of(wanted.kind):
        try:
            found.append(value_design(name, wanted))
        except (PlanError, TaskError) as error:  # such as too many numbers to be projected
            errors[name] = error
    if not found:
        raise next(iter(errors.values()))
    found.sort(key=lambda design: (design.biased, design.mse))
    return found, {name: str(error) for name, error in errors.items()}


# --- what limits the error ------------------------------------------------------------------------


def _binding(frontier: Frontier) -> tuple[str, ...]:
    """Name the constraints of which a tenth more would lower the approximate error."""
    wanted, now = frontier.wanted, approximate_mse(frontier)
    most = {"central_epsilon": MAX_EPSILON}
    if wanted.trust != "none" and math.isfinite(wanted.messages_cap):
        most["messages_cap"] = math.inf
    if wanted.local_cap < MAX_LOCAL_EPSILON:
        most["local_cap"] = MAX_LOCAL_EPSILON
    relaxed = {name: min(_RELAXED * getattr(wanted, name), most[name]) for name in most}
    return tuple(
        name.replace("_", " ")
        for name, value in relaxed.items()
        if approximate_mse(frontier, **{name: value}) < _MATTERS * now
    )


def _infeasible(frontier: Frontier, best: Design, binding: tuple[str, ...]) -> PlanError:
    """Return the error that names the best error, what limits it, and how many users would do."""
    users = _enough_users(frontier)
    remedy = f"about {users:,} users would do" if users else "more users alone would not do"
    return PlanError(
        f"a mean squared error of {best.wanted.max_mse:g} cannot be reached: the best is "
        f"{best.mse:.3g}, by {best.protocol}; what holds it back: "
        f"{', '.join(binding) or 'the number of users'}; {remedy}"
    )


def _enough_users(frontier: Frontier) -> int:
    """Approximate the fewest users that reach the wanted error; 0 if no number does."""
    wanted = frontier.wanted
    low, high = wanted.n_users, MAX_USERS

    def enough(users: int) -> bool:
        n_min = wanted.n_min * users // wanted.n_users
        return approximate_mse(frontier, n_users=users, n_min=n_min) <= wanted.max_mse

    if not enough(high):
        return 0
    while high - low > max(1, low // 100):
        middle = math.ceil(math.sqrt(low * high))
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
