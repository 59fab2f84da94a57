"""The charts of an audit, as lines and marks on a plane: drawn once, without any script."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeGuard

from deploy.audit.finding import Curve, CurvePoint, Finding
from deploy.pages.figures import count, gained, privacy, scientific

WIDTH: Final = 400
HEIGHT: Final = 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 386, 14, 228
"""Edges of the plane of a curve."""
_TICK_ROOM: Final = 76.0
"""Least distance between two ticks with names."""
_MAX_POWERS: Final = 6
_SHORT: Final = 6
"""Half of the length of a line of one point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveChart:
    """
    ε against the share of colluding users, in a plane of WIDTH by HEIGHT.

    ε is on a logarithmic scale; points are spaced by the logarithm of the users left.
    """

    title: str
    description: str
    delta: str
    x_ticks: tuple[tuple[float, str, str], ...]
    """Place, share of colluding users, users left."""
    y_ticks: tuple[tuple[float, str], ...]
    claim: tuple[str, ...]
    """Points of polylines; they break where nothing finite is claimed."""
    attack: tuple[str, ...]
    measured: tuple[tuple[float, float], ...]
    nothing: tuple[float, ...]
    """Places at which a measurement shows nothing."""
    breaks: bool
    """Whether somewhere nothing is claimed."""
    rows: tuple[tuple[str, str, str, str, str], ...]
    """Share, users left, claim, attack, measured."""


def curve_chart(curve: Curve) -> CurveChart:
    """Draw a curve; its points may come in any order, and there is at least one."""
    points = sorted(curve.points, key=lambda point: point.colluding)
    figures = [f for p in points for f in (p.claim, p.attack, p.measured) if _drawn(f)]
    low = math.floor(math.log10(min(figures, default=1.0)))
    high = max(low + 1, math.ceil(math.log10(max(figures, default=1.0))))
    most, least = (math.log(max(1, points[end].honest)) for end in (0, -1))
    places = [
        _LEFT + (_RIGHT - _LEFT) * (most - math.log(max(1, point.honest))) / ((most - least) or 1.0)
        for point in points
    ]

    def up(figure: float) -> float:
        return round(_BOTTOM - (_BOTTOM - _TOP) * (math.log10(figure) - low) / (high - low), 1)

    def lines(figures: Iterable[float | None]) -> tuple[str, ...]:
        """Join the points between gaps: a line across one could lie above the claim."""
        found: list[list[tuple[float, float]]] = [[]]
        for x, figure in zip(places, figures, strict=True):
            if _drawn(figure):
                found[-1].append((x, up(figure)))
            else:
                found.append([])
        return tuple(_polyline(_visible(line)) for line in found if line)

    measured = [(round(x, 1), p.measured) for x, p in zip(places, points, strict=True)]
    powers = range(low, high + 1, 1 + (high - low) // _MAX_POWERS)
    return CurveChart(
        title=curve.title,
        description=_description(points),
        delta=privacy(curve.delta),
        x_ticks=tuple(_x_ticks(points, places)),
        y_ticks=tuple((up(10.0**power), scientific(10.0**power)) for power in powers),
        claim=lines(point.claim for point in points),
        attack=lines(point.attack for point in points),
        measured=tuple((x, up(figure)) for x, figure in measured if _drawn(figure)),
        nothing=tuple(x for x, figure in measured if figure == 0),
        breaks=any(math.isinf(point.claim) for point in points),
        rows=tuple(
            (
                _share(point),
                count(point.honest),
                privacy(point.claim),
                "–" if point.attack is None else gained(point.attack),
                "–" if point.measured is None else gained(point.measured),
            )
            for point in points
        ),
    )


def claim_line(finding: Finding) -> tuple[tuple[float, float], ...]:
    """Return the corners of the line that no attack may lie above; none without a claim."""
    if finding.claim_epsilon is None or math.isinf(finding.claim_epsilon):
        return ()
    delta = finding.delta or 0.0
    turn = (1 - delta) / (1 + math.exp(min(finding.claim_epsilon, 700.0)))
    return (0.0, 0.0), (0.0, delta), (turn, 1 - turn), (1 - delta, 1.0), (1.0, 1.0)


def allowed_rate(false: float, finding: Finding) -> str:
    """Write the highest true positive rate that the claim allows, from both directions of it."""
    if finding.claim_epsilon is None or math.isinf(finding.claim_epsilon):
        return "no limit"
    epsilon, delta = finding.claim_epsilon, finding.delta or 0.0
    up = math.exp(min(epsilon, 700.0)) * false + delta
    down = 1 - math.exp(-epsilon) * (1 - false - delta)
    return scientific(min(1.0, up, down))


def roc_description(finding: Finding) -> str:
    """Describe how well a row's attack tells two values apart, beside what its claim allows."""
    false, true = max(finding.roc, key=lambda point: point[1] - point[0])
    allowed = (
        f"; the claim, ε = {privacy(finding.claim_epsilon or 0.0)}, allows a true positive rate of "
        f"{allowed_rate(false, finding)} there"
        if claim_line(finding)
        else "; nothing is claimed that would limit it"
    )
    return (
        "Where the attack tells the two values apart best, its true positive rate is "
        f"{scientific(true)} and its false positive rate {scientific(false)}{allowed}."
    )


def _drawn(figure: float | None) -> TypeGuard[float]:
    return figure is not None and 0 < figure < math.inf


def _visible(line: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Widen a single point to a short line."""
    if len(line) > 1:
        return line
    [(x, y)] = line
    return [(max(_LEFT, x - _SHORT), y), (min(_RIGHT, x + _SHORT), y)]


def _x_ticks(
    points: Sequence[CurvePoint], places: Sequence[float]
) -> Iterable[tuple[float, str, str]]:
    """Name the ends, and those between them that have room."""
    taken = -math.inf
    for point, place in zip(points, places, strict=True):
        last = point is points[-1]
        if last or (place >= taken + _TICK_ROOM and place <= places[-1] - _TICK_ROOM):
            yield round(place, 1), _share(point), count(point.honest)
            taken = place


def _polyline(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _description(points: Sequence[CurvePoint]) -> str:
    ends = (points[0], points[-1]) if len(points) > 1 else points
    return " ".join(
        f"With {_share(point)} of the users colluding, {count(point.honest)} left: ε claimed: "
        f"{privacy(point.claim)}"
        + ("" if point.attack is None else f"; an attack gets {gained(point.attack)}")
        + "."
        for point in ends
    )


def _share(point: CurvePoint) -> str:
    return f"{100 * point.colluding:.6g}\N{NO-BREAK SPACE}%"
