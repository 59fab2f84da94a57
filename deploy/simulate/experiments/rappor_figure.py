"""Pictures of what RAPPOR decoded: the truth, and estimates with their standard errors."""

from typing import Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.mechanisms.base import Vector
from common.messages.guarantee import rounded_up
from deploy.simulate.experiments.rappor_comparison import Line, RapporComparison

_TRUTH: Final = "#9AA5B1"
_FOUND: Final = "#0072B2"
_MISSED: Final = "#D55E00"
"""Told apart by the colour-blind [Okabe-Ito], and by filled and hollow marks."""
_MANY: Final = 60
"""Candidates above which they are numbered, not named."""
_WIDTH: Final = 13.0
_HEIGHT: Final = 3.0
"""Of a figure, and of a setting's panels, in inches."""


def draw(table: RapporComparison) -> Figure:
    """
    Draw two panels for each setting: shares with their estimates, and how far these are off.

    Whiskers are two standard errors to either side. What was found, by Bonferroni, is filled; what
    was not is hollow.
    """
    with mpl.rc_context({"font.size": 9, "axes.grid": True, "grid.alpha": 0.25}):
        size = (_WIDTH, _HEIGHT * len(table.lines) + 1)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(len(table.lines), 2, squeeze=False, sharex=True)
        for (left, right), line in zip(panels, table.lines, strict=True):
            people = line.population.people / line.population.n_users
            left.bar(range(len(people)), people, color=_TRUTH, label="people who hold it", zorder=2)
            _marks(left, line, line.decoding.shares)
            _marks(right, line, line.decoding.shares - people)
            left.set_title(_setting(line), fontsize=9)
            right.set_title(_outcome(line), fontsize=9)
            left.set_ylabel("share")
            right.set_ylabel("estimate - truth")
            left.legend(loc="upper right", fontsize=8)
        for axes in panels[-1]:
            _places(axes, table)
        figure.suptitle(f"{table.population.title}: {table.population.n_users:,} reports")
    return figure


def _marks(axes: Axes, line: Line, values: Vector) -> None:
    few = len(values) <= _MANY
    errors = 2 * line.decoding.standard_errors / line.decoding.n_reports
    found = line.detected(strictly=True)
    for chosen, colour, fill, words in (
        (found, _FOUND, "full", "estimate ± 2 standard errors, found"),
        (~found, _MISSED, "none", "the same, not found"),
    ):
        if chosen.any():
            axes.errorbar(
                np.nonzero(chosen)[0],
                values[chosen],
                yerr=errors[chosen],
                fmt="o",
                fillstyle=fill,
                color=colour,
                markersize=4 if few else 2.5,
                elinewidth=1 if few else 0.6,
                capsize=2 if few else 0,
                label=words,
                zorder=3,
            )
    axes.axhline(0, color="#555555", linewidth=0.8)


def _setting(line: Line) -> str:
    letters = line.letters
    return (
        f"k = {letters.k}, h = {letters.h}, m = {letters.m}, f = {float(letters.f):g}, "
        f"p = {float(letters.p):g}, q = {float(letters.q):g}: "
        f"ε {rounded_up(line.local_epsilon)} a report, "
        f"{rounded_up(line.permanent_epsilon)} for good"
    )


def _outcome(line: Line) -> str:
    hits, false = line.found(strictly=True)
    return f"{hits} of {line.n_held} found, {false} falsely; L1 {line.l1:.4f}"


def _places(axes: Axes, table: RapporComparison) -> None:
    """Name the candidates, or say which are held."""
    people = table.population.people
    axes.set_xlim(-1, len(people))
    if len(people) <= _MANY:
        axes.set_xticks(range(len(people)), table.population.candidates, rotation=90)
        axes.tick_params(axis="x", labelsize=8 if len(people) <= _MANY // 2 else 6)
        return
    held = int((people > 0).sum())
    axes.set_xlabel(
        f"candidates: {held} that people hold, then {len(people) - held} that nobody does"
    )
