"""A picture of key_value.py: what is left of the bias, and of the whole error, by iterations."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deploy.simulate import figure as simulated
from deploy.simulate.experiments.key_value import Outcome, remarks

_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Told apart by the colour-blind [Okabe-Ito]."""
_MARKERS: Final = "osD^vP"


def draw(outcomes: Sequence[Outcome], *, title: str) -> Figure:
    """
    Draw the bias on the left and the whole error on the right, a colour for each total ε.

    Args:
        outcomes: Of one run.
        title: What was collected from whom.
    """
    with mpl.rc_context({"font.size": 9, "axes.grid": True, "grid.alpha": 0.25}):
        figure = Figure(figsize=(10, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        for place, total in enumerate(dict.fromkeys(each.local_epsilon for each in outcomes)):
            here = [each for each in outcomes if each.local_epsilon == total]
            iterated = [each for each in here if each.method == "iterated"]
            _bias(left, iterated, place)
            _error(right, here, iterated, place)
        left.axhline(0, color="#555555", linewidth=1)
        left.set_title("bias that fakes leave\n(dashed: theory)")
        left.set_ylabel("mean distance towards the middle")
        right.set_yscale("log")
        right.set_title("bias and noise together\n(dotted: one round, fakes taken out)")
        right.set_ylabel("root of the mean squared error of a mean")
        for axes in (left, right):
            axes.set_xlabel("iterations, at one total ε")
            axes.set_xticks(sorted({each.iterations for each in outcomes}))
        left.legend(*right.get_legend_handles_labels(), title="total local ε", fontsize=8)
        figure.suptitle(title, fontsize=11)
        figure.supxlabel("\n".join(remarks(outcomes)), fontsize=8, ha="center")
    return figure


def _bias(axes: Axes, iterated: Sequence[Outcome], place: int) -> None:
    colour = _COLOURS[place % len(_COLOURS)]
    numbers = [each.iterations for each in iterated]
    axes.errorbar(
        numbers,
        [each.pull for each in iterated],
        yerr=[each.pull_error for each in iterated],
        color=colour,
        marker=_MARKERS[place % len(_MARKERS)],
        markersize=4,
        linestyle="none",
        capsize=2,
    )
    axes.plot(
        numbers,
        [each.pull_theory for each in iterated],
        color=colour,
        linestyle="--",
        linewidth=1,
    )


def _error(axes: Axes, here: Sequence[Outcome], iterated: Sequence[Outcome], place: int) -> None:
    colour = _COLOURS[place % len(_COLOURS)]
    axes.plot(
        [each.iterations for each in iterated],
        [each.error for each in iterated],
        color=colour,
        marker=_MARKERS[place % len(_MARKERS)],
        markersize=4,
        linewidth=1.4,
        label=f"{iterated[0].local_epsilon:g}",
    )
    for each in here:
        if each.method == "fakes taken out":
            axes.axhline(each.error, color=colour, linestyle=":", linewidth=1.2)


def save(figure: Figure, path: Path) -> tuple[Path, Path]:
    """
    Write a picture as PNG and as SVG, under one name.

    Raises:
        SettingsError: It cannot be written.
    """
    return simulated.save(figure, path)
