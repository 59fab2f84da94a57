"""
Find the design with the least error for a privacy guarantee, for every kind of data. Pure.

Each family of protocols in FAMILIES is asked for its designs. A plan states exact privacy figures
and exact variances; approximations only guide the search.
"""

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from shuffledp.common.accounting.epsilon_search import MAX_EPSILON
from shuffledp.common.accounting.guarantees import claimed_guarantee, guarantees_under
from shuffledp.common.errors import PlanError, ShuffleDpError
from shuffledp.common.limits import MAX_LOCAL_EPSILON, MAX_USERS
from shuffledp.common.messages.guarantee import Guarantee
from shuffledp.common.task.draft import TaskDraft
from shuffledp.lab.planning.attribute_tables import AttributeTables
from shuffledp.lab.planning.blankets import Blankets
from shuffledp.lab.planning.calibration import last_enough
from shuffledp.lab.planning.central_mechanisms import prefix_factor
from shuffledp.lab.planning.clusters import Clusters
from shuffledp.lab.planning.design import Design
from shuffledp.lab.planning.digits import DigitDummies, DigitNoise
from shuffledp.lab.planning.frontier import CLOSE_ENOUGH
from shuffledp.lab.planning.hierarchies import Hierarchies
from shuffledp.lab.planning.item_dummies import EachItem, ShufflerNoise
from shuffledp.lab.planning.noisy_reports import LocalReports, NoisyReports, NoisyTexts
from shuffledp.lab.planning.protocol_family import FamilyDesigns, ProtocolFamily
from shuffledp.lab.planning.requirements import Progress, Requirements

FAMILIES: Final[tuple[ProtocolFamily, ...]] = (
    NoisyReports("discover", "laplace", "duchi", "piecewise", "hybrid-mean", "harmony"),
    NoisyReports("mean-est", "multi-hm", "multi-rphm", "priv-kv"),
    LocalReports(by_name=("ldp-warner", "ldp-grr", "ldp-sue", "ldp-oue", "ldp-blh")),
    LocalReports(by_name=("ldp-olh", "ldp-olh-strings", "ldp-sw")),
    NoisyTexts("rappor"),
    Hierarchies("hierarchy"),
    Blankets("sh", "mixdump", "puredump", "murs", "od-hp", "fe1", by_name=("hp-sdp", "ddps")),
    EachItem(by_name=("aue",)),
    ShufflerNoise("hybrid", "sageo", "sbin"),
    Clusters("signed"),
    DigitDummies("digits", "vector-digits"),
    DigitNoise("geo-digits", "geo-vector-digits"),
    AttributeTables("tables", "geo-tables"),
)
"""All families, in the order in which they are planned."""

DAYS_TO_DEADLINE: Final = 7
"""Of the draft of a plan."""
_ILLUSTRATION: Final = "an illustration, not a guarantee: half of all users collude"
_WORSE: Final = 2.0
"""Flat histograms are searched if their error may be below this multiple of the hierarchy's."""
_RENAMED: Final = {"mixdump": "puredump", "od-hp": "fe1"}
"""Noisy protocols which are, at the largest local ε, the noiseless one under another name."""
_RELAXATION: Final = 1.1
_BINDING_RATIO: Final = 0.998
"""A constraint binds if raising it by ten percent lowers the error by more than 0.2 %."""
_SEARCH_TOL: Final = 0.01
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
    """Reason why a protocol has no design, by name."""
    two_shufflers: Design | None = None
    """The best design with two shufflers; None if there is none."""

    warnings: tuple[str, ...] = ()
    """What to know before collecting, of `plan_warnings`."""

    def __repr__(self) -> str:
        """Return a line, and one for each warning, for notebooks."""
        best, error = self.best, f"mean squared error {self.best.mse:.3g}"
        first = f"<{best.protocol}: {error}, local ε {best.local_epsilon:g}>"
        return "\n".join([first, *self.warnings])

    @property
    def columns(self) -> dict[str, Sequence[object]]:
        """A row per design, the best first, by column."""
        names = ("protocol", "mse", "local_epsilon", "messages_per_user", "bytes_per_user")
        designs = (self.best, *self.runners_up)
        return {name: [getattr(each, name) for each in designs] for name in names}

    @property
    def target(self) -> Requirements:
        """The requirements that the plan meets."""
        return self.best.target

    def task_draft(self, now: float) -> TaskDraft:
        """Return the draft with a deadline in a week, and the target (ε, δ) as its budget."""
        return dataclasses.replace(
            self.best.draft,
            deadline=int(now) + DAYS_TO_DEADLINE * 24 * 3600,
            budget_epsilon=self.target.central_epsilon,
            budget_delta=self.target.delta,
        )

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
    found, two = search(target, progress), None
    best, *others = found.designs
    if best.mse > target.max_mse:
        raise found.infeasible()
    with contextlib.suppress(ShuffleDpError):
        wanted = dataclasses.replace(target, shufflers=2, local_cap=math.inf)
        two = best if target.shufflers > 1 else search(wanted).designs[0]
    return Plan(
        best=best,
        runners_up=tuple(others),
        central_guarantee=claimed_guarantee(best.parameters, target.n_min),
        binding=found.reached if target.shufflers > 1 else found.binding,
        left_out={name: str(error) for name, error in found.refusals.items()},
        two_shufflers=two,
    )


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
        other = dataclasses.replace(target, shufflers=1, local_cap=cap)
        with contextlib.suppress(ShuffleDpError):
            return search(other).designs[0].mse
        return math.inf

    with_cap = least(capped)  # allowed without it too, and the rounding of weights may favour it
    errors = {"with_local_cap": with_cap, "without_local_cap": min(with_cap, least(math.inf))}
    return {"local_cap": capped, **errors, "two_shufflers": two.mse if two else math.inf}


def search(target: Requirements, progress: Progress = lambda _: None) -> "Search":
    """Ask every family for its designs; raise what the first one raised if there is none."""
    founds = list[FamilyDesigns]()
    for family in FAMILIES:
        useful = _useful_mse([design for found in founds for design in found.designs], target)
        founds.append(family.designs(dataclasses.replace(target, useful_mse=useful), progress))
    found = Search(target, tuple(founds))
    if not found.designs:
        raise next(iter(found.refusals.values()), PlanError("no protocol meets the target"))
    return found


def _useful_mse(designs: Sequence[Design], target: Requirements) -> float:
    """Return the error of a share from which on further designs of items cannot be the best."""
    errors = [
        CLOSE_ENOUGH * design.mse
        if design.kind.of_items
        else _WORSE * design.mse / prefix_factor(target)
        for design in designs
        if design.row.collects("ordered")
    ]
    return min(errors, default=math.inf)


@dataclass(frozen=True)
class Search:
    """What all families found under the same requirements."""

    target: Requirements
    by_family: tuple[FamilyDesigns, ...]

    @cached_property
    def designs(self) -> list[Design]:
        """All designs by error, but first the cheapest of those CLOSE_ENOUGH to the best."""
        designs = [design for found in self.by_family for design in found.designs]
        names, kind = {design.protocol for design in designs}, self.target.kind
        ranked = [
            # With the error that is predicted for the kind that was asked for.
            design
            if design.target.kind == kind
            else dataclasses.replace(design, target=self.target)
            for design in designs
            if _RENAMED.get(design.protocol) not in names
            or design.local_epsilon < MAX_LOCAL_EPSILON
        ]
        ranked.sort(key=lambda design: (design.biased, design.mse))
        close = [
            design
            for design in ranked
            if design.mse <= CLOSE_ENOUGH * ranked[0].mse and design.biased == ranked[0].biased
        ]
        first = min(close, key=lambda each: (each.bytes_per_user, each.local_epsilon), default=None)
        return sorted(ranked, key=lambda design: design is not first)

    @property
    def refusals(self) -> dict[str, Exception]:
        """Why protocols have no design, by name."""
        return {name: error for found in self.by_family for name, error in found.refusals.items()}

    @property
    def reached(self) -> tuple[str, ...]:
        """The targets that the best design of two shufflers just meets."""
        names = ("central_epsilon", "coalition_epsilon")
        return tuple(
            name.replace("_", " ")
            for name in names
            if getattr(self.designs[0].task, name) >= _BINDING_RATIO * getattr(self.target, name)
        )

    @property
    def binding(self) -> tuple[str, ...]:
        """The constraints that limit the approximate error of items."""
        best, target = self.designs[0], self.target
        found = next(each for each in self.by_family if best.protocol in each.protocols)
        if not best.kind.of_items or found.approximate is None:
            return ()
        enough = _BINDING_RATIO * found.approximate(target)
        limits = _limits(target) if found.limits is None else found.limits
        names = list[str]()
        for name, most in limits.items():
            changed = target
            if most is not None:
                relaxed: dict[str, Any] = {name: min(_RELAXATION * getattr(target, name), most)}
                changed = dataclasses.replace(target, **relaxed)
            if most is None or found.approximate(changed) < enough:
                names.append(name.replace("_", " "))
        return tuple(names)

    def infeasible(self) -> PlanError:
        """Return the PlanError for an unreachable max_mse, with the least error and remedies."""
        best, target = self.designs[0], self.target
        least = (
            f"a mean squared error of {target.max_mse:g} cannot be reached: the least is "
            f"{best.mse:.3g}, by {best.protocol}"
        )
        if not best.kind.of_items or target.shufflers > 1:
            return PlanError(f"{least}; raise users or epsilon")
        limits = _limits(target) | {"n_users": float(MAX_USERS)}
        values = {name: self._least_sufficient(name, most) for name, most in limits.items()}
        remedies = [_REMEDIES[name].format(value) for name, value in values.items() if value]
        enough = f"{' or '.join(remedies)} would be" if remedies else "no single change is"
        limited = ", ".join(self.binding) or "the number of users"
        return PlanError(f"{least}, limited by {limited}; {enough} enough")

    def _least_sufficient(self, name: str, most: float) -> float | None:
        """Approximate a constraint's least value that reaches max_mse, rounded up; or None."""
        target = self.target

        def sufficient(value: float) -> bool:
            changes: dict[str, Any] = {name: value}
            if name == "n_users":  # n_min grows with them
                users = math.ceil(value)
                changes = {"n_users": users, "n_min": target.n_min * users // target.n_users}
            changed = dataclasses.replace(target, **changes)
            errors = (
                found.approximate(changed)
                for found in self.by_family
                if found.approximate and found.limits is None
            )
            return min(errors) <= target.max_mse

        least = last_enough(sufficient, most, float(getattr(target, name)), _SEARCH_TOL)
        if least is None:
            return None
        digit = 10.0 ** (math.floor(math.log10(least)) - 1)
        return min(math.ceil(least / digit) * digit, most)


def _limits(target: Requirements) -> dict[str, float]:
    """Return the constraints that can be relaxed, each with its largest useful value."""
    limits = {"central_epsilon": MAX_EPSILON}
    for name, most in (("messages_cap", 10_000.0), ("bytes_cap", 1e6)):
        if target.trust != "none" and math.isfinite(cap := getattr(target, name)):
            limits[name] = max(most, 2 * cap)
    if target.local_cap < MAX_LOCAL_EPSILON:
        limits["local_cap"] = MAX_LOCAL_EPSILON
    return limits
