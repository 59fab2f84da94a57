"""Pictures of comparisons and experiments: panels of series, drawn by one function."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final, Self

from common.errors import SettingsError
from deploy.simulate.baselines import CENTRAL_NAMES
from deploy.simulate.errors import Summary
from deploy.simulate.row import SweepRow

_COLOURS: Final = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F3C8D", "#000000"),
)
"""Distinct to the colour-blind [Okabe-Ito]."""
_MARKERS: Final = "osD^vPX*"
_DPI: Final = 150
_WIDTH, _HEIGHT = 5.5, 3.7
"""Of a panel, in inches."""
_ESTIMATES: Final = {"mse": "as debiased", "mse_refined": "as refined", "mse_shrunk": "as shrunk"}
_BOUNDS: Final = {"published": "own published bound", "tight": "tight accounting"}
_NO_MATPLOTLIB: Final = (
    "a figure needs matplotlib: install shuffledp with its extra research "
    "(pip install 'shuffledp[research]'), or matplotlib beside it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points of one name, with whiskers."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] = ()
    """Half lengths of whiskers; none without."""
    line: str = "-"
    """As matplotlib has it; a series without a marker is a reference line."""
    marked: bool = True
    colour: int | None = None
    """Number of its colour; without it, the place among the panel's series."""

    @classmethod
    def of(cls, name: str, errors: Mapping[float, Summary]) -> Self:
        """Make a series of errors by x, with their standard errors as whiskers."""
        return cls(
            name=name,
            x=list(errors),
            y=[error.mean for error in errors.values()],
            error=[error.standard_error for error in errors.values()],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Axes with their series."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log: bool = True
    """Whether the y axis is logarithmic."""
    ticks: Mapping[float, str] = field(default_factory=dict)
    """Names of places on the x axis; numbers without."""
    scale: str = ""
    """Panels of one name share their y axis, so that they can be compared by eye."""


def draw(
    panels: Sequence[Panel], path: Path, *, title: str, remarks: Sequence[str] = ()
) -> tuple[Path, Path]:
    """
    Draw panels in two columns, with one legend for each, as PNG and as SVG under one name.

    Args:
        panels: The panels, row by row.
        path: Name of the files, with or without an ending.
        title: Above all panels.
        remarks: Sentences below them.

    Returns:
        The paths of the two files.

    Raises:
        SettingsError: There is nothing to draw, matplotlib is not installed, or the files cannot be
            written.
    """
    if not panels:
        raise SettingsError("every setting was refused; there is nothing to draw")
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
        figures: Any = importlib.import_module("matplotlib.figure")
    except ModuleNotFoundError as error:
        raise SettingsError(_NO_MATPLOTLIB) from error
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    with matplotlib.rc_context({"font.size": 9, "axes.grid": True, "grid.alpha": 0.25}):
        size = (_WIDTH * columns, _HEIGHT * rows + 0.6)
        figure = figures.Figure(figsize=size, layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for each, panel in zip(axes, panels, strict=False):
            _draw_panel(each, panel)
        for each in axes[len(panels) :]:
            each.axis("off")
        _share_scales(axes, panels)
        figure.suptitle(title, fontsize=11)
        figure.supxlabel("\n".join(remarks) or " ", fontsize=8, ha="center")
    written = (path.with_suffix(".png"), path.with_suffix(".svg"))
    try:
        for file in written:
            figure.savefig(file, dpi=_DPI)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from error
    return written


def _draw_panel(axes: Any, panel: Panel) -> None:  # noqa: ANN401  # matplotlib's
    for place, series in enumerate(panel.series):
        number = place if series.colour is None else series.colour
        style = {
            "color": _COLOURS[number % len(_COLOURS)] if series.marked else "#555555",
            "linestyle": series.line,
            "linewidth": 1.4 if series.marked else 1,
            "label": series.name,
        }
        if not series.marked and len(series.x) == 1:
            axes.axhline(series.y[0], **style)
            continue
        marker = _MARKERS[number % len(_MARKERS)] if series.marked else ""
        whiskers = series.error or None
        axes.errorbar(
            series.x, series.y, yerr=whiskers, marker=marker, markersize=4, capsize=2, **style
        )
    if panel.log:
        axes.set_yscale("log")
    if panel.ticks:
        axes.set_xticks(list(panel.ticks), list(panel.ticks.values()), rotation=90, fontsize=7)
    axes.set_title(panel.title, fontsize=9)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.legend(fontsize=7)


def _share_scales(axes: Sequence[Any], panels: Sequence[Panel]) -> None:
    for scale in {panel.scale for panel in panels if panel.scale}:
        shared = [each for each, panel in zip(axes, panels, strict=False) if panel.scale == scale]
        limits = [each.get_ylim() for each in shared]
        for each in shared:
            each.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def comparison(rows: Sequence[SweepRow]) -> list[Panel]:
    """Return the errors against ε for every accounting and estimate, and the times of protocols."""
    rows = [row for row in rows if row.task is not None]
    panels = []
    accountings = list(dict.fromkeys(row.setting.accounting for row in rows))
    for accounting, (estimate, words) in product(accountings, _ESTIMATES.items()):
        chosen = [row for row in rows if row.setting.accounting == accounting]
        if any(estimate in row.errors for row in chosen):
            panels.append(
                Panel(
                    title=f"{_BOUNDS[accounting]}, {words}",
                    x_label="central ε against the analyzer",
                    y_label="mean squared error",
                    series=[*_errors(chosen, estimate), *_central(chosen)],
                    scale="errors",
                )
            )
    return [*panels, _times(rows, accountings)] if panels else []


def _errors(rows: Sequence[SweepRow], estimate: str) -> list[Series]:
    found: dict[str, dict[float, Summary]] = {}
    for row in rows:
        by_target = found.setdefault(row.setting.protocol, {})
        by_target[row.setting.target_epsilon] = row.errors[estimate]
    return [Series.of(name, by_target) for name, by_target in found.items()]


def _central(rows: Sequence[SweepRow]) -> list[Series]:
    known = {row.setting.target_epsilon: row.reference for row in rows if row.reference}
    targets = sorted(known)
    return [
        Series(
            name=CENTRAL_NAMES[name],
            x=targets,
            y=[known[target][name] for target in targets],
            line=line,
            marked=False,
        )
        for name, line in (("laplace_mse", ":"), ("gaussian_mse", "--"))
        if known
    ]


def _times(rows: Sequence[SweepRow], accountings: Sequence[str]) -> Panel:
    """Return the seconds of one collection at the least target."""
    least = min(row.setting.target_epsilon for row in rows)
    names = list(dict.fromkeys(row.setting.protocol for row in rows))
    series = []
    for accounting in accountings:
        chosen = [
            row
            for row in rows
            if (row.setting.accounting, row.setting.target_epsilon) == (accounting, least)
        ]
        places = [float(names.index(row.setting.protocol)) for row in chosen]
        seconds = [row.seconds for row in chosen]
        series.append(Series(name=f"parameters: {accounting}", x=places, y=seconds, line=""))
    sampled = {row.setting.protocol for row in rows if not row.one_by_one}
    return Panel(
        title=f"one collection at ε = {least:g}, unsealed, all cores busy\n"
        "*: counts drawn, not messages",
        x_label="",
        y_label="seconds",
        series=series,
        ticks={float(at): f"{name}{'*' * (name in sampled)}" for at, name in enumerate(names)},
    )
