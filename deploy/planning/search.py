"""Find the best design of every protocol: approximate, ask the exact accountant, repeat. Pure."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Final

from common.accounting.amplification import DeltaCurve
from common.accounting.epsilon_search import gaussian_mu
from common.accounting.guarantees import central_epsilon
from common.errors import PlanError
from common.task.dummy_spec import EXTRA_WEIGHT_SUM
from common.task.task import MAX_LOCAL_EPSILON
from deploy.planning.design import (
    NOT_AMPLIFIED,
    USUAL_MESSAGES,
    Design,
    check_bit,
    each_item_dummies,
    local_design,
    within_caps,
)
from deploy.planning.frontier import (
    CLOSE_ENOUGH,
    HASHED,
    SEARCHED,
    Frontier,
    SearchPoint,
    Tightness,
)
from deploy.planning.requirements import Requirements
from deploy.planning.shuffler_noise import (
    MARGIN,
    SHUFFLER_PROTOCOLS,
    approximate_shuffler_mse,
    keeps_guarantee,
    shuffler_design,
    shuffler_designs,
)

_MAX_POINTS: Final = 5
"""Points of one protocol that the exact accountant is asked about."""
_MAX_FAR_POINTS: Final = 2
_FAR_FACTOR: Final = 1.25
"""A protocol whose approximate error exceeds the best by this factor gets fewer points."""
_SAME: Final = 0.03
"""A relative difference of answers and dummies that hardly moves the error."""
_SLACK: Final = 1e-3
_SLACK_OF_ROUNDS: Final = 3e-3
"""Relative μ below the target at which a search ends: .2 % of the error; .6 % where it is slow."""
_AIM: Final = 4e-4
"""Each step aims at this relative μ below the target."""
_TOLERANCE: Final = 0.02
"""Of δ, upward; it costs .1 % of μ at most."""
_MAX_EVALUATIONS: Final = 12
_MAX_STEP: Final = 1.5
"""In ln μ: a first step is not trusted farther."""
_JUST_ABOVE: Final = 1e-12
_ONLY_CAPS: Final = 20.0
"""Tightness so large that only the caps limit a design; negated, the noisiest design."""
_SEARCHED_AS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "sh": (("sh",),),
    "murs": (("murs", "sh"),),
    "hp-sdp": (("murs", "sh"),),
    "ddps": (("sh",),),
    "puredump": (("puredump",),),
    "mixdump": (("mixdump",), ("sh",)),
    "od-hp": (("od-hp", "mixdump"), ("murs", "sh")),
    "fe1": (("fe1", "puredump"),),
}
"""The planner's protocols that each is searched as: plain items where hashing gains nothing; after
that, those for where no dummies are allowed, or hardly any are needed."""


# --- one protocol ---------------------------------------------------------------------------------


def tight_design(protocol: str, wanted: Requirements) -> Design:
    """
    Return the design with the least error that keeps the target by the exact accountant.

    Plain or hashed items, whichever is better; without a cap, USUAL_MESSAGES at most. Raises
    PlanError if the protocol cannot keep it under the caps. Cost: some three to ten evaluations of
    δ.
    """
    if protocol in NOT_AMPLIFIED:
        return local_design(protocol, wanted)
    if protocol in SHUFFLER_PROTOCOLS:
        return within_caps(shuffler_design(protocol, wanted))
    if protocol == "aue":
        return within_caps(_aue(wanted))
    if protocol == "ddps":
        check_bit(wanted)
    if math.isinf(wanted.messages_cap) and protocol != "puredump":
        wanted = dataclasses.replace(wanted, messages_cap=USUAL_MESSAGES)
    for names in _SEARCHED_AS[protocol]:
        found = [
            design
            for name in names
            for design in _search_protocol(Frontier(wanted), name, _MAX_FAR_POINTS)
        ]
        if found:
            best = min(found, key=lambda each: each.mse)
            return dataclasses.replace(best, protocol=protocol)
    raise PlanError(
        f"{protocol} cannot keep a central epsilon of {wanted.central_epsilon:g} with at most "
        f"{wanted.messages_cap:g} messages a user and a local epsilon of at most "
        f"{wanted.local_cap:g}"
    )


def _aue(wanted: Requirements) -> Design:
    """Each item once more, with the least chance that keeps the target, to a thousandth."""

    def at(extra_weight: int) -> Design:
        dummies = each_item_dummies(extra_weight, wanted)
        return Design(protocol="aue", wanted=wanted, dummies=dummies)

    def keeps(extra_weight: int) -> bool:
        return keeps_guarantee(at(extra_weight))

    high = EXTRA_WEIGHT_SUM // 2  # the noise of an item is widest at a chance of one half
    if not keeps(high):
        raise PlanError(
            f"aue cannot keep a central epsilon of {wanted.central_epsilon:g} with "
            f"{wanted.honest} users"
        )
    while high > 1 and keeps(high // 2):
        high //= 2
    low = high // 2
    while high - low > max(1, high // 1000):
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return at(high)


# --- every protocol -------------------------------------------------------------------------------


def search_protocols(wanted: Requirements) -> tuple[Frontier, list[Design]]:
    """
    Search every protocol that the requirements allow: some twenty evaluations of δ.

    Returns the calibrated frontier, and the best design of each protocol: first the best of all,
    the others by error.
    """
    frontier = Frontier(wanted)
    first = _first_points(frontier)
    found: list[Design] = []
    for point in first:
        most = _MAX_POINTS if point.mse <= _FAR_FACTOR * first[0].mse else _MAX_FAR_POINTS
        if wanted.rounds > 1:
            most = math.ceil(most / 2)  # a composition takes ten times as long
        found += _search_protocol(frontier, point.protocol, most)
    if wanted.trust == "shuffler-dummies":
        found += shuffler_designs(wanted)
    return frontier, _ranked(found)


def approximate_mse(frontier: Frontier, **changes: Any) -> float:  # noqa: ANN401  # requirements
    """Approximate the least error under changed requirements; milliseconds, never stated."""
    wanted = dataclasses.replace(frontier.wanted, **changes)
    of_users = min(point.mse for point in _first_points(Frontier(wanted, frontier.known)))
    return min(of_users, approximate_shuffler_mse(wanted))


def _first_points(frontier: Frontier) -> list[SearchPoint]:
    """Return each protocol's point with the least approximate error, the best protocol first."""
    points = [frontier.points(name) for name in SEARCHED]
    best = [min(each, key=lambda point: point.mse) for each in points if each]
    return sorted(best, key=lambda point: point.mse)


def _search_protocol(frontier: Frontier, protocol: str, most: int) -> list[Design]:
    """Calibrate points of one protocol, and the frontier, until the best stands; return it."""
    seen: list[SearchPoint] = []
    found: list[Design] = []
    for _ in range(most):
        points = frontier.points(protocol)
        if not points or any(_same(points[0], point) for point in seen):
            break
        seen.append(points[0])
        calibrated = _calibrate(frontier, points[0])
        if calibrated is None:
            break
        design, at = calibrated
        if points[0].dummies_per_user > design.dummies_per_user == 0:
            break  # without its dummies it is another protocol
        frontier.known[protocol in HASHED].append(Tightness(design.answers, at))
        found.append(design)
    return sorted(found, key=lambda each: each.mse)[:1]


def _ranked(found: list[Design]) -> list[Design]:
    """Sort by error; of those CLOSE_ENOUGH to the best, put the cheapest first."""
    names = {each.protocol for each in found}
    # At the largest local ε the noisy protocol is the noiseless one under another name.
    noiseless = {"mixdump": "puredump", "od-hp": "fe1"}
    ranked = [
        each
        for each in sorted(found, key=lambda each: each.mse)
        if noiseless.get(each.protocol) not in names or each.local_epsilon < MAX_LOCAL_EPSILON
    ]
    close = [each for each in ranked if each.mse <= CLOSE_ENOUGH * ranked[0].mse]
    best = min(close, key=lambda each: (each.bytes_per_user, each.local_epsilon))
    return [best, *(each for each in ranked if each is not best)]


def _same(one: SearchPoint, other: SearchPoint) -> bool:
    return math.isclose(one.answers, other.answers, rel_tol=_SAME) and math.isclose(
        one.dummies_per_user, other.dummies_per_user, rel_tol=_SAME
    )


# --- one point ------------------------------------------------------------------------------------


def _calibrate(frontier: Frontier, point: SearchPoint) -> tuple[Design, float] | None:
    """Find the sharpest design at a point that keeps the guarantee, and its tightness, if any."""
    kept: tuple[float, float] | None = None
    broken: tuple[float, float] | None = None
    best: tuple[Design, float] | None = None
    slack = _SLACK if frontier.wanted.rounds == 1 else _SLACK_OF_ROUNDS
    known = frontier.known[point.protocol in HASHED]
    near = min(known, key=lambda each: abs(math.log(each.answers / point.answers)), default=None)
    at = 0.0 if near is None else near.log_factor
    for _ in range(_MAX_EVALUATIONS):
        design = frontier.design(point, at)
        # No design: at this tightness it would take more dummies than there may be.
        excess = -math.inf if design is None else _log_excess(design)
        if excess > 0:
            broken = (at, excess)
        else:
            kept = (at, excess)
            if design is not None:
                best = (design, at)
                if excess >= -slack or design == frontier.design(point, at + _ONLY_CAPS):
                    break
        if kept is not None and broken is not None and broken[0] - kept[0] < slack / 4:
            break
        at = _next(at, excess, kept, broken)
    if best is None:
        blunt = frontier.design(point, -_ONLY_CAPS)
        if blunt is not None and _log_excess(blunt) <= 0:
            best = (blunt, -_ONLY_CAPS)
    return best


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


def _log_excess(design: Design) -> float:
    """Return ln(μ / wanted μ) for the μ whose Gaussian privacy is that of the design, exactly."""
    terms, wanted = design.terms, design.wanted
    if terms.local_epsilon_of_all_rounds <= wanted.central_epsilon:
        return -math.inf
    anonymity_set = terms.anonymity_set(wanted.n_min)
    if wanted.rounds > 1:
        epsilon = central_epsilon(terms, anonymity_set)
        mu = math.inf if math.isinf(epsilon) else gaussian_mu(epsilon, wanted.delta)
        keeps = epsilon <= wanted.central_epsilon
    else:
        curve = DeltaCurve(design.reduction, anonymity_set, (wanted.central_epsilon,), _TOLERANCE)
        delta = curve(wanted.central_epsilon)
        mu = gaussian_mu(wanted.central_epsilon, delta / MARGIN)
        keeps = delta <= MARGIN * wanted.delta
    # On the accountant's side of 0 whatever the approximation's last digit.
    target = gaussian_mu(wanted.central_epsilon, wanted.delta)
    excess = math.log(mu / target) if mu > 0 else -math.inf
    return min(excess, 0.0) if keeps else max(excess, _JUST_ABOVE)
