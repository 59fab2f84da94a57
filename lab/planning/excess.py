"""
The distance of a design from its privacy target, by exact accounting or by a paper's bound. Pure.

The only place where the planner asks for a design's ε: every search moves noise until this distance
is nearly 0.
"""

import math
from collections.abc import Callable
from typing import Any, Final

from shuffledp.common.accounting.guarantees import central_epsilon
from shuffledp.common.accounting.published import PUBLISHED, BoundSetting
from shuffledp.common.errors import BoundRangeError, PlanError
from shuffledp.lab.planning.calibration import T, least_noise, log_excess
from shuffledp.lab.planning.design import Design
from shuffledp.lab.planning.requirements import Requirements

MARGIN: Final = 0.99
"""Share of the target δ that searches use, so that the task's rounded claim meets the target."""
CLAIM_ROOM: Final = 1.00015
"""Factor by which a task's claim may exceed the ε of its noise: claims are rounded up."""
_SEARCH_OF_BOUNDS: Final = {"slack": 1e-5, "most": 60}
"""Of published bounds, whose evaluation costs a millisecond."""


def excess_of(design: Design) -> float:
    """
    Return about ln(μ / target μ) of a design, at most 0 exactly if it meets the target.

    Raises AccountingError if no formula covers the design. Cost: one evaluation of δ, or for
    several rounds a composition.
    """
    published = design.target.accounting == "published"
    return _published_excess(design) if published else _exact_excess(design)


def meets(design: Design) -> bool:
    """Return whether a design meets the target, if only by the claim that its task rounds."""
    target = design.target
    if excess_of(design) <= 0:
        return True
    exact = target.accounting == "tight" and target.rounds == 1
    return exact and design.task.central_epsilon <= target.central_epsilon


def _exact_excess(design: Design) -> float:
    """Return `excess_of` by the accountant, with room for rounding claims."""
    parameters, target = design.parameters, design.target
    if parameters.local_epsilon_of_all_rounds <= target.central_epsilon:
        return -math.inf
    release = parameters.release_of(target.n_min, target.honest, target.honest)
    epsilon = target.central_epsilon / CLAIM_ROOM
    if target.rounds == 1:
        found = (epsilon, release.curve((epsilon,))(epsilon))
        return log_excess(found, (epsilon, MARGIN * target.delta))
    found = (central_epsilon(parameters, release), target.delta)
    return log_excess(found, (epsilon, target.delta))


def _published_excess(design: Design) -> float:
    """Return ln(ε / target ε) by the paper's bound; infinite out of its range: more noise helps."""
    _, bound = PUBLISHED[design.row.published_bound or ""]
    try:
        found = bound(BoundSetting.of(design.parameters, design.target.n_min))
    except BoundRangeError:
        return math.inf
    return math.log(found / design.target.central_epsilon)


def least_noisy(
    target: Requirements,
    name: str,
    found_at: Callable[[float], T | None],
    excess: Callable[[T], float],
    **search: Any,  # noqa: ANN401  # further arguments of `least_noise`
) -> T:
    """
    Return the least noisy that meets the target; raise PlanError about `name` without one.

    `found_at` maps a level to a design, or to None if so much noise is impossible; `excess` states
    a design's distance from the target. See `calibration.least_noise`.
    """

    def attempt(level: float) -> tuple[T | None, float]:
        found = found_at(level)
        return found, -math.inf if found is None else excess(found)

    search = {"start": 0.0} | search
    if target.accounting == "published":
        search |= _SEARCH_OF_BOUNDS
    best = least_noise(attempt, **search)
    if best is None:
        coalition = f" and a coalition epsilon of {target.coalition_epsilon:g}"
        raise PlanError(
            f"{name} cannot meet a central epsilon of {target.central_epsilon:g}"
            f"{coalition * (target.shufflers > 1)} with {target.honest} honest users"
        )
    return best[0]
