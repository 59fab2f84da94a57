"""
Find the design with the least error for a privacy guarantee, for every kind of data. Pure.

A plan states exact privacy figures and exact variances; approximations only guide the search.
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

_ILLUSTRATION: Final = "an illustration, not a guarantee: half of all users collude"
_RELAXATION: Final = 1.1
_BINDING_RATIO: Final = 0.998
"""A constraint binds if ten percent more of it lowers the error by more than .2 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The best design with its guarantees, and the best design of every other protocol."""

    best: Design
    runners_up: tuple[Design, ...]
    central_guarantee: Guarantee
    """The central guarantee with the assumed share of honest users."""
    guarantees: tuple[Guarantee, ...]
    """One guarantee per coalition, for n_min users and all rounds together."""
    binding: tuple[str, ...] = ()
    """Names of the constraints that limit the error; for items only."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Reason for each protocol without a design, by name; empty for items."""

    @property
    def target(self) -> Requirements:
        """The requirements that the plan meets."""
        return self.best.target


def plan(target: Requirements) -> Plan:
    """
    Find the design with the least mean squared error that meets every requirement.

    Raises PlanError if there is none, TaskError if the requirements break a rule of tasks. Cost:
    about thirty evaluations of δ, seconds at a million users; for other kinds than items, about ten
    tasks per protocol, tenths of a second each.
    """
    designs: Sequence[Design]
    binding, left_out = tuple[str, ...](), dict[str, str]()
    if target.kind == "categorical":
        frontier, designs = search_protocols(target)
        binding = _binding(frontier)
        if designs[0].mse > target.max_mse:
            raise _infeasible(frontier, designs[0], binding)
    else:
        designs, left_out = _value_designs(target)
    parameters = designs[0].parameters
    central_guarantee = claimed_guarantee(parameters, target.n_min)
    first, *others = guarantees_under(parameters, target.n_min)
    if first == central_guarantee and target.n_min > 1:
        half = dataclasses.replace(parameters, assumed_honest_fraction=0.5)
        row = claimed_guarantee(half, target.n_min)
        others.insert(0, dataclasses.replace(row, assumptions=(_ILLUSTRATION, *row.assumptions)))
    return Plan(
        best=designs[0],
        runners_up=tuple(designs[1:]),
        central_guarantee=central_guarantee,
        guarantees=(first, *others),
        binding=binding,
        left_out=left_out,
    )


def _value_designs(target: Requirements) -> tuple[list[ValueDesign], dict[str, str]]:
    """Return the designs, unbiased ones first, then by error; and the other protocols' errors."""
    designs, errors = list[ValueDesign](), dict[str, PlanError | TaskError]()
    for name in protocols_of(target.kind):
        try:
            designs.append(value_design(name, target))
        except (PlanError, TaskError) as error:  # for example too many numbers to project
            errors[name] = error
    if not designs:
        raise next(iter(errors.values()))
    designs.sort(key=lambda design: (design.biased, design.mse))
    return designs, {name: str(error) for name, error in errors.items()}


def _binding(frontier: Frontier) -> tuple[str, ...]:
    """Return the names of the constraints that limit the approximate error."""
    target, now = frontier.target, approximate_mse(frontier)
    most = {"central_epsilon": MAX_EPSILON}
    if target.trust != "none" and math.isfinite(target.messages_cap):
        most["messages_cap"] = math.inf
    if target.local_cap < MAX_LOCAL_EPSILON:
        most["local_cap"] = MAX_LOCAL_EPSILON
    relaxed = {name: min(_RELAXATION * getattr(target, name), most[name]) for name in most}
    return tuple(
        name.replace("_", " ")
        for name, value in relaxed.items()
        if approximate_mse(frontier, **{name: value}) < _BINDING_RATIO * now
    )


def _infeasible(frontier: Frontier, best: Design, binding: tuple[str, ...]) -> PlanError:
    """Return the error for an unreachable max_mse, with the least error and the users needed."""
    users = _enough_users(frontier)
    remedy = f"about {users:,} users are enough" if users else "more users alone are not enough"
    return PlanError(
        f"a mean squared error of {best.target.max_mse:g} cannot be reached: the least is "
        f"{best.mse:.3g}, by {best.protocol}, limited by "
        f"{', '.join(binding) or 'the number of users'}; {remedy}"
    )


def _enough_users(frontier: Frontier) -> int:
    """Approximate the fewest users for which max_mse can be reached; 0 if no number is enough."""
    target = frontier.target
    low, high = target.n_users, MAX_USERS

    def enough(users: int) -> bool:
        n_min = target.n_min * users // target.n_users
        return approximate_mse(frontier, n_users=users, n_min=n_min) <= target.max_mse

    if not enough(high):
        return 0
    while high - low > max(1, low // 100):
        middle = math.ceil(math.sqrt(low * high))
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
