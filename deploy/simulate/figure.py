"""Pictures of a comparison: the error against the target, and how long each protocol took."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.errors import SettingsError
from deploy.simulate.baselines.central_error import GAUSSIAN, LAPLACE
from deploy.simulate.row import Row

_COLOURS: Final = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#7F3C8D",
    "#000000",
)
"""Told apart by the colour-blind [Okabe-Ito]."""
_MARKERS: Final = "osD^vPX*"
_CENTRAL: Final = {LAPLACE: ":", GAUSSIAN: "--"}
_ESTIMATES: Final = {"mse": "as debiased", "mse_refined": "as refined"}
_DPI: Final = 150


def draw(
    rows: Sequence[Row],
    central: Mapping[float, Mapping[str, float]],
    *,
    title: str,
    remarks: Sequence[str] = (),
) -> Figure:
    """
    Draw the error against ε for every accounting, debiased and refined, and the time as bars.

    Args:
        rows: Of a sweep; refused ones are left out.
        central: For each target, the error of central mechanisms by name.
        title: What was collected from whom.
        remarks: Sentences under the picture.
    """
    shown = [row for row in rows if row.task is not None]
    if not shown:
        raise SettingsError("every setting was refused; there is nothing to draw")
    accountings = list(dict.fromkeys(row.setting.accounting for row in shown))
    names = list(dict.fromkeys(row.setting.protocol for row in shown))
    with mpl.rc_context({"font.size": 9, "axes.grid": True, "grid.alpha": 0.25}):
        figure = Figure(figsize=(11, 3.6 * (len(accountings) + 1)), layout="constrained")
        panels = figure.subplots(len(accountings) + 1, 2, squeeze=False)
        for line, accounting in enumerate(accountings):
            chosen = [row for row in shown if row.setting.accounting == accounting]
            for axes, estimate in zip(panels[line], _ESTIMATES, strict=True):
                _errors(axes, chosen, names, central, estimate)
                bound = "own published bound" if accounting == "published" else "tight accounting"
                axes.set_title(f"{bound}, {_ESTIMATES[estimate]}")
        _share_limits([axes for line in panels[:-1] for axes in line])
        _times(panels[-1][0], shown, names)
        _legend(panels[-1][1], panels[0][0])
        figure.suptitle(title, fontsize=11)
        figure.supxlabel("\n".join(remarks) or " ", fontsize=8, ha="center")
    return figure


def _errors(
    axes: Axes,
    rows: Sequence[Row],
    names: Sequence[str],
    central: Mapping[float, Mapping[str, float]],
    estimate: str,
) -> None:
    for place, name in enumerate(names):
        points = [
            (row.setting.target_epsilon, row.errors[estimate])
            for row in rows
            if row.setting.protocol == name
        ]
        if not points:
            continue
        axes.errorbar(
            [epsilon for epsilon, _ in points],
            [error.mean for _, error in points],
            yerr=[error.standard_error for _, error in points],
            **_style(place),
            label=name,
        )
    for name, dashes in _CENTRAL.items():
        targets = sorted(central)
        errors = [central[target][name] for target in targets]
        style: dict[str, Any] = {
            "linestyle": dashes,
            "color": "#555555",
            "linewidth": 1,
            "label": name,
        }
        if len(targets) == 1:
            axes.axhline(errors[0], **style)
            axes.set_xticks(targets)
        else:
            axes.plot(targets, errors, **style)
    axes.set_yscale("log")
    axes.set_xlabel("central ε against the analyzer")
    axes.set_ylabel("mean squared error of a share")


def _style(place: int) -> dict[str, Any]:
    return {
        "color": _COLOURS[place % len(_COLOURS)],
        "marker": _MARKERS[(place + place // len(_COLOURS)) % len(_MARKERS)],
        "markersize": 4,
        "linewidth": 1.4,
        "capsize": 2,
    }


def _share_limits(panels: Sequence[Axes]) -> None:
    """One scale for all, so that panels can be compared by eye."""
    low = min(axes.get_ylim()[0] for axes in panels)
    high = max(axes.get_ylim()[1] for axes in panels)
    for axes in panels:
        axes.set_ylim(low, high)


def _times(axes: Axes, rows: Sequence[Row], names: Sequence[str]) -> None:
    """Seconds of one collection at the least target, by accounting."""
    least = min(row.setting.target_epsilon for row in rows)
    accountings = list(dict.fromkeys(row.setting.accounting for row in rows))
    width = 0.8 / len(accountings)
    for number, accounting in enumerate(accountings):
        seconds = {
            row.setting.protocol: row.seconds
            for row in rows
            if row.setting.accounting == accounting and row.setting.target_epsilon == least
        }
        bars = axes.bar(
            [place + (number - (len(accountings) - 1) / 2) * width for place in range(len(names))],
            [seconds.get(name, math.nan) for name in names],
            width,
            color=["#9AA5B1", "#4B5B6B"][number % 2],
            label=accounting,
        )
        sampled = {
            row.setting.protocol
            for row in rows
            if row.setting.accounting == accounting
            and row.setting.target_epsilon == least
            and not row.one_by_one
        }
        for name, bar in zip(names, bars, strict=True):
            if name in sampled:
                bar.set_hatch("//")
    axes.set_xticks(range(len(names)), names, rotation=20, ha="right")
    axes.set_ylabel("seconds")
    axes.set_title(
        f"one collection at ε = {least:g}, unsealed, all cores busy\n"
        "hatched: counts drawn, not messages"
    )
    axes.legend(title="parameters by", fontsize=8)


def _legend(axes: Axes, of: Axes) -> None:
    axes.axis("off")
    axes.legend(*of.get_legend_handles_labels(), loc="center", ncols=2, frameon=False)


def save(figure: Figure, path: Path) -> tuple[Path, Path]:
    """
    Write a picture as PNG and as SVG, under one name.

    Raises:
        SettingsError: It cannot be written.
    """
    written = (path.with_suffix(".png"), path.with_suffix(".svg"))
    try:
        for each in written:
            figure.savefig(each, dpi=_DPI)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from error
    return written
