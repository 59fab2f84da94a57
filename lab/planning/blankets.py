"""Protocols whose blanket is uniform reports: the frontier's points, calibrated exactly. Pure."""

import contextlib
import dataclasses
import math
from typing import Final

from shuffledp.common.errors import PlanError
from shuffledp.common.mechanisms.hashing.local_hashing import fields, optimal_buckets
from shuffledp.common.protocols import PROTOCOLS
from shuffledp.lab.planning.calibration import least_noise
from shuffledp.lab.planning.design import Design, excess_of, least_noisy, within_caps
from shuffledp.lab.planning.frontier import Frontier, SearchPoint, Tightness
from shuffledp.lab.planning.protocol_family import FamilyDesigns, ProtocolFamily
from shuffledp.lab.planning.requirements import USUAL_MESSAGES, Progress, Requirements

_LIKE: Final = {
    "ddps": (("sh",),),
    "fe1": (("fe1", "puredump"),),
    "hp-sdp": (("murs", "sh"),),
    "mixdump": (("mixdump",), ("sh",)),
    "murs": (("murs", "sh"),),
    "od-hp": (("od-hp", "mixdump"), ("murs", "sh")),
}
"""
Groups of protocols whose points a protocol's task can have; of the first group with any, the best.

Second groups are for targets that allow no dummies, or hardly need any.
"""
_NOTES: Final = {"hp-sdp": "SOLH's bound replaces that of the paper"}
"""Remarks on designs by published bounds."""
_OUT_OF_REACH: Final = "its bound cannot reach the target epsilon, so the local epsilon equals it"
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


class Blankets(ProtocolFamily):
    """Randomized response or local hashing, noiseless or not, alone or among uniform dummies."""

    def designs(self, target: Requirements, progress: Progress) -> FamilyDesigns:
        """
        Return the designs of all protocols by one frontier; that of a single one as `design` does.

        Protocols whose predicted error is far above the useful one are not calibrated. Cost: about
        fifteen evaluations of δ.
        """
        if target.protocol or target.shufflers > 1:
            return super().designs(target, progress)
        target = target.of_items
        frontier, names = Frontier(target), self.protocols(target)
        first = _first_points(frontier, names)
        found = FamilyDesigns(approximate=lambda other: _least(frontier, names, other))
        for point in first:
            name = point.protocol
            progress(name)
            if point.mse > _FAR_FACTOR * target.useful_mse:
                found.refusals[name] = PlanError(
                    f"its mean squared error of a share would be about {point.mse:.2g}; another "
                    f"protocol's error is equivalent to {target.useful_mse:.2g}"
                )
                continue
            most = _MAX_POINTS if point.mse <= _FAR_FACTOR * first[0].mse else 1
            if target.rounds > 1:
                most = math.ceil(most / 2)  # composition takes ten times as long
            try:
                found.designs.extend(map(within_caps, _calibrated_points(frontier, name, most)))
            except PlanError as error:
                found.refusals[name] = error
        by_name = {design.protocol: design for design in found.designs}
        for name, (like, *_) in _LIKE.items():
            able = [by_name[other] for other in like if other in by_name]
            if name in names and able:  # plain items may be better than hashed ones
                best = min(able, key=lambda design: design.mse)
                draft = dataclasses.replace(best.draft, protocol=name)
                by_name[name] = dataclasses.replace(best, draft=draft)
                found.refusals.pop(name, None)
        return dataclasses.replace(found, designs=[*by_name.values()])

    def design(self, protocol: str, target: Requirements) -> Design:
        """Return a protocol's best design, by default with at most USUAL_MESSAGES messages."""
        row, target, size = PROTOCOLS[protocol], target.of_items, target.domain_size
        if row.domain == "binary" and size != 2:  # noqa: PLR2004  # a bit
            raise PlanError(f"the domain size is {size}; for {protocol} it must be 2")
        by_dummies = row.noiseless or (row.dummy_distributions and target.accounting == "published")
        # Plain items that dummies alone hide need as many as the target asks for.
        if math.isinf(target.messages_cap) and (row.hashes or not by_dummies):
            target = dataclasses.replace(target, messages_cap=USUAL_MESSAGES)
        find = _by_bound if target.accounting == "published" else _by_accountant
        if designs := find(protocol, target):
            return min(designs, key=lambda design: design.mse)
        most = f" and at most {target.messages_cap:g} messages per user"
        raise PlanError(
            f"{protocol} cannot meet a central epsilon of {target.central_epsilon:g} with a local "
            f"epsilon of at most {target.local_cap:g}{most * math.isfinite(target.messages_cap)}"
        )


def _by_accountant(protocol: str, target: Requirements) -> list[Design]:
    """Return the designs of the first group that has any; see `_LIKE`."""
    for names in _LIKE.get(protocol, ((protocol,),)):
        frontier = Frontier(target, protocol)
        found = [_calibrated_points(frontier, name, _POINTS_OF_ONE) for name in names]
        if any(found):
            return [design for designs in found for design in designs]
    return []


def _by_bound(protocol: str, target: Requirements) -> list[Design]:
    """
    Return designs by the paper's bound, or one with a note if no noise is enough for it.

    The frontier knows every such bound up to a factor. It is searched for fractional and for whole
    numbers of dummies, which bounds count best.
    """
    row, note, designs = PROTOCOLS[protocol], _NOTES.get(protocol, ""), list[Design]()
    names = [name for group in _LIKE.get(protocol, ((protocol,),)) for name in group]
    for whole in (False, True):

        def design_at(tightness: float, *, whole: bool = whole) -> Design | None:
            known = [Tightness(1, tightness)]
            frontier = Frontier(target, protocol, {True: known, False: known}, whole=whole)
            points = [points[0] for name in names if (points := frontier.points(name))]
            best = min(points, key=lambda point: point.mse, default=None)
            return None if best is None else frontier.design(best, tightness)

        with contextlib.suppress(PlanError):
            designs.append(least_noisy(target, protocol, design_at, excess_of, slack=_SLACK))
    if not designs and not row.noiseless:
        epsilon, size = min(target.central_epsilon, target.noise_cap), target.domain_size
        buckets = optimal_buckets(epsilon, size) if row.hashes and len(fields(size)) else 0
        designs = [Design.of(protocol, target, buckets=buckets, local_epsilon=epsilon)]
        note = "; ".join(filter(None, (_OUT_OF_REACH, note)))
    return [dataclasses.replace(design, note=note) for design in designs]


def _first_points(frontier: Frontier, names: tuple[str, ...]) -> list[SearchPoint]:
    """Return each protocol's point with the least approximate error, the best protocol first."""
    by_protocol = [frontier.points(name) for name in names]
    best = [min(points, key=lambda point: point.mse) for points in by_protocol if points]
    return sorted(best, key=lambda point: point.mse)


def _least(frontier: Frontier, names: tuple[str, ...], target: Requirements) -> float:
    """Approximate the least error under other requirements, with what the frontier knows."""
    points = _first_points(dataclasses.replace(frontier, target=target), names)
    return points[0].mse if points else math.inf


def _calibrated_points(frontier: Frontier, protocol: str, most: int) -> list[Design]:
    """Return a protocol's best design, if any, after calibrating the frontier at `most` points."""
    seen: list[SearchPoint] = []
    designs: list[Design] = []
    for _ in range(most):
        points = frontier.points(protocol)
        if not points or any(_same(points[0], point) for point in seen):
            break
        seen.append(points[0])
        calibrated = _calibrated(frontier, points[0])
        if calibrated is None:
            break
        design, tightness = calibrated
        if points[0].dummies_per_user > design.draft.dummies_per_user == 0:
            break  # without dummies, it is another protocol
        known = frontier.known[PROTOCOLS[protocol].hashes]
        known.append(Tightness(points[0].answers, tightness))
        designs.append(design)
    return sorted(designs, key=lambda design: design.mse)[:1]


def _same(point: SearchPoint, other: SearchPoint) -> bool:
    return math.isclose(point.answers, other.answers, rel_tol=_SAME) and math.isclose(
        point.dummies_per_user, other.dummies_per_user, rel_tol=_SAME
    )


def _calibrated(frontier: Frontier, point: SearchPoint) -> tuple[Design, float] | None:
    """Return the point's least noisy design that meets the target, and its tightness; or None."""

    def attempt(tightness: float) -> tuple[Design | None, float]:
        design = frontier.design(point, tightness)
        if design is None:  # this tightness needs more dummies than are allowed
            return None, -math.inf
        excess = excess_of(design)
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
        if noisiest is not None and excess_of(noisiest) <= 0:
            best = (noisiest, -_ONLY_CAPS)
    return best
