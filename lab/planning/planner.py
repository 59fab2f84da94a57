"""
Find the design with the least error for a privacy guarantee, for every kind of data. Pure.

A plan states exact privacy figures and exact variances; approximations only guide the search.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from typing import Final, NamedTuple

from shuffledp.common.accounting.epsilon_search import MAX_EPSILON
from shuffledp.common.accounting.guarantees import claimed_guarantee, guarantees_under
from shuffledp.common.errors import AccountingError, PlanError, TaskError
from shuffledp.common.limits import MAX_LOCAL_EPSILON, MAX_USERS
from shuffledp.common.messages.guarantee import Guarantee
from shuffledp.common.protocols import PROTOCOLS, Kind, protocols_of
from shuffledp.lab.planning.design import Design, ItemDesign, within_caps
from shuffledp.lab.planning.digit_design import digit_design
from shuffledp.lab.planning.digit_noise import noisy_digit_design
from shuffledp.lab.planning.frontier import Frontier
from shuffledp.lab.planning.ordered_design import ordered_design, ordered_designs, quantiles_beside
from shuffledp.lab.planning.published_design import published_design
from shuffledp.lab.planning.requirements import Progress, Requirements
from shuffledp.lab.planning.search import approximate_mse, search_protocols, tight_design
from shuffledp.lab.planning.signed_design import approximate_signed_mse
from shuffledp.lab.planning.table_design import table_design
from shuffledp.lab.planning.value_design import ValueDesign, value_design

_ILLUSTRATION: Final = "an illustration, not a guarantee: half of all users collude"
_RELAXATION: Final = 1.1
_BINDING_RATIO: Final = 0.998
"""A constraint binds if raising it by ten percent lowers the error by more than 0.2 %."""
_MAX_MESSAGES: Final = 10_000.0
_MAX_BYTES: Final = 1e6
_SEARCH_RATIO: Final = 1.01
_REMEDIES: Final = {
    "central_epsilon": "a central epsilon of about {:,.10g}",
    "messages_cap": "about {:,.10g} messages per user",
    "bytes_cap": "about {:,.0f} bytes per user",
    "local_cap": "a local cap of about {:,.10g}",
    "n_users": "about {:,.0f} users",
}
"""Descriptions of the changes that may each reach max_mse alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The best design with its guarantees, and the best design of every other protocol."""

    best: Design
    runners_up: tuple[Design, ...]
    central_guarantee: Guarantee
    """The central guarantee with the assumed share of honest users."""
    binding: tuple[str, ...] = ()
    """Names of the constraints that limit the error; for items only."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Reason why a protocol has no design, by name; of those for items, only for `signed`."""
    two_shufflers: Design | None = None
    """The best design with two shufflers; None if there is none."""

    @property
    def target(self) -> Requirements:
        """The requirements that the plan meets."""
        return self.best.target

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """
        One guarantee per coalition, for n_min users and all rounds together.

        Cost: up to five searches for ε, tenths of a second each; seconds for a hierarchy.
        """
        parameters, n_min = self.best.parameters, self.target.n_min
        first, *others = guarantees_under(parameters, n_min)
        if first == self.central_guarantee and n_min > 1:
            half = dataclasses.replace(parameters, assumed_honest_fraction=0.5)
            row = claimed_guarantee(half, n_min)
            row = dataclasses.replace(row, assumptions=(_ILLUSTRATION, *row.assumptions))
            others.insert(0, row)
        return (first, *others)


def plan(target: Requirements, progress: Progress = lambda _: None) -> Plan:
    """
    Find the design with the least mean squared error that meets every requirement.

    Two shufflers are only listed unless they are required.
    `progress` receives the name of each protocol before it is planned.

    Raises PlanError if there is none, TaskError if the requirements break a rule of tasks. Cost:
    about thirty evaluations of δ, seconds at a million users; for kinds other than items, about ten
    tasks per protocol, tenths of a second each.
    """
    chains = _two_shufflers(target)
    if target.shufflers > 1:
        claims = chains[0].task.central_epsilon, chains[0].task.coalition_epsilon
        targets = target.central_epsilon, target.coalition_epsilon
        reached = [claims[i] >= _BINDING_RATIO * targets[i] for i in (0, 1)]
        names = compress(("central epsilon", "coalition epsilon"), reached)
        found: _Found = chains, {}, tuple(names)
    else:
        found = family_of(target.kind).search(target, progress)
    designs, left_out, binding = found
    return Plan(
        best=designs[0],
        runners_up=tuple(designs[1:]),
        central_guarantee=claimed_guarantee(designs[0].parameters, target.n_min),
        binding=binding,
        left_out=left_out,
        two_shufflers=chains[0] if chains else None,
    )


def _two_shufflers(target: Requirements) -> list[Design]:
    """Return designs with two shufflers, the best one first; raise if required and impossible."""
    refusal: Exception = PlanError("two shufflers add dummies: trust must not be none")
    designs, names = list[Design](), protocols_of(target.kind) * (target.trust != "none")
    for name in (name for name in names if PROTOCOLS[name].chained):
        try:
            wanted = dataclasses.replace(target, shufflers=2, local_cap=math.inf)
            designs.append(family_of(target.kind).tight(name, wanted))
        except (AccountingError, PlanError, TaskError) as error:
            refusal = error
    if not designs and target.shufflers > 1:
        raise refusal
    return sorted(designs, key=lambda design: design.mse)


def least_errors(found: Plan, usual_cap: float) -> dict[str, float]:
    """
    Return the least error with the local cap, or else `usual_cap`, without, and of two shufflers.

    It is infinite without a design. Cost: that of a plan.
    """
    target, two = found.target, found.two_shufflers
    capped = usual_cap if math.isinf(target.local_cap) else target.local_cap

    def least(cap: float) -> float:
        if cap == target.local_cap and target.shufflers == 1:
            return found.best.mse
        other = dataclasses.replace(target, shufflers=1, local_cap=cap, max_mse=math.inf)
        with contextlib.suppress(PlanError, TaskError):
            return family_of(target.kind).search(other, lambda _: None)[0][0].mse
        return math.inf

    with_cap = least(capped)  # allowed without it too, and the rounding of weights may favour it
    errors = {"with_local_cap": with_cap, "without_local_cap": min(with_cap, least(math.inf))}
    return {"local_cap": capped, **errors, "two_shufflers": two.mse if two else math.inf}


_Found = tuple[Sequence[Design], Mapping[str, str], tuple[str, ...]]
"""Designs, the best one first, why other protocols have none, and the binding constraints."""


def _item_designs(target: Requirements, progress: Progress) -> _Found:
    frontier, designs, left_out = search_protocols(target, progress)
    binding = _binding(frontier, designs[0])
    if designs[0].mse > target.max_mse:
        raise _infeasible(frontier, designs[0], binding)
    return designs, left_out, binding


def _bucket_designs(target: Requirements, progress: Progress) -> _Found:
    designs, left_out = ordered_designs(target, progress)
    if designs[0].mse > target.max_mse:
        raise PlanError(
            f"a mean squared error of {target.max_mse:g} cannot be reached: the least is "
            f"{designs[0].mse:.3g}, by {designs[0].protocol}; raise users or epsilon"
        )
    return designs, left_out, ()


def _value_designs(
    find: Callable[[str, Requirements], ValueDesign], target: Requirements, progress: Progress
) -> _Found:
    """Return designs by bias, then error, and the other protocols' failures; raise if all fail."""
    designs, errors = list[ValueDesign](), dict[str, Exception]()
    for name in protocols_of(target.kind):
        progress(name)
        try:
            designs.append(within_caps(find(name, target)))
        except (AccountingError, PlanError, TaskError) as error:  # such as too many dummies
            errors[name] = error
    if not designs:
        raise next(iter(errors.values()))
    designs.sort(key=lambda design: (design.biased, design.mse))
    return designs, {name: str(error) for name, error in errors.items()}, ()


def _value_design(protocol: str, target: Requirements) -> ValueDesign:
    """Return a protocol's design, by default with the largest local ε."""
    return _DIGIT_DESIGNS.get(protocol, value_design)(protocol, target)


_DIGIT_DESIGNS: Final[Mapping[str, Callable[[str, Requirements], ValueDesign]]] = {
    "digits": digit_design,
    "vector-digits": digit_design,
    "geo-digits": noisy_digit_design,
    "geo-vector-digits": noisy_digit_design,
}
"""Searches for designs without local noise, by protocol."""


def _binding(frontier: Frontier, best: ItemDesign) -> tuple[str, ...]:
    """
    Return the names of the constraints that limit the approximate error.

    Those of clusters are their finite caps; their predicted errors are compared.
    """
    target, signed = frontier.target, best.protocol == "signed"
    limits, approximate = _limits(target), partial(approximate_mse, frontier)
    if signed:
        caps = ("messages_cap", "bytes_cap", "influence_cap")
        limits = {name: math.inf for name in caps if math.isfinite(getattr(target, name))}
        approximate = partial(approximate_signed_mse, target)
    enough = _BINDING_RATIO * approximate()
    binding = [
        name.replace("_", " ")
        for name, most in limits.items()
        if approximate(**{name: min(_RELAXATION * getattr(target, name), most)}) < enough
    ]
    noisy = ["local cap"] if math.isfinite(best.local_epsilon) else []
    return ("central epsilon", *binding, *noisy) if signed else tuple(binding)


def _limits(target: Requirements) -> dict[str, float]:
    """Return the constraints that can be relaxed, each with its largest useful value."""
    limits = {"central_epsilon": MAX_EPSILON}
    if target.trust != "none" and math.isfinite(target.messages_cap):
        limits["messages_cap"] = max(_MAX_MESSAGES, 2 * target.messages_cap)
    if target.trust != "none" and math.isfinite(target.bytes_cap):
        limits["bytes_cap"] = max(_MAX_BYTES, 2 * target.bytes_cap)
    if target.local_cap < MAX_LOCAL_EPSILON:
        limits["local_cap"] = MAX_LOCAL_EPSILON
    return limits


def _infeasible(frontier: Frontier, best: ItemDesign, binding: tuple[str, ...]) -> PlanError:
    """Return the PlanError for an unreachable max_mse, with the least error and remedies."""
    limits = _limits(frontier.target) | {"n_users": float(MAX_USERS)}
    values = {name: _least_sufficient(frontier, name, most) for name, most in limits.items()}
    remedies = [_REMEDIES[name].format(value) for name, value in values.items() if value]
    return PlanError(
        f"a mean squared error of {best.target.max_mse:g} cannot be reached: the least is "
        f"{best.mse:.3g}, by {best.protocol}, limited by "
        f"{', '.join(binding) or 'the number of users'}; "
        + (f"{' or '.join(remedies)} would be enough" if remedies else "no single change is enough")
    )


def _least_sufficient(frontier: Frontier, name: str, most: float) -> float | None:
    """Approximate a constraint's least value that reaches max_mse, rounded up, or return None."""
    target = frontier.target

    def sufficient(value: float) -> bool:
        changes: dict[str, float] = {name: value}
        if name == "n_users":  # n_min grows with them
            users = math.ceil(value)
            changes = {"n_users": users, "n_min": target.n_min * users // target.n_users}
        return approximate_mse(frontier, **changes) <= target.max_mse

    low, high = float(getattr(target, name)), most
    if not sufficient(high):
        return None
    while high > _SEARCH_RATIO * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if sufficient(middle) else (middle, high)
    digit = 10.0 ** (math.floor(math.log10(high)) - 1)
    return min(math.ceil(high / digit) * digit, most)


class DesignFamily(NamedTuple):
    """How designs for a kind of value are found."""

    search: Callable[[Requirements, Progress], _Found]
    tight: Callable[[str, Requirements], Design]
    """Finds a protocol's design, by exact accounting."""
    published: Callable[[str, Requirements], Design]
    """Finds a protocol's design by its published bound, if the kind's protocols have any."""
    beside: Callable[[Requirements], str] = lambda _: ""
    """States what another kind of task would give beside the estimate; may be empty."""


_FAMILIES: Final[Mapping[Kind, DesignFamily]] = {
    "categorical": DesignFamily(_item_designs, tight_design, published_design),
    "ordered": DesignFamily(_bucket_designs, ordered_design, ordered_design),
    "mean": DesignFamily(
        partial(_value_designs, _value_design), _value_design, _value_design, quantiles_beside
    ),
    "table": DesignFamily(partial(_value_designs, table_design), table_design, table_design),
}
_VALUES: Final = DesignFamily(partial(_value_designs, _value_design), _value_design, _value_design)


def family_of(kind: Kind) -> DesignFamily:
    """Return how designs for a kind of value are found."""
    return _FAMILIES.get(kind, _VALUES)
