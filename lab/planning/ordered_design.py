"""Designs for ordered buckets: flat histograms, and hierarchies whose fan-out is chosen. Pure."""

import math
from typing import Final

from common.accounting.composition import composed_epsilon
from common.accounting.guarantees import PrivacyParameters
from common.accounting.view_groups import MAX_DISTINCT_VIEWS
from common.errors import PlanError
from common.mechanisms.hierarchy import Hierarchy
from common.mechanisms.views import View
from common.task.specs import hierarchy_sizes
from common.task.task import envelope_bytes
from lab.planning.calibration import gaussian_mu, least_noise, log_excess
from lab.planning.central_gaussian import prefix_factor
from lab.planning.design import within_caps
from lab.planning.requirements import Progress, Requirements, item_report
from lab.planning.search import search_protocols, tight_design
from lab.planning.shuffler_noise import CLAIM_ROOM
from lab.planning.value_design import ValueDesign

_POWERS: Final = (4, 8, 16, 32, 64, 128)
"""Fan-outs to try, besides those of regular trees of 1 to 16 levels."""
_SLACK: Final = 4e-3
"""The search for the dummies ends when μ is within this share below its target."""
_MAX_STEP: Final = 0.7
"""Largest step in ln μ: a factor of 4 of the dummies."""
_WORSE: Final = 2.0
"""Flat histograms are searched if their error may be below this multiple of the hierarchy's."""
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
    if not target.may_be_plain:
        raise PlanError(
            "hierarchy has no local noise, so it needs a shuffler that permutes and no local cap"
        )
    size = target.domain_size // target.groups
    regular = {math.ceil(size ** (1 / levels)) for levels in range(1, MAX_DISTINCT_VIEWS + 1)}
    fan_outs = sorted(each for each in {*regular, *_POWERS} if 2 <= each <= size)  # noqa: PLR2004  # children
    tried = sorted((*_approximate(fan_out, target), fan_out) for fan_out in fan_outs)
    refusal = PlanError(
        f"hierarchy needs {min(need for _, _, need, _ in tried):.3g} messages per user; the caps "
        f"allow {target.most_messages(hashed=False):.3g}"
    )
    for error, dummies, _, fan_out in tried:
        try:
            if error < math.inf:
                return within_caps(_calibrated(fan_out, dummies, target))
        except PlanError as found:
            refusal = found
    raise refusal


def _approximate(fan_out: int, target: Requirements) -> tuple[float, float, float]:
    """
    Approximate the error of a prefix, and dummies and messages per user, of a fan-out.

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
    error = target.prefix_error(hierarchy.prefix_variances(target.n_users))
    return (error if fits else math.inf), dummies, messages


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
    return min(max(excess, -_MAX_STEP), _MAX_STEP)


def _calibrated(fan_out: int, dummies: float, target: Requirements) -> ValueDesign:
    """
    Return the design with nearly the fewest dummies per user that meet the target exactly.

    μ² of an approximately Gaussian loss is inversely proportional to the number of dummies.
    """
    goal = target.central_epsilon / CLAIM_ROOM

    def attempt(level: float) -> tuple[ValueDesign | None, float]:
        many = dummies * math.exp(-2 * level)
        fields = {"local_epsilon": math.inf, "buckets": fan_out, "dummies_per_user": many}
        design = ValueDesign(draft=target.draft("hierarchy", **fields), target=target)
        release = design.parameters.release_of(target.n_min, target.honest, target.honest)
        epsilon = composed_epsilon([release] * target.rounds, target.delta)
        return design, log_excess((epsilon, target.delta), (goal, target.delta))

    start = -_log_excess_of_levels(fan_out, dummies, target) - _SLACK / 2
    best = least_noise(attempt, start=start, slack=_SLACK, max_step=_MAX_STEP)
    if best is None:
        raise PlanError(
            f"hierarchy cannot meet a central epsilon of {target.central_epsilon:g} with "
            f"{target.n_min} users"
        )
    return best[0]
