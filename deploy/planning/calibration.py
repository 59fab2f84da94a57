"""Bring a drawn design to the promise exactly: as sharp as the exact accountant allows."""

import math
from dataclasses import dataclass
from typing import Final

from common.accounting.amplification import DeltaCurve
from common.accounting.gaussian import gaussian_mu
from common.accounting.guarantees import central_epsilon
from deploy.planning.design import Design
from deploy.planning.frontier import Frontier, Place, Verdict
from deploy.planning.requirements import Wishes

_SLACK: Final = 1e-3
_SLACK_OF_ROUNDS: Final = 3e-3
"""Relative μ below the promise at which a search ends: .2 % of the error; .6 % where it is slow."""
_AIM: Final = 4e-4
"""Where, below the promise, each step aims."""
_TOLERANCE: Final = 0.02
"""Of δ, upward; it costs .1 % of μ at most."""
_MARGIN: Final = 0.99
"""Of the wished δ: so that the search for ε, whose curve is laid out elsewhere, agrees."""
_MAX_EVALUATIONS: Final = 12
_MAX_STEP: Final = 1.5
"""Of the logarithm of μ: a first step is not trusted farther."""
_JUST_BROKEN: Final = 1e-12
_FAR: Final = 20.0
"""A tightness at which nothing but the caps decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A design that keeps the promise by the exact accountant, with its predicted error."""

    design: Design
    mse: float
    verdict: Verdict


def calibrate(frontier: Frontier, place: Place, tightness: float) -> Checked | None:
    """
    Find the sharpest design at a place that keeps the promise.

    Args:
        frontier: Knows the wishes, and draws the designs of a place from blunt to sharp.
        place: Protocol, answers, and the most dummies.
        tightness: Where to begin.

    Returns:
        The design, within a percent of the best error at this place; None if there is none.

    Cost: some three evaluations of δ, or of compositions if there are several rounds.
    """
    wishes = frontier.wishes
    target = gaussian_mu(wishes.central_epsilon, wishes.delta)
    kept: tuple[float, float] | None = None
    broken: tuple[float, float] | None = None
    best: tuple[float, Design] | None = None
    slack = _SLACK if wishes.rounds == 1 else _SLACK_OF_ROUNDS
    at = tightness
    for _ in range(_MAX_EVALUATIONS):
        design = frontier.design(place, at)
        # No design: at this tightness it would take more dummies than there may be.
        excess = -math.inf if design is None else _log_excess(design, wishes, target)
        if excess > 0:
            broken = (at, excess)
        else:
            kept = (at, excess)
            if design is not None:
                best = (at, design)
                if excess >= -slack or design == frontier.design(place, at + _FAR):
                    break
        if kept is not None and broken is not None and broken[0] - kept[0] < slack / 4:
            break
        at = _next(at, excess, kept, broken)
    if best is None:
        at = -_FAR
        blunt = frontier.design(place, at)
        if blunt is None or _log_excess(blunt, wishes, target) > 0:
            return None
        best = (at, blunt)
    at, design = best
    return Checked(
        design=design,
        mse=design.mse(wishes.n_users, wishes.domain_size),
        verdict=Verdict(answers=design.answers, tightness=at),
    )


def _next(
    at: float,
    excess: float,
    kept: tuple[float, float] | None,
    broken: tuple[float, float] | None,
) -> float:
    """Aim a little below the promise: between two sides by a chord, else by slope one."""
    if kept is None or broken is None:
        return at + min(max(-excess - _AIM, -_MAX_STEP), _MAX_STEP)
    if math.isinf(kept[1]) or math.isinf(broken[1]):
        return (kept[0] + broken[0]) / 2
    share = (-_AIM - kept[1]) / (broken[1] - kept[1])
    return kept[0] + min(max(share, 0.02), 0.98) * (broken[0] - kept[0])


def _log_excess(design: Design, wishes: Wishes, target: float) -> float:
    """Give ln(μ / target) for the μ whose Gaussian privacy is that of the design, exactly."""
    terms = design.terms(wishes)
    if terms.local_epsilon_of_all_rounds <= wishes.central_epsilon:
        return -math.inf
    crowd = terms.crowd(wishes.n_min)
    if wishes.rounds > 1:
        epsilon = central_epsilon(terms, crowd)
        mu = math.inf if math.isinf(epsilon) else gaussian_mu(epsilon, wishes.delta)
        return _verdict(mu / target, kept=epsilon <= wishes.central_epsilon)
    delta = DeltaCurve(design.reduction, crowd, (wishes.central_epsilon,), _TOLERANCE)(
        wishes.central_epsilon
    )
    mu = gaussian_mu(wishes.central_epsilon, delta / _MARGIN)
    return _verdict(mu / target, kept=delta <= _MARGIN * wishes.delta)


def _verdict(ratio: float, *, kept: bool) -> float:
    """Give ln(ratio), on the accountant's side of 0 whatever the approximation's last digit."""
    excess = math.log(ratio) if ratio > 0 else -math.inf
    return min(excess, 0.0) if kept else max(excess, _JUST_BROKEN)
