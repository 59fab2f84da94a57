"""Draw figures of comparisons and experiments with matplotlib."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from shuffledp.common.errors import SettingsError
from shuffledp.deploy.terminal.files import atomic_output
from shuffledp.lab.planning.central_mechanisms import CENTRAL_NAMES
from shuffledp.lab.simulate.sweep import SweepRow

_STYLE: Final = {"font.size": 9, "axes.grid": True, "grid.alpha": 0.25, "legend.fontsize": 7}
_WIDE: Final = 10
"""Ratio of heights from which on an axis is logarithmic."""
_ESTIMATES: Final = {"mse": "as debiased", "mse_refined": "as refined", "mse_shrunk": "as shrunk"}
_BOUNDS: Final = {"published": "each protocol's published bound", "tight": "tight accounting"}


class Axes(NamedTuple):
    """The title and axis labels of one panel."""

    title: str
    x: str
    y: str


class Point(NamedTuple):
    """A point of a series in one panel."""

    axes: Axes
    series: str
    x: float | str
    y: float
    error: float = 0.0
    """Half the length of the point's error bar."""


def draw(points: Sequence[Point], path: Path, *, title: str) -> tuple[Path, Path]:
    """
    Draw a panel for each `Axes` under one title; write PNG and SVG, and return their paths.

    A panel's y axis is logarithmic if all its points are above 0, some over ten times as high as
    others; else it starts at 0, if none is below. Raises SettingsError.
    """
    if not points:
        raise SettingsError("every setting was skipped, so there is nothing to draw")
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
        figures: Any = importlib.import_module("matplotlib.figure")
    except ModuleNotFoundError as error:
        raise SettingsError(
            "drawing needs matplotlib, which is not installed: pip install 'shuffledp[research]', "
            "or pip install matplotlib"
        ) from error
    panels = list(dict.fromkeys(point.axes for point in points))
    columns = min(2 + len(panels) % 2, len(panels))
    rows = -(-len(panels) // columns)
    with matplotlib.rc_context(_STYLE):
        size = 5.5 * columns, 3.7 * rows + 0.6  # inches
        figure = figures.Figure(figsize=size, layout="constrained")
        figure.suptitle(title)
        for number, panel in enumerate(panels, start=1):
            axes = figure.add_subplot(rows, columns, number)
            _draw_panel(axes, panel, [point for point in points if point.axes == panel])
    written = (path.with_suffix(".png"), path.with_suffix(".svg"))
    for file in written:
        with atomic_output(file) as scratch:
            figure.savefig(scratch, format=file.suffix[1:], dpi=150)
    return written


def _draw_panel(axes: Any, panel: Axes, points: Sequence[Point]) -> None:  # noqa: ANN401  # matplotlib is untyped
    label, (x, *more) = panel.x, dict.fromkeys(point.x for point in points)
    if not (more or isinstance(x, str)):  # one under the other, series would hide each other
        label += f": {x:g}"
        points = [point._replace(series="", x=point.series) for point in points]
    named = any(isinstance(point.x, str) for point in points)
    every = dict.fromkeys(point.series for point in points)
    for series in every:
        chosen = [point for point in points if point.series == series]
        axes.errorbar(
            [point.x for point in chosen],
            [point.y for point in chosen],
            yerr=[point.error for point in chosen],
            fmt="o" if named else "o-",
            markersize=4,
            capsize=2,
            label=series,
        )
    heights = [point.y for point in points]
    if 0 < _WIDE * min(heights) < max(heights):
        axes.set_yscale("log")
    elif min(heights) >= 0:
        axes.axhline(0, alpha=0)
        axes.set_ylim(bottom=0)
    if named:
        axes.tick_params(axis="x", rotation=90, labelsize=7)
    axes.set(title=panel.title, xlabel=label, ylabel=panel.y)
    if len(every) > 1:
        axes.legend()


def comparison(rows: Sequence[SweepRow]) -> list[Point]:
    """Return points for errors by ε, and for run times by protocol at the least ε."""
    rows = [row for row in rows if row.task is not None]
    points, central, time_points = [], [], []
    least = min((row.target_epsilon for row in rows), default=0)
    timed = [run.one_by_one for row in rows if row.target_epsilon == least for run in row.repeats]
    title = f"one collection at ε = {least:g}, unencrypted, all cores busy"
    drawn = "\n*: cell counts drawn, not reports" * (not all(timed))
    times = Axes(title + drawn, "", "seconds")
    for row in rows:
        target, fields = row.target_epsilon, row.as_json()
        for estimate in _ESTIMATES.keys() & row.errors.keys():
            title = f"{_BOUNDS[row.accounting]}, {_ESTIMATES[estimate]}"
            axes = Axes(title, "central ε against the analyzer", "mean squared error")
            error = row.errors[estimate]
            points.append(Point(axes, row.protocol, target, error.mean, error.half_width))
            central += [
                Point(axes, CENTRAL_NAMES[name], target, row.reference[name])
                for name in ("laplace_mse", "gaussian_mse")
                if name in row.reference
            ]
        if target == least:
            series, mark = f"parameters: {row.accounting}", "*" * (not fields["one_by_one"])
            place = times, series, row.protocol + mark
            time_points.append(Point(*place, fields["seconds"]))
    # Without duplicates: every protocol's row repeats the errors of the central mechanisms.
    return sorted(dict.fromkeys(points + central), key=lambda point: point.axes) + time_points
