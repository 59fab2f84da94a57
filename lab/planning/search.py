"""Find the best design of every protocol, by approximation and exact accounting. Pure."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from shuffledp.common.errors import PlanError
from shuffledp.common.limits import MAX_LOCAL_EPSILON
from shuffledp.common.protocols import PROTOCOLS, protocols_of
from shuffledp.common.task.dummies import EXTRA_WEIGHT_SUM
from shuffledp.lab.planning.calibration import least_noise, least_noisy
from shuffledp.lab.planning.design import (
    USUAL_MESSAGES,
    ItemDesign,
    check_bit,
    each_item_dummies,
    local_design,
    within_caps,
)
from shuffledp.lab.planning.frontier import (
    CLOSE_ENOUGH,
    SEARCHED,
    Frontier,
    SearchPoint,
    Tightness,
)
from shuffledp.lab.planning.requirements import Progress, Requirements
from shuffledp.lab.planning.shuffler_noise import (
    SHUFFLER_PROTOCOLS,
    approximate_shuffler_mse,
    design_excess,
    shuffler_design,
    shuffler_designs,
)
from shuffledp.lab.planning.signed_design import signed_designs

_MAX_POINTS: Final = 5
"""Most points of one protocol that are calibrated with the exact accountant."""
_POINTS_OF_ONE: Final = 2
"""Most points if a single protocol is searched."""
_FAR_FACTOR: Final = 1.25
"""Of protocols whose approximate error exceeds this factor times the best, one point is."""
_SAME: Final = 0.03
"""Relative difference of answers or dummies below which two points are not both calibrated."""
_SLACK: Final = 1e-3
"""A search ends when μ is within this share below its target, which costs .2 % of the error."""
_SLACK_OF_ROUNDS: Final = 3e-3
"""The slack for several rounds, whose accounting is slow; it costs .6 % of the error."""
_MAX_STEP: Final = 1.5
"""Largest step in ln μ before the target is bracketed."""
_ONLY_CAPS: Final = 20.0
"""A tightness at which only the caps limit a design; its negative gives the noisiest design."""


def tight_design(protocol: str, target: Requirements) -> ItemDesign:
    """
    Return a protocol's design with the least error that meets the target by exact accounting.

    Without a messages cap, USUAL_MESSAGES is the cap, except for puredump and aue. Raises PlanError
    or AccountingError if no design within the caps meets the target. Cost: three to ten
    evaluations of δ.
    """
    if target.shufflers > 1:
        return within_caps(shuffler_design(protocol, target))
    if not PROTOCOLS[protocol].amplified:
        return local_design(protocol, target)
    return within_caps(_TIGHT.get(protocol, _one_noisy_report)(protocol, target))


_Find = Callable[[str, Requirements], ItemDesign]


def _searched(*groups: tuple[str, ...], capped: bool = True) -> _Find:
    """
    Return a search of the frontier, which names its design by the protocol.

    Of the groups of protocols to search, the first with any design is used. Second groups are for
    targets that allow no dummies, or hardly need any. If `capped`, messages have the usual cap.
    """

    def find(protocol: str, target: Requirements) -> ItemDesign:
        target = _with_usual_cap(target) if capped else target
        for names in groups:
            designs = [
                design
                for name in names
                for design in _search_protocol(Frontier(target), name, _POINTS_OF_ONE)
            ]
            if designs:
                best = min(designs, key=lambda design: design.mse)
                draft = dataclasses.replace(best.draft, protocol=protocol)
                return dataclasses.replace(best, draft=draft)
        most = f" and at most {target.messages_cap:g} messages per user"
        raise PlanError(
            f"{protocol} cannot meet a central epsilon of {target.central_epsilon:g} with a local "
            f"epsilon of at most {target.local_cap:g}{most * math.isfinite(target.messages_cap)}"
        )

    return find


def _with_usual_cap(target: Requirements) -> Requirements:
    if math.isfinite(target.messages_cap):
        return target
    return dataclasses.replace(target, messages_cap=USUAL_MESSAGES)


def _aue(protocol: str, target: Requirements) -> ItemDesign:
    """Return aue's design with the least dummy probability, to within 0.2 %; or raise PlanError."""

    def attempt(level: float) -> tuple[ItemDesign | None, float]:
        if level < 0:  # an item's noise is largest at probability one half
            return None, -math.inf
        weight = max(1, math.ceil(EXTRA_WEIGHT_SUM // 2 * math.exp(-2 * level)))
        dummies = each_item_dummies(weight, target)
        design = ItemDesign.of(protocol, target, dummies=dummies)
        excess = design_excess(design)
        return design, 0.0 if excess <= 0 and weight == 1 else excess

    return least_noisy(protocol, target, attempt, start=0.0, slack=_SLACK, max_step=_MAX_STEP)


def search_protocols(
    target: Requirements, progress: Progress, useful_mse: float = math.inf
) -> tuple[Frontier, list[ItemDesign], dict[str, str]]:
    """
    Return the calibrated frontier and the best design of each protocol, the best of all first.

    Protocols whose predicted error is far above useful_mse, and `signed` unless it may be the best,
    are not calibrated. Last come the reasons, by protocol, why these have no design.

    Cost: about fifteen evaluations of δ, and a search for each protocol without one of its own.
    """
    frontier = Frontier(target)
    first = _first_points(frontier)
    designs: list[ItemDesign] = []
    left_out = dict[str, str]()
    for point in first:
        progress(point.protocol)
        if point.mse > _FAR_FACTOR * useful_mse:
            left_out[point.protocol] = (
                f"its mean squared error of a share would be about {point.mse:.2g}; another "
                f"protocol's error is equivalent to {useful_mse:.2g}"
            )
            continue
        most = _MAX_POINTS if point.mse <= _FAR_FACTOR * first[0].mse else 1
        if target.rounds > 1:
            most = math.ceil(most / 2)  # composition takes ten times as long
        designs += _search_protocol(frontier, point.protocol, most)
    if target.trust == "shuffler-dummies":
        designs += shuffler_designs(target)
    for name in protocols_of("categorical"):
        if PROTOCOLS[name].amplified and name not in _TIGHT:
            progress(name)
            try:
                designs.append(_one_noisy_report(name, target))
            except PlanError as error:
                left_out[name] = str(error)
    progress("signed")
    least = min((design.mse for design in designs if _allowed(design)), default=math.inf)
    try:
        designs += signed_designs(target, min(useful_mse, CLOSE_ENOUGH * least))[:1]
    except PlanError as error:
        left_out["signed"] = str(error)
    allowed = [design for design in designs if _allowed(design)]
    if designs and not allowed:
        influence = min(max(design.influence) for design in designs)
        raise PlanError(
            f"the influence cap is {target.influence_cap:g} and the bytes cap "
            f"{target.bytes_cap:g}; of all designs, the least influence is {influence:.4g} users, "
            f"and the fewest bytes are {min(design.bytes_per_user for design in designs):,}"
        )
    return frontier, _ranked(allowed), left_out


def _allowed(design: ItemDesign) -> bool:
    return design.within_influence_cap and design.bytes_per_user <= design.target.bytes_cap


def approximate_mse(frontier: Frontier, **changes: Any) -> float:  # noqa: ANN401  # requirements
    """Approximate the least error under changed requirements. Cost: milliseconds."""
    target = dataclasses.replace(frontier.target, **changes)
    of_users = min(point.mse for point in _first_points(Frontier(target, frontier.known)))
    return min(of_users, approximate_shuffler_mse(target))


def _first_points(frontier: Frontier) -> list[SearchPoint]:
    """Return each protocol's point with the least approximate error, the best protocol first."""
    by_protocol = [frontier.points(name) for name in SEARCHED]
    best = [min(points, key=lambda point: point.mse) for points in by_protocol if points]
    return sorted(best, key=lambda point: point.mse)


def _search_protocol(frontier: Frontier, protocol: str, most: int) -> list[ItemDesign]:
    """Return a protocol's best design, if any, after calibrating the frontier at `most` points."""
    seen: list[SearchPoint] = []
    designs: list[ItemDesign] = []
    for _ in range(most):
        points = frontier.points(protocol)
        if not points or any(_same(points[0], point) for point in seen):
            break
        seen.append(points[0])
        calibrated = _calibrate(frontier, points[0])
        if calibrated is None:
            break
        design, tightness = calibrated
        if points[0].dummies_per_user > design.draft.dummies_per_user == 0:
            break  # without dummies, it is another protocol
        known = frontier.known[PROTOCOLS[protocol].hashes]
        known.append(Tightness(design.answers, tightness))
        designs.append(design)
    return sorted(designs, key=lambda design: design.mse)[:1]


def _ranked(designs: list[ItemDesign]) -> list[ItemDesign]:
    """Sort designs by error without renamed duplicates, but the cheapest one CLOSE_ENOUGH first."""
    if not designs:
        return []
    names = {design.protocol for design in designs}
    # At the largest local ε, the noisy protocol is the noiseless one under another name.
    noiseless = {"mixdump": "puredump", "od-hp": "fe1"}
    ranked = [
        design
        for design in sorted(designs, key=lambda design: design.mse)
        if noiseless.get(design.protocol) not in names or design.local_epsilon < MAX_LOCAL_EPSILON
    ]
    close = [design for design in ranked if design.mse <= CLOSE_ENOUGH * ranked[0].mse]
    best = min(close, key=lambda design: (design.bytes_per_user, design.local_epsilon))
    return [best, *(design for design in ranked if design is not best)]


def _same(point: SearchPoint, other: SearchPoint) -> bool:
    return math.isclose(point.answers, other.answers, rel_tol=_SAME) and math.isclose(
        point.dummies_per_user, other.dummies_per_user, rel_tol=_SAME
    )


def _calibrate(frontier: Frontier, point: SearchPoint) -> tuple[ItemDesign, float] | None:
    """Return the point's least noisy design that meets the target, and its tightness; or None."""

    def attempt(tightness: float) -> tuple[ItemDesign | None, float]:
        design = frontier.design(point, tightness)
        if design is None:  # this tightness needs more dummies than are allowed
            return None, -math.inf
        excess = design_excess(design)
        if excess <= 0 and design == frontier.design(point, tightness + _ONLY_CAPS):
            excess = 0.0  # only the caps limit it
        return design, excess

    slack = _SLACK if frontier.target.rounds == 1 else _SLACK_OF_ROUNDS
    known = frontier.known[PROTOCOLS[point.protocol].hashes]
    near = min(known, key=lambda row: abs(math.log(row.answers / point.answers)), default=None)
    start = 0.0 if near is None else near.log_factor
    best = least_noise(attempt, start=start, slack=slack, max_step=_MAX_STEP)
    if best is None:
        noisiest = frontier.design(point, -_ONLY_CAPS)
        if noisiest is not None and design_excess(noisiest) <= 0:
            best = (noisiest, -_ONLY_CAPS)
    return best


def _one_noisy_report(protocol: str, target: Requirements) -> ItemDesign:
    """
    Return the design of one report with the largest local ε that meets the target.

    Serves every protocol without a row in `_TIGHT`. Raises PlanError if none meets the target.
    """

    def attempt(level: float) -> tuple[ItemDesign | None, float]:
        epsilon = min(math.exp(level), target.noise_cap, MAX_LOCAL_EPSILON)
        design = ItemDesign.of(protocol, target, local_epsilon=epsilon)
        excess = design_excess(design)
        return design, 0.0 if excess <= 0 and epsilon < math.exp(level) else excess

    return least_noisy(protocol, target, attempt, start=0.0, slack=_SLACK, max_step=_MAX_STEP)


def _ddps(protocol: str, target: Requirements) -> ItemDesign:
    check_bit(target)
    return _searched(("sh",))(protocol, target)


def _signed(_protocol: str, target: Requirements) -> ItemDesign:
    return signed_designs(_with_usual_cap(target))[0]


_TIGHT: Final[Mapping[str, _Find]] = {
    "sh": _searched(("sh",)),
    "murs": _searched(("murs", "sh")),
    "hp-sdp": _searched(("murs", "sh")),
    "ddps": _ddps,
    "aue": _aue,
    "puredump": _searched(("puredump",), capped=False),
    "mixdump": _searched(("mixdump",), ("sh",)),
    "od-hp": _searched(("od-hp", "mixdump"), ("murs", "sh")),
    "fe1": _searched(("fe1", "puredump")),
    "signed": _signed,
    **dict.fromkeys(SHUFFLER_PROTOCOLS, shuffler_design),
}
"""The search for a design, by protocol; `_one_noisy_report` serves the others."""
