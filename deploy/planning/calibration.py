"""Sharpen an approximate design until the exact accountant just allows it. Pure."""

import math
from dataclasses import dataclass
from typing import Final

from common.accounting.amplification import DeltaCurve
from common.accounting.gaussian import gaussian_mu
from common.accounting.guarantees import central_epsilon
from deploy.planning.design import Design
from deploy.planning.frontier import Frontier, SearchPoint, Tightness
from deploy.planning.requirements import Requirements

_SLACK: Final = 1e-3
_SLACK_OF_ROUNDS: Final = 3e-3
"""Relative μ below the target at which a search ends: .2 % of the error; .6 % where it is slow."""
_AIM: Final = 4e-4
"""Each step aims at this relative μ below the target."""
_TOLERANCE: Final = 0.02
"""Of δ, upward; it costs .1 % of μ at most."""
_MARGIN: Final = 0.99
"""Share of the wanted δ, so that the search for ε, whose curve is computed elsewhere, agrees."""
_MAX_EVALUATIONS: Final = 12
_MAX_STEP: Final = 1.5
"""In ln μ: a first step is not trusted farther."""
_JUST_ABOVE: Final = 1e-12
_ONLY_CAPS: Final = 20.0
"""A tightness at which only the caps decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """A design that keeps the guarantee by the exact accountant, with its predicted error."""

    design: Design
    mse: float
    tightness: Tightness


def calibrate(frontier: Frontier, point: SearchPoint, tightness: float) -> Calibrated | None:
    """
    Find the sharpest design at a search point that keeps the guarantee.

    Args:
        frontier: Approximates the designs of a point, from blunt to sharp.
        point: Protocol, answers, and the most dummies.
        tightness: Start of the search.

    Returns:
        The design, within a percent of the best error at this point; None if there is none.

    Cost: some three evaluations of δ, or of compositions if there are several rounds.
    """
    wanted = frontier.wanted
    target = gaussian_mu(wanted.central_epsilon, wanted.delta)
    kept: tuple[float, float] | None = None
    broken: tuple[float, float] | None = None
    best: tuple[float, Design] | None = None
    slack = _SLACK if wanted.rounds == 1 else _SLACK_OF_ROUNDS
    at = tightness
    for _ in range(_MAX_EVALUATIONS):
        design = frontier.design(point, at)
        # No design: at this tightness it would take more dummies than there may be.
        excess = -math.inf if design is None else _log_excess(design, wanted, target)
        if excess > 0:
            broken = (at, excess)
        else:
            kept = (at, excess)
            if design is not None:
                best = (at, design)
                if excess >= -slack or design == frontier.design(point, at + _ONLY_CAPS):
                    break
        if kept is not None and broken is not None and broken[0] - kept[0] < slack / 4:
            break
        at = _next(at, excess, kept, broken)
    if best is None:
        at = -_ONLY_CAPS
        blunt = frontier.design(point, at)
        if blunt is None or _log_excess(blunt, wanted, target) > 0:
            return None
        best = (at, blunt)
    at, design = best
    return Calibrated(
        design=design,
        mse=design.mse(wanted.n_users, wanted.domain_size),
        tightness=Tightness(answers=design.answers, log_factor=at),
    )


def _next(
    at: float,
    excess: float,
    kept: tuple[float, float] | None,
    broken: tuple[float, float] | None,
) -> float:
    """Aim a little below the target: between two sides by a chord, else by slope one."""
    if kept is None or broken is None:
        return at + min(max(-excess - _AIM, -_MAX_STEP), _MAX_STEP)
    if math.isinf(kept[1]) or math.isinf(broken[1]):
        return (kept[0] + broken[0]) / 2
    share = (-_AIM - kept[1]) / (broken[1] - kept[1])
    return kept[0] + min(max(share, 0.02), 0.98) * (broken[0] - kept[0])


def _log_excess(design: Design, wanted: Requirements, target: float) -> float:
    """Return ln(μ / target) for the μ whose Gaussian privacy is that of the design, exactly."""
    terms = design.terms(wanted)
    if terms.local_epsilon_of_all_rounds <= wanted.central_epsilon:
        return -math.inf
    crowd = terms.crowd(wanted.n_min)
    if wanted.rounds > 1:
        epsilon = central_epsilon(terms, crowd)
        mu = math.inf if math.isinf(epsilon) else gaussian_mu(epsilon, wanted.delta)
        return _excess(mu / target, kept=epsilon <= wanted.central_epsilon)
    delta = DeltaCurve(design.reduction, crowd, (wanted.central_epsilon,), _TOLERANCE)(
        wanted.central_epsilon
    )
    mu = gaussian_mu(wanted.central_epsilon, delta / _MARGIN)
    return _excess(mu / target, kept=delta <= _MARGIN * wanted.delta)


def _excess(ratio: float, *, kept: bool) -> float:
    """Return ln(ratio), on the accountant's side of 0 whatever the approximation's last digit."""
    excess = math.log(ratio) if ratio > 0 else -math.inf
    return min(excess, 0.0) if kept else max(excess, _JUST_ABOVE)
