"""
Random projection before Multi-HM [Sun+20]: where it helps, why, and what helps more.

The paper collects vectors whose attributes all have one law, by Multi-HM and by Multi-RPHM, and
finds the projected estimate closer, and close to what projection alone costs. Here both are run
again, beside three ways to shrink Multi-HM's own estimate, and over attributes that differ too.

Why projecting helps: it shrinks. A dimension of q is told of by d/q times as many people as one of
d, and Rᵀ spreads what is estimated of q dimensions over d: a share (q/d)² of Multi-HM's noise is
left, and a share 1 - q/d of the means' square is lost. Multi-HM times q/d has that noise too, and
loses (1 - q/d)².
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from analyzer.estimation.shrinkage import to_common_mean, to_zero
from common.errors import SettingsError
from common.mechanisms.base import Vector
from common.mechanisms.numeric.coordinate_sampling import MultiHm
from common.mechanisms.numeric.mean_est import MeanEst
from common.mechanisms.numeric.multi_rphm import MultiRphm
from common.mechanisms.numeric.number import Moments, NumberMechanism, Numbers
from common.mechanisms.weights import ResponseWeights
from common.task.task import NONCE_BYTES
from deploy.simulate.errors import Summary
from deploy.terminal.tables import add_columns, fitting, print_whole

if TYPE_CHECKING:  # of the extra `research`, and loaded for a figure only
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

N_USERS: Final = 10_000
RUNS: Final = 10
DIMENSIONS: Final = (200, 300, 400, 500, 600)
"""At a local ε of 1."""
EPSILONS: Final = (0.6, 0.8, 1.0, 1.2, 1.4, 2.0)
"""Of 400 dimensions. The paper stops at 1.4."""
_EPSILON: Final = 1.0
_DIMENSION: Final = 400

Population = Literal["alike", "differing"]
"""Whether all attributes have one mean, 1/3, or means evenly from -1/√3 to 1/√3: their mean square
is the same. People are normal around them with standard deviation 1/4, cut at -1 and 1."""
Estimate = Literal[
    "Multi-HM",
    "Multi-RPHM",
    "projection alone",
    "Multi-HM × q/d",
    "Multi-HM shrunk to 0",
    "Multi-HM shrunk to its mean",
    "Multi-RPHM centred",
    "MeanEST",
    "answer 0",
]
_POPULATIONS: Final[Mapping[Population, str]] = {
    "alike": "All attributes have one mean, as in the paper",
    "differing": "Attributes have means evenly from -.58 to .58, of the same mean square",
}
_AT_THE_START: Final[Mapping[Estimate, str]] = {"answer 0": "Answering 0 for every attribute"}
"""What a sentence calls an estimate whose column's heading is no beginning of one."""
_CLEAR: Final = 3.0
"""Standard errors of a difference that is called one."""
_WHY: Final = (
    "Multi-HM times q/d has the noise of Multi-RPHM, and loses (1 - q/d)² of the means' square "
    "where that loses 1 - q/d."
)
_DISPENSABLE: Final = ("MeanEST", "projection alone", "answer 0", "Multi-RPHM centred")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One collection that is made again and again."""

    population: Population
    dimensions: int
    local_epsilon: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The mean squared errors of one setting: per attribute, against these very people's means."""

    setting: Setting
    errors: Mapping[Estimate, Summary]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """Everything that was run."""

    n_users: int
    runs: int
    points: tuple[Point, ...]

    def of(self, population: Population) -> list[Point]:
        """Give the points of one population."""
        return [point for point in self.points if point.setting.population == population]

    def by_dimensions(self, population: Population) -> list[Point]:
        """Give those at ε = 1, by dimensions."""
        chosen = [p for p in self.of(population) if p.setting.local_epsilon == _EPSILON]
        return sorted(chosen, key=lambda point: point.setting.dimensions)

    def by_epsilon(self, population: Population) -> list[Point]:
        """Give those of 400 dimensions, by ε."""
        chosen = [p for p in self.of(population) if p.setting.dimensions == _DIMENSION]
        return sorted(chosen, key=lambda point: point.setting.local_epsilon)


def settings(populations: Sequence[Population] = tuple(_POPULATIONS)) -> list[Setting]:
    """Give the paper's settings, and ε = 2, for each population."""
    axes = [(d, _EPSILON) for d in DIMENSIONS] + [(_DIMENSION, e) for e in EPSILONS]
    return [
        Setting(population=population, dimensions=d, local_epsilon=epsilon)
        for population in populations
        for d, epsilon in dict.fromkeys(axes)
    ]


def run(
    rng: np.random.Generator,
    *,
    chosen: Sequence[Setting] | None = None,
    n_users: int = N_USERS,
    runs: int = RUNS,
    progress: Callable[[int, int], None] | None = None,
) -> Reproduction:
    """
    Collect and estimate, with new people and a new projection in each run.

    Args:
        rng: Of everything that is drawn.
        chosen: Settings; without them, the paper's.
        n_users: People in each run.
        runs: Of each setting.
        progress: Told how many runs are done, of how many.

    Cost: about half a second a run of 400 dimensions; one or two minutes for all.
    """
    todo = settings() if chosen is None else list(chosen)
    points = []
    for place, setting in enumerate(todo):
        errors: dict[Estimate, list[float]] = {}
        for number in range(runs):
            for name, error in _errors(setting, n_users, rng).items():
                errors.setdefault(name, []).append(error)
            if progress is not None:
                progress(place * runs + number + 1, len(todo) * runs)
        summaries = {name: Summary.of(found) for name, found in errors.items()}
        points.append(Point(setting=setting, errors=summaries))
    return Reproduction(n_users=n_users, runs=runs, points=tuple(points))


def people(setting: Setting, n_users: int, rng: np.random.Generator) -> Numbers:
    """Draw people of a population, shape (n_users, dimensions)."""
    d = setting.dimensions
    evenly = ((2 * np.arange(d) + 1) / d - 1) / np.sqrt(3)
    means = np.full(d, 1 / 3) if setting.population == "alike" else evenly
    return np.clip(rng.normal(means, 1 / 4, (n_users, d)), -1, 1)


def _errors(setting: Setting, n_users: int, rng: np.random.Generator) -> dict[Estimate, float]:
    values = people(setting, n_users, rng)
    d, epsilon = setting.dimensions, setting.local_epsilon
    truth = values.mean(axis=0)
    projecting = MultiRphm.for_epsilon(d, epsilon, rng.bytes(NONCE_BYTES))
    hybrid = _collected(MultiHm.for_epsilon(d, epsilon), values, rng)
    projected = _collected(projecting, values, rng)
    signs = _collected(MeanEst(d, ResponseWeights.for_epsilon(epsilon)), values, rng)
    kept = projecting.inner.dimensions / d
    estimates: dict[Estimate, Vector] = {
        "Multi-HM": hybrid.means,
        "Multi-RPHM": projected.means,
        "projection alone": truth + projecting.bias(values),
        "Multi-HM × q/d": hybrid.means * kept,
        "Multi-HM shrunk to 0": to_zero(hybrid),
        "Multi-HM shrunk to its mean": to_common_mean(hybrid),
        "Multi-RPHM centred": centred(projecting, projected.means),
        "MeanEST": signs.means,
        "answer 0": np.zeros(d),
    }
    return {name: float(np.mean((found - truth) ** 2)) for name, found in estimates.items()}


def _collected(mechanism: NumberMechanism, values: Numbers, rng: np.random.Generator) -> Moments:
    return mechanism.estimate(mechanism.tally(mechanism.randomize(values, rng)))


def centred(mechanism: MultiRphm, means: Vector) -> Vector:
    """
    Put back what projecting loses of a level that all attributes share.

    The level is fitted to the projected means by least squares: those of one level are R's column
    sums times it. What is perpendicular to R of such a level is then added. Post-processing.

    Args:
        mechanism: That the means come from.
        means: Its estimate, shape (dimensions,).
    """
    matrix = mechanism.matrix
    shares = matrix.sum(axis=0)
    level = shares @ (means @ matrix) / (shares @ shares)
    whole: Vector = means + level * (1 - matrix @ shares)
    return whole


def show(found: Reproduction, console: Console) -> None:
    """Print a table of each population, and what is seen in it."""
    console.print(
        f"[bold]Random projection before Multi-HM [Sun+20]:[/bold] {found.n_users:,} users; "
        f"mean squared errors per attribute, ± one standard error over {found.runs} runs.",
        highlight=False,
    )
    for population, said in _POPULATIONS.items():
        points = found.of(population)
        if not points:
            continue
        console.print(f"{said}.", highlight=False)
        headings = ["d", "ε", *points[0].errors]
        table, left_out = fitting(partial(_table, points), headings, _DISPENSABLE, console)
        print_whole(table, console)
        if left_out:
            console.print("A wider terminal shows more estimates.", style="dim")
        for sentence in remarks(points):
            console.print(sentence, style="dim", highlight=False)
    console.print(_WHY, style="dim", highlight=False)


def _table(points: Sequence[Point], headings: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    add_columns(table, dict.fromkeys(headings, "right"))
    for point in points:
        cells = {"d": f"{point.setting.dimensions}", "ε": f"{point.setting.local_epsilon:g}"}
        cells |= {name: error.written(_form(error.mean)) for name, error in point.errors.items()}
        table.add_row(*(cells[heading] for heading in headings))
    return table


def _form(error: float) -> str:
    return ".4f" if error >= 0.01 else ".5f"  # noqa: PLR2004  # three digits that say something


def remarks(points: Sequence[Point]) -> list[str]:
    """Give sentences on one population: where projecting helps, and what helps more."""
    projected: Estimate = "Multi-RPHM"
    rivals: tuple[Estimate, ...] = (
        "Multi-HM × q/d",
        "Multi-HM shrunk to 0",
        "Multi-HM shrunk to its mean",
        "answer 0",
    )
    return [_compared(points, projected, "Multi-HM")] + [
        _compared(points, rival, projected) for rival in rivals
    ]


def _compared(points: Sequence[Point], one: Estimate, other: Estimate) -> str:
    """Say where one estimate errs clearly less than another, and where more."""
    subject = _AT_THE_START.get(one, one)
    where: dict[str, list[str]] = {"less": [], "more": [], "about as much": []}
    for point in points:
        here, there = point.errors[one], point.errors[other]
        apart = _CLEAR * math.hypot(here.standard_error, there.standard_error)
        word = "less" if here.mean < there.mean else "more"
        if abs(here.mean - there.mean) <= apart:
            word = "about as much"
        place = f"({point.setting.dimensions}, {point.setting.local_epsilon:g})"
        where[word].append(place)
    if len(where["less"]) == len(points):
        return f"{subject} errs less than {other} everywhere."
    said = "; ".join(f"{word} at {', '.join(places)}" for word, places in where.items() if places)
    return f"{subject} against {other}, by (d, ε), errs {said}."


_STYLES: Final[Mapping[Estimate, tuple[str, str, str]]] = {
    "Multi-HM": ("#0072B2", "o", "-"),
    "Multi-RPHM": ("#D55E00", "s", "-"),
    "projection alone": ("#D55E00", "", ":"),
    "Multi-HM × q/d": ("#009E73", "v", "-"),
    "Multi-HM shrunk to 0": ("#CC79A7", "D", "-"),
    "Multi-HM shrunk to its mean": ("#E69F00", "^", "-"),
    "Multi-RPHM centred": ("#7F3C8D", "P", "--"),
    "MeanEST": ("#56B4E9", "X", "-"),
    "answer 0": ("#555555", "", "--"),
}
"""Colour [Okabe-Ito], marker and line."""


def plot(found: Reproduction) -> "Figure":
    """
    Draw errors against dimensions and against ε, one row for each population.

    Returns:
        A matplotlib Figure; `deploy.simulate.figure.save` writes it.

    Raises:
        SettingsError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415  # of the extra `research`
    except ImportError as error:
        raise SettingsError(
            "a figure needs matplotlib: pip install 'shuffledp[research]'"
        ) from error
    shown = [population for population in _POPULATIONS if found.of(population)]
    figure = Figure(figsize=(11, 4.6 * len(shown) + 1.2), layout="constrained")
    panels = figure.subplots(len(shown), 2, squeeze=False, sharey="row")
    for line, population in zip(panels, shown, strict=True):
        by_d, by_epsilon = found.by_dimensions(population), found.by_epsilon(population)
        _draw(line[0], by_d, [point.setting.dimensions for point in by_d])
        _draw(line[1], by_epsilon, [point.setting.local_epsilon for point in by_epsilon])
        line[0].set_xlabel("dimensions, at ε = 1")
        line[1].set_xlabel("local ε, at 400 dimensions")
        line[0].set_ylabel("mean squared error per attribute")
        line[0].set_title(_POPULATIONS[population], loc="left", fontsize=9)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(
        f"Random projection before Multi-HM: {found.n_users:,} users, {found.runs} runs"
    )
    return figure


def _draw(axes: "Axes", points: Sequence[Point], places: Sequence[float]) -> None:
    for name, (colour, marker, line) in _STYLES.items():
        errors = [point.errors[name] for point in points]
        axes.errorbar(
            places,
            [error.mean for error in errors],
            yerr=[error.standard_error for error in errors],
            color=colour,
            marker=marker,
            markersize=4,
            linestyle=line,
            linewidth=1.4,
            capsize=2,
            label=name,
        )
    axes.set_yscale("log")
    axes.set_xticks(places)
    axes.grid(alpha=0.25)
