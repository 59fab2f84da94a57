"""The best design of every protocol, found by drawing, judging and drawing again."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from common.task.task import MAX_LOCAL_EPSILON
from deploy.planning.calibration import Checked, calibrate
from deploy.planning.frontier import (
    CLOSE_ENOUGH,
    HASHED,
    Frontier,
    Place,
    ProtocolName,
    Verdict,
)
from deploy.planning.requirements import Wishes
from deploy.planning.shuffler_noise import drawn_mse, shuffler_designs

_MOST_PLACES: Final = 5
"""Places of one protocol that the exact accountant is asked about."""
_FAR_PLACES: Final = 2
_FAR: Final = 1.25
"""A protocol drawn worse than the best by this factor is judged at fewer places."""
_SAME: Final = 0.03
"""A relative difference of answers and dummies that moves the error by far less than itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What the exact accountant confirmed for some wishes, and what it said about the drawing."""

    frontier: Frontier
    found: tuple[Checked, ...]
    """The best of each protocol; first the best of all, the others by error."""
    verdicts: Mapping[bool, tuple[Verdict, ...]]
    """By whether reports are hashed."""

    @classmethod
    def of(cls, wishes: Wishes) -> Self:
        """
        Judge every protocol that the wishes leave room for. There always is one: blunt reports.

        Cost: some twenty evaluations of δ; of compositions if there are several rounds.
        """
        frontier = Frontier(wishes)
        drawn = _drawn(frontier, {})
        least = drawn[0].mse
        verdicts: dict[bool, tuple[Verdict, ...]] = {}
        found: list[Checked] = []
        for place in drawn:
            most = _MOST_PLACES if place.mse <= _FAR * least else _FAR_PLACES
            if wishes.rounds > 1:
                most = math.ceil(most / 2)  # a composition takes ten times as long
            found += _judged(frontier, place.protocol, verdicts, most)
        if wishes.trust == "shuffler-dummies":
            found += shuffler_designs(wishes)
        return cls(frontier=frontier, found=_in_order(found), verdicts=verdicts)

    @property
    def best(self) -> Checked:
        """The design with the least error."""
        return self.found[0]

    def drawn_mse(self, **changes: Any) -> float:  # noqa: ANN401  # fields of Wishes
        """Draw the least error if some wishes were different, in milliseconds; never stated."""
        frontier = Frontier(dataclasses.replace(self.frontier.wishes, **changes))
        drawn = min(place.mse for place in _drawn(frontier, self.verdicts))
        return min(drawn, _drawn_by_the_shuffler(frontier.wishes))

    def best_if(self, **changes: Any) -> Checked:  # noqa: ANN401  # fields of Wishes
        """Find the best design if some wishes were different, judging only what looks best."""
        frontier = Frontier(dataclasses.replace(self.frontier.wishes, **changes))
        verdicts = dict(self.verdicts)
        drawn = _drawn(frontier, verdicts)[0]
        if _drawn_by_the_shuffler(frontier.wishes) < drawn.mse:
            return _in_order(shuffler_designs(frontier.wishes))[0]
        return _in_order(_judged(frontier, drawn.protocol, verdicts, _FAR_PLACES))[0]


def best_of(protocol: ProtocolName, wishes: Wishes) -> Checked | None:
    """
    Find the best design of one protocol; None if it cannot keep the promise under the caps.

    Cost: some three evaluations of δ.
    """
    found = _judged(Frontier(wishes), protocol, {}, _FAR_PLACES)
    return found[0] if found else None


def _drawn_by_the_shuffler(wishes: Wishes) -> float:
    return drawn_mse(wishes) if wishes.trust == "shuffler-dummies" else math.inf


def _drawn(frontier: Frontier, verdicts: Mapping[bool, tuple[Verdict, ...]]) -> list[Place]:
    """Give the best place of every protocol, by error as drawn."""
    best = []
    for protocol in frontier.protocols():
        places = frontier.places(protocol, verdicts.get(protocol in HASHED, ()))
        if places:
            best.append(min(places, key=lambda place: place.mse))
    return sorted(best, key=lambda place: place.mse)


def _judged(
    frontier: Frontier,
    protocol: ProtocolName,
    verdicts: dict[bool, tuple[Verdict, ...]],
    most: int,
) -> list[Checked]:
    """Judge places of one protocol until the best has been; add to the verdicts; give the best."""
    kind = protocol in HASHED
    seen: list[Place] = []
    found: list[Checked] = []
    for _ in range(most):
        places = frontier.places(protocol, verdicts.get(kind, ()))
        if not places or any(_same(places[0], place) for place in seen):
            break
        seen.append(places[0])
        tightness = _nearest(verdicts.get(kind, ()), places[0].answers)
        checked = calibrate(frontier, places[0], tightness)
        if checked is None or places[0].dummies_per_user > checked.design.dummies_per_user == 0:
            break  # without its dummies it is another protocol
        verdicts[kind] = (*verdicts.get(kind, ()), checked.verdict)
        found.append(checked)
    return sorted(found, key=lambda checked: checked.mse)[:1]


def _in_order(found: Iterable[Checked]) -> tuple[Checked, ...]:
    """
    Put the best first, the others by error.

    Of those within CLOSE_ENOUGH of the best, fewer reports and then a smaller local ε win.
    """
    by_error = sorted(found, key=lambda checked: checked.mse)
    found_names = {checked.design.protocol for checked in by_error}
    # At the limit of their noise the one is the other under another name.
    for noisy, noiseless in (("mixdump", "puredump"), ("od-hp", "fe1")):
        if noiseless in found_names:
            by_error = [
                checked
                for checked in by_error
                if checked.design.protocol != noisy
                or checked.design.local_epsilon < MAX_LOCAL_EPSILON
            ]
    close = [each for each in by_error if each.mse <= CLOSE_ENOUGH * by_error[0].mse]
    best = min(close, key=lambda each: (each.design.bytes_per_user, each.design.local_epsilon))
    return (best, *(each for each in by_error if each is not best))


def _same(one: Place, other: Place) -> bool:
    return math.isclose(one.answers, other.answers, rel_tol=_SAME) and math.isclose(
        one.dummies_per_user, other.dummies_per_user, rel_tol=_SAME
    )


def _nearest(verdicts: Iterable[Verdict], answers: int) -> float:
    nearest = min(
        verdicts, key=lambda verdict: abs(math.log(verdict.answers / answers)), default=None
    )
    return 0.0 if nearest is None else nearest.tightness
