"""
Find the best design of every protocol: approximate, calibrate with the exact accountant, repeat.

Pure.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from common.task.task import MAX_LOCAL_EPSILON
from deploy.planning.calibration import Calibrated, calibrate
from deploy.planning.frontier import (
    CLOSE_ENOUGH,
    HASHED,
    Frontier,
    ProtocolName,
    SearchPoint,
    Tightness,
)
from deploy.planning.requirements import Requirements
from deploy.planning.shuffler_noise import approximate_shuffler_mse, shuffler_designs

_MAX_POINTS: Final = 5
"""Points of one protocol that the exact accountant is asked about."""
_MAX_FAR_POINTS: Final = 2
_FAR_FACTOR: Final = 1.25
"""A protocol whose approximate error exceeds the best by this factor gets fewer points."""
_SAME: Final = 0.03
"""A relative difference of answers and dummies that hardly moves the error."""

_Known = Mapping[bool, tuple[Tightness, ...]]
"""By whether reports are hashed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolSearch:
    """Designs that the exact accountant confirmed, and how tight the approximation was."""

    frontier: Frontier
    found: tuple[Calibrated, ...]
    """The best of each protocol; first the best of all, the others by error."""
    known: _Known

    @classmethod
    def of(cls, wanted: Requirements) -> Self:
        """
        Search every protocol that the requirements leave room for; there is always one.

        Cost: some twenty evaluations of δ; of compositions if there are several rounds.
        """
        frontier = Frontier(wanted)
        first = _first_points(frontier, {})
        known: dict[bool, tuple[Tightness, ...]] = {}
        found: list[Calibrated] = []
        for point in first:
            most = _MAX_POINTS if point.mse <= _FAR_FACTOR * first[0].mse else _MAX_FAR_POINTS
            if wanted.rounds > 1:
                most = math.ceil(most / 2)  # a composition takes ten times as long
            found += _search_protocol(frontier, point.protocol, known, most)
        if wanted.trust == "shuffler-dummies":
            found += shuffler_designs(wanted)
        return cls(frontier=frontier, found=_ranked(found), known=known)

    @property
    def best(self) -> Calibrated:
        """The design with the least error."""
        return self.found[0]

    def approximate_mse(self, **changes: Any) -> float:  # noqa: ANN401  # fields of Requirements
        """Approximate the least error under changed requirements; milliseconds, never stated."""
        frontier = Frontier(dataclasses.replace(self.frontier.wanted, **changes))
        of_users = min(point.mse for point in _first_points(frontier, self.known))
        return min(of_users, approximate_shuffler_mse(frontier.wanted))

    def best_if(self, **changes: Any) -> Calibrated:  # noqa: ANN401  # fields of Requirements
        """Find the best design under changed requirements; only the most promising is checked."""
        frontier = Frontier(dataclasses.replace(self.frontier.wanted, **changes))
        known = dict(self.known)
        point = _first_points(frontier, known)[0]
        if approximate_shuffler_mse(frontier.wanted) < point.mse:
            return _ranked(shuffler_designs(frontier.wanted))[0]
        return _ranked(_search_protocol(frontier, point.protocol, known, _MAX_FAR_POINTS))[0]


def best_of(protocol: ProtocolName, wanted: Requirements) -> Calibrated | None:
    """
    Find the best design of one protocol; None if it cannot keep the guarantee under the caps.

    Cost: some three evaluations of δ.
    """
    found = _search_protocol(Frontier(wanted), protocol, {}, _MAX_FAR_POINTS)
    return found[0] if found else None


def _first_points(frontier: Frontier, known: _Known) -> list[SearchPoint]:
    """Return the most promising point of every protocol, by approximate error."""
    points = [frontier.points(name, known.get(name in HASHED, ())) for name in frontier.protocols()]
    best = [min(each, key=lambda point: point.mse) for each in points if each]
    return sorted(best, key=lambda point: point.mse)


def _search_protocol(
    frontier: Frontier,
    protocol: ProtocolName,
    known: dict[bool, tuple[Tightness, ...]],
    most: int,
) -> list[Calibrated]:
    """Calibrate points of one protocol until the best stands; add to `known`; return the best."""
    hashed = protocol in HASHED
    seen: list[SearchPoint] = []
    found: list[Calibrated] = []
    for _ in range(most):
        points = frontier.points(protocol, known.get(hashed, ()))
        if not points or any(_same(points[0], point) for point in seen):
            break
        seen.append(points[0])
        tightness = _nearest(known.get(hashed, ()), points[0].answers)
        design = calibrate(frontier, points[0], tightness)
        if design is None or points[0].dummies_per_user > design.design.dummies_per_user == 0:
            break  # without its dummies it is another protocol
        known[hashed] = (*known.get(hashed, ()), design.tightness)
        found.append(design)
    return sorted(found, key=lambda each: each.mse)[:1]


def _ranked(found: Iterable[Calibrated]) -> tuple[Calibrated, ...]:
    """
    Put the best first, the others by error.

    Of those within CLOSE_ENOUGH of the best, fewer reports and then a smaller local ε win.
    """
    by_error = sorted(found, key=lambda each: each.mse)
    names = {each.design.protocol for each in by_error}
    # At the largest local ε the noisy protocol is the noiseless one under another name.
    noiseless = {"mixdump": "puredump", "od-hp": "fe1"}
    by_error = [
        each
        for each in by_error
        if noiseless.get(each.design.protocol) not in names
        or each.design.local_epsilon < MAX_LOCAL_EPSILON
    ]
    close = [each for each in by_error if each.mse <= CLOSE_ENOUGH * by_error[0].mse]
    best = min(close, key=lambda each: (each.design.bytes_per_user, each.design.local_epsilon))
    return (best, *(each for each in by_error if each is not best))


def _same(one: SearchPoint, other: SearchPoint) -> bool:
    return math.isclose(one.answers, other.answers, rel_tol=_SAME) and math.isclose(
        one.dummies_per_user, other.dummies_per_user, rel_tol=_SAME
    )


def _nearest(known: Iterable[Tightness], answers: int) -> float:
    nearest = min(known, key=lambda each: abs(math.log(each.answers / answers)), default=None)
    return 0.0 if nearest is None else nearest.log_factor
