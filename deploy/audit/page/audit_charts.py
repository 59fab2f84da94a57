"""The charts of an audit, as lines and marks on a plane: drawn once, without any script."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from deploy.audit.finding import Curve, CurvePoint, Finding
from deploy.pages.figures import count, gained, privacy, scientific

WIDTH: Final = 400
HEIGHT: Final = 290
SIDE: Final = 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 14, 14, 62
_ROC_LEFT, _ROC_TOP, _ROC_SPAN = 40, 8, 180
_DECADE: Final = 10.0
_CLOSE: Final = 0.02
"""Shares of colluding users that lie closer than this are told apart by who is left."""
_LETTER: Final = 7.0
"""Width of a character of a tick's name, no less."""
_NUDGE: Final = 8.0
"""By which the names of the first and the last tick reach beyond them."""
_CLAIM_POINTS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A mark on an axis."""

    place: float
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveChart:
    """ε against the share of colluding users, in a plane of WIDTH by HEIGHT."""

    title: str
    told: str
    """What it shows, for who cannot see it."""
    delta: str
    across: str
    """What lies along the axis at the bottom."""
    logarithmic: bool
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    claim: tuple[str, ...]
    """Lines, each the points of a polyline; they break where nothing finite is claimed."""
    attack: tuple[str, ...]
    measured: tuple[tuple[float, float], ...]
    nothing: tuple[tuple[float, float], ...]
    """Where what was measured shows nothing and the axis has no 0."""
    breaks: bool
    """Whether somewhere nothing is claimed."""
    rows: tuple[tuple[str, str, str, str, str], ...]
    """Share, who is left, claim, attack, measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RocChart:
    """How often an attack is right against how often it is wrong, in a square plane."""

    title: str
    told: str
    measured: str
    """Points of a polyline."""
    claim: str
    """Points of the line that no attack may lie above; empty where nothing is claimed."""
    allowed: str
    rows: tuple[tuple[str, str, str], ...]
    """False and true positive rate, and the most that the claim allows."""


def curve_chart(curve: Curve) -> CurveChart:
    """Draw a curve; its points may come in any order, and there is at least one."""
    points = sorted(curve.points, key=lambda point: point.colluding)
    across, by_who_is_left = _across(points)
    figures = [f for p in points for f in (p.claim, p.attack, p.measured) if f is not None]
    known = [figure for figure in figures if 0 < figure < math.inf] or [1.0]
    logarithmic = max(known) / min(known) > _DECADE
    up, y_ticks = (_logarithmic if logarithmic else _linear)(min(known), max(known))
    places = [across(point) for point in points]
    floor = HEIGHT - _BOTTOM
    measured = [(x, p.measured) for x, p in zip(places, points, strict=True)]
    seen = [(x, figure) for x, figure in measured if figure is not None and figure < math.inf]
    off = logarithmic
    claims = [(x, p.claim) for x, p in zip(places, points, strict=True)]
    attacks = [(x, p.attack) for x, p in zip(places, points, strict=True)]
    return CurveChart(
        title=curve.title,
        told=_told(points),
        delta=privacy(curve.delta),
        across=(
            "share of users who collude, spaced by the logarithm of who is left"
            if by_who_is_left
            else "share of users who collude"
        ),
        logarithmic=logarithmic,
        x_ticks=tuple(_x_ticks(points, places)),
        y_ticks=y_ticks,
        claim=_lines(claims, up, above_0=off),
        attack=_lines(attacks, up, above_0=off),
        measured=tuple((round(x, 1), up(f)) for x, f in seen if f > 0 or not off),
        nothing=tuple((round(x, 1), float(floor)) for x, f in seen if f == 0 and off),
        breaks=any(math.isinf(point.claim) for point in points),
        rows=tuple(
            (
                _share(p.colluding),
                count(p.honest),
                privacy(p.claim),
                _gained(p.attack),
                _gained(p.measured),
            )
            for p in points
        ),
    )


def roc_chart(finding: Finding) -> RocChart:
    """Draw how well a row's attack tells two values apart, beside what its claim allows."""
    claimed = finding.claim_epsilon is not None and math.isfinite(finding.claim_epsilon)
    epsilon, delta = finding.claim_epsilon or 0.0, finding.delta or 0.0
    line = _allowed_line(epsilon, delta) if claimed else ()
    corner = [(1.0, 0.0), (0.0, 0.0)]
    best = max(finding.roc, key=lambda point: point[1] - point[0])
    allowed = (
        f"; the claim, ε = {privacy(epsilon)}, allows a true positive rate of "
        f"{_rate(_most(best[0], epsilon, delta))} there"
        if claimed
        else "; nothing is claimed that would limit it"
    )
    return RocChart(
        title=finding.title,
        told=(
            "Where the attack tells the two values apart best, its true positive rate is "
            f"{_rate(best[1])} and its false positive rate {_rate(best[0])}{allowed}."
        ),
        measured=_polyline(map(_on_the_square, finding.roc)),
        claim=_polyline(map(_on_the_square, line)),
        allowed=_polyline(map(_on_the_square, [*line, *corner])) if line else "",
        rows=tuple(
            (_rate(f), _rate(t), _rate(_most(f, epsilon, delta)) if claimed else "no limit")
            for f, t in finding.roc
        ),
    )


def _most(false: float, epsilon: float, delta: float) -> float:
    """Give the highest true positive rate that (ε, δ) allows, from both directions of it."""
    up = math.exp(min(epsilon, 700.0)) * false + delta
    down = 1 - math.exp(-epsilon) * (1 - false - delta)
    return min(1.0, up, down)


def _allowed_line(epsilon: float, delta: float) -> tuple[tuple[float, float], ...]:
    """Spread points over the line, thickest where it turns near 0."""
    steps = range(_CLAIM_POINTS + 1)
    rates = sorted({(step / _CLAIM_POINTS) ** 3 for step in steps} | {k / 20 for k in range(21)})
    return ((0.0, 0.0), *((rate, _most(rate, epsilon, delta)) for rate in rates))


def _on_the_square(point: tuple[float, float]) -> tuple[float, float]:
    return _ROC_LEFT + _ROC_SPAN * point[0], _ROC_TOP + _ROC_SPAN * (1 - point[1])


def _across(points: Sequence[CurvePoint]) -> tuple[Callable[[CurvePoint], float], bool]:
    """Give the place of a point from left to right, and whether it is by who is left."""
    width = WIDTH - _LEFT - _RIGHT
    shares = [point.colluding for point in points]
    gaps = [after - before for before, after in pairwise(shares)]
    if gaps and min(gaps) < _CLOSE * max(shares[-1], _CLOSE):
        most, least = (math.log(max(1, points[end].honest)) for end in (0, -1))
        span = most - least or 1.0
        return lambda p: _LEFT + width * (most - math.log(max(1, p.honest))) / span, True
    reach = shares[-1] or 1.0
    return lambda p: _LEFT + width * p.colluding / reach, False


def _x_ticks(points: Sequence[CurvePoint], places: Sequence[float]) -> list[Tick]:
    """Name the ends, and what has room between them."""
    last = len(points) - 1
    ticks = [
        Tick(place=round(place, 1), names=(_share(point.colluding), count(point.honest)))
        for point, place in zip(points, places, strict=True)
    ]
    if last == 0:
        return ticks
    kept, taken = [ticks[0]], ticks[0].place - _NUDGE + _width(ticks[0])
    end = ticks[last].place + _NUDGE - _width(ticks[last])
    for tick in ticks[1:last]:
        left, right = (tick.place + side * _width(tick) / 2 for side in (-1, 1))
        if left > taken + _LETTER and right + _LETTER < end:
            kept.append(tick)
            taken = right
    return [*kept, ticks[last]]


def _width(tick: Tick) -> float:
    return _LETTER * max(map(len, tick.names))


def _logarithmic(low: float, high: float) -> tuple[Callable[[float], float], tuple[Tick, ...]]:
    least, most = math.floor(math.log10(low)), math.ceil(math.log10(high))
    top, bottom = _TOP, HEIGHT - _BOTTOM
    span = max(1, most - least)

    def up(figure: float) -> float:
        return round(bottom - (bottom - top) * (math.log10(figure) - least) / span, 1)

    step = 1 + (most - least) // 6
    powers = range(least, most + 1, step)
    return up, tuple(Tick(place=up(10.0**power), names=(_power(power),)) for power in powers)


def _power(power: int) -> str:
    return f"{10.0**power:g}" if -4 <= power <= 4 else privacy(10.0**power)  # noqa: PLR2004


def _linear(low: float, high: float) -> tuple[Callable[[float], float], tuple[Tick, ...]]:
    del low
    step = 10.0 ** math.floor(math.log10(high))
    step = next(s for s in (step / 5, step / 2, step, 2 * step) if math.ceil(high / s) <= 6)  # noqa: PLR2004
    steps = math.ceil(high / step - 1e-9)
    top, bottom = _TOP, HEIGHT - _BOTTOM

    def up(figure: float) -> float:
        return round(bottom - (bottom - top) * figure / (steps * step), 1)

    return up, tuple(Tick(place=up(k * step), names=(f"{k * step:.6g}",)) for k in range(steps + 1))


def _lines(
    points: Iterable[tuple[float, float | None]],
    up: Callable[[float], float],
    *,
    above_0: bool,
) -> tuple[str, ...]:
    """Join what can be drawn; a line of one point is as short as can be seen."""
    lines: list[list[tuple[float, float]]] = [[]]
    for x, figure in points:
        # Across a place that was not worked out a line could lie above the claim.
        if figure is None or math.isinf(figure) or (above_0 and figure <= 0):
            lines.append([])
        else:
            lines[-1].append((x, up(figure)))
    return tuple(_polyline(_seen(line)) for line in lines if line)


def _seen(line: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Give a single point some length."""
    if len(line) > 1:
        return line
    [(x, y)] = line
    return [(max(_LEFT, x - 6), y), (min(WIDTH - _RIGHT, x + 6), y)]


def _polyline(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _told(points: Sequence[CurvePoint]) -> str:
    parts = []
    for point in (points[0], points[-1]) if len(points) > 1 else points[:1]:
        attack = "" if point.attack is None else f"; an attack gets {gained(point.attack)}"
        parts.append(
            f"With {_share(point.colluding)} of the users colluding, {count(point.honest)} left: "
            f"ε claimed: {privacy(point.claim)}{attack}."
        )
    return " ".join(parts)


def _share(colluding: float) -> str:
    return f"{100 * colluding:.6g}\N{NO-BREAK SPACE}%"


def _gained(epsilon: float | None) -> str:
    return "–" if epsilon is None else gained(epsilon)


def _rate(rate: float) -> str:
    return scientific(rate)
