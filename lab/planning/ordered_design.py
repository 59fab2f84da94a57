"""Designs for ordered buckets: flat histograms, and hierarchies whose fan-out is chosen. Pure."""

import dataclasses
import math
from typing import Final, NamedTuple

import numpy as np

from shuffledp.common.accounting.composition import composed_epsilon
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.accounting.view_groups import MAX_DISTINCT_VIEWS
from shuffledp.common.errors import PlanError, TaskError
from shuffledp.common.mechanisms.base import Mixture
from shuffledp.common.mechanisms.hierarchy import Hierarchy
from shuffledp.common.mechanisms.views import View
from shuffledp.common.task.specs import hierarchy_sizes
from shuffledp.common.task.task import envelope_bytes
from shuffledp.lab.planning.calibration import MAX_STEP, gaussian_mu, least_noisy, log_excess
from shuffledp.lab.planning.central_gaussian import prefix_factor
from shuffledp.lab.planning.design import check_plain, within_caps
from shuffledp.lab.planning.requirements import Progress, Requirements, item_report
from shuffledp.lab.planning.search import search_protocols, tight_design
from shuffledp.lab.planning.shuffler_noise import CLAIM_ROOM, design_excess
from shuffledp.lab.planning.value_design import ValueDesign

_POWERS: Final = (4, 8, 16, 32, 64, 128)
"""Fan-outs to try, besides those of regular trees of 1 to 16 levels."""
_SLACK: Final = 4e-3
"""The search for the dummies ends when μ is within this share below its target."""
_WORSE: Final = 2.0
"""Flat histograms are searched if their error may be below this multiple of the hierarchy's."""
_BUCKETS: Final = 64
"""Buckets of the hierarchy that a plan of a mean names."""
_ROOM: Final = 1.02
"""Factor on the dummies of a Gaussian approximation, for a first try that mostly holds."""


def ordered_designs(
    target: Requirements, progress: Progress
) -> tuple[list[ValueDesign], dict[str, str]]:
    """
    Return the design of each protocol by the error of a prefix, and why the others have none.

    Flat histograms are planned for the least error of a bucket, unless a hierarchy's error is far
    below theirs. Cost: that of `search_protocols`, and some three evaluations of a hierarchy's ε, a
    second for each level.
    """
    designs, left_out, useful_mse = list[ValueDesign](), dict[str, str](), math.inf
    progress("hierarchy")
    try:
        hierarchy = hierarchy_design(target)
    except PlanError as error:
        left_out["hierarchy"] = str(error)
    else:
        designs.append(hierarchy)
        useful_mse = _WORSE * hierarchy.mse / prefix_factor(target)
    try:
        _, flat, others = search_protocols(target, progress, useful_mse)
    except PlanError as error:
        if not designs:
            raise
        return designs, left_out | {"every flat histogram": str(error)}
    designs += [ValueDesign(draft=each.draft, target=target, note=each.note) for each in flat]
    return sorted(designs, key=lambda design: design.mse), left_out | others


def ordered_design(protocol: str, target: Requirements) -> ValueDesign:
    """Return a protocol's design with the least error that meets the target, or raise PlanError."""
    if protocol == "hierarchy":
        return hierarchy_design(target)
    design = tight_design(protocol, target)
    return ValueDesign(draft=design.draft, target=target, note=design.note)


def hierarchy_design(target: Requirements) -> ValueDesign:
    """
    Return the hierarchy with the least error of a prefix that meets the target.

    The fan-out is chosen by approximation: levels of δ-Gaussian noise, all nodes with the same.
    The dummies of the best ones are then found with the exact accountant. Raises PlanError if none
    meets the caps. Cost: some three evaluations of ε, a second for each level.
    """
    check_plain("hierarchy", target)
    tried = _shapes(target)
    refusal = PlanError(
        f"hierarchy needs {min(shape.messages for shape in tried):.3g} messages per user; the caps "
        f"allow {target.most_messages(hashed=False):.3g}"
    )
    for shape in tried:
        try:
            if shape.error < math.inf:
                return within_caps(_calibrated(shape.fan_out, shape.dummies, target))
        except PlanError as found:
            refusal = found
    raise refusal


def quantiles_beside(target: Requirements) -> str:
    """
    Return a sentence about hierarchies, for a plan of a mean; empty if the target allows none.

    The mean of buckets is that of their middles, which may be off by half a bucket.
    """
    buckets = dataclasses.replace(target, kind="ordered", domain_size=_BUCKETS, draft_fields={})
    if not target.may_be_plain or target.shufflers > 1:
        return ""
    try:
        shape = _shapes(buckets)[0]
    except TaskError:  # more dummies than a task can have
        return ""
    if shape.error == math.inf:
        return ""
    middles, n = (2 * np.arange(_BUCKETS) + 1) / _BUCKETS - 1, target.n_users
    mixture = Mixture(n_real=n, n_dummies=round(n * shape.dummies))
    noise = float(middles @ shape.hierarchy.covariances_with(middles, middles, mixture))
    ratio = noise * (gaussian_mu(target.central_epsilon, target.delta) * n) ** 2 / 4
    return (
        f"quantiles beside the mean need ordered data: with {_BUCKETS} buckets, hierarchy has "
        f"about {shape.messages:.3g} messages per user, its mean {ratio:.3g} times the error of "
        "central Gaussian noise and a bias of at most half a bucket"
    )


class _Shape(NamedTuple):
    """A hierarchy by approximation; sorted by its error."""

    error: float
    """Error of a prefix; infinite above a cap."""
    fan_out: int
    dummies: float
    """Dummies per user."""
    messages: float
    hierarchy: Hierarchy


def _shapes(target: Requirements) -> list[_Shape]:
    """Return the hierarchy of each fan-out, the best one first."""
    size = target.domain_size // target.groups
    regular = {math.ceil(size ** (1 / levels)) for levels in range(1, MAX_DISTINCT_VIEWS + 1)}
    fan_outs = [each for each in {*regular, *_POWERS} if 2 <= each <= size]  # noqa: PLR2004  # children
    return sorted(_shape(fan_out, target) for fan_out in fan_outs)


def _shape(fan_out: int, target: Requirements) -> _Shape:
    """
    Approximate the hierarchy of a fan-out.

    A user changes two counts of each level, of variance d each, in each of T rounds: the loss is
    that of Gaussian noise with μ² = 2·levels·T / d [DRS22].
    """
    sizes = hierarchy_sizes(target.domain_size // target.groups, fan_out, target.groups)
    mu = gaussian_mu(target.central_epsilon, target.delta)
    density = 2 * len(sizes) * target.rounds / mu**2
    dummies = _ROOM * density * sum(sizes) / target.honest
    views = View.averaging(dummies, sizes)
    hierarchy = Hierarchy(views=views, fan_out=fan_out, groups=target.groups)
    messages = len(sizes) + dummies
    size = envelope_bytes(item_report(hashed=False), math.floor(messages))
    fits = messages <= target.messages_cap and size <= target.bytes_cap
    error = target.prefix_error(hierarchy.prefix_variances(target.n_users)) if fits else math.inf
    return _Shape(error, fan_out, dummies, messages, hierarchy)


def _log_excess_of_levels(fan_out: int, dummies: float, target: Requirements) -> float:
    """Estimate ln(μ / target μ) as if every level had the loss of the lowest one."""
    sizes = hierarchy_sizes(target.domain_size // target.groups, fan_out, target.groups)
    buckets = View.averaging(dummies, sizes)[-1]
    lowest = PrivacyParameters(
        reduction=buckets.reduction,
        local_epsilon=math.inf,
        dummies=buckets.dummies,
        delta=target.delta,
        assumed_honest_fraction=target.honest_fraction,
    )
    release = lowest.release_of(target.n_min, target.honest, target.honest)
    epsilon = composed_epsilon([release] * len(sizes) * target.rounds, target.delta)
    goal = target.central_epsilon / CLAIM_ROOM
    excess = log_excess((epsilon, target.delta), (goal, target.delta))
    return min(max(excess, -MAX_STEP), MAX_STEP)


def _calibrated(fan_out: int, dummies: float, target: Requirements) -> ValueDesign:
    """
    Return the design with nearly the fewest dummies per user that meet the target exactly.

    μ² of an approximately Gaussian loss is inversely proportional to the number of dummies.
    """

    def attempt(level: float) -> tuple[ValueDesign | None, float]:
        many = dummies * math.exp(-2 * level)
        fields = {"local_epsilon": math.inf, "buckets": fan_out, "dummies_per_user": many}
        design = ValueDesign(draft=target.draft("hierarchy", **fields), target=target)
        return design, design_excess(design)

    start = -_log_excess_of_levels(fan_out, dummies, target) - _SLACK / 2
    return least_noisy("hierarchy", target, attempt, start=start, slack=_SLACK)
