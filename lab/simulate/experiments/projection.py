"""
Compare random projection before Multi-HM (Multi-RPHM) [Sun+20] with shrinking Multi-HM's estimate.

To the paper's experiment, this adds three ways to shrink, and attributes with different means.

Projection helps because it shrinks. With q attributes instead of d, each gets d/q times as many
reports, and Rᵀ spreads the q estimates over d attributes: (q/d)² of Multi-HM's noise remains, and
the bias is 1 - q/d of the means' square. Multi-HM times q/d has the same noise, and a bias of
(1 - q/d)² of the means' square.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from shuffledp.analyzer.estimation.shrinkage import shrink_to_zero, shrinkage_factor
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.numeric.coordinate_sampling import MultiHm, MultiRphm
from shuffledp.common.mechanisms.numeric.mean_est import MeanEst
from shuffledp.common.mechanisms.numeric.number import Moments, NumberMechanism
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.task.task import NONCE_BYTES
from shuffledp.deploy.results.estimate_table import mse_of
from shuffledp.lab.simulate.accuracy import Summary
from shuffledp.lab.simulate.plot import Axes, Point
from shuffledp.lab.simulate.table import Progress, Report

Attributes = Literal["alike", "differing"]
"""Means of the attributes: all 1/3, or evenly spaced from -1/√3 to 1/√3, with the same mean square.
Values are normal with standard deviation 1/4, clipped to -1 .. 1."""
_TITLES: Final[Mapping[Attributes, str]] = {
    "alike": "All attributes have one mean, as in the paper",
    "differing": "Attributes have evenly spaced means from -.58 to .58, with the same mean square",
}
_EPSILON: Final = 1.0
_DIMENSION: Final = 400


@dataclass(frozen=True, slots=True)
class VectorSetting:
    """The parameters of one repeated collection."""

    population: Attributes
    dimensions: int
    local_epsilon: float


Measured = Mapping[VectorSetting, Mapping[str, Summary]]
"""Mean squared error per attribute against the sample's means, by name of the estimate."""


def settings(populations: Sequence[Attributes] = ("alike", "differing")) -> list[VectorSetting]:
    """Return the paper's settings for each population, with d = 400 at ε = 2 in addition."""
    axes = [(d, _EPSILON) for d in (200, 300, 400, 500, 600)]
    axes += [(_DIMENSION, epsilon) for epsilon in (0.6, 0.8, 1.2, 1.4, 2.0)]
    return [VectorSetting(name, d, epsilon) for name in populations for d, epsilon in axes]


def run(
    rng: np.random.Generator,
    chosen: Sequence[VectorSetting],
    progress: Progress,
    *,
    n_users: int = 10_000,
    runs: int = 10,
) -> Measured:
    """Measure the errors of every estimate; each run draws new users and a new projection."""
    measured = {}
    for index, setting in enumerate(chosen):
        errors = list[dict[str, float]]()
        for number in range(runs):
            errors.append(_errors(setting, n_users, rng))
            progress(index * runs + number + 1, len(chosen) * runs)
        names = errors[0]
        measured[setting] = {name: Summary.of([run[name] for run in errors]) for name in names}
    return measured


def _errors(setting: VectorSetting, n_users: int, rng: np.random.Generator) -> dict[str, float]:
    """Draw users' vectors, and return the mean squared error of each estimate of their means."""
    d, epsilon = setting.dimensions, setting.local_epsilon
    evenly = ((2 * np.arange(d) + 1) / d - 1) / np.sqrt(3)
    means = np.full(d, 1 / 3) if setting.population == "alike" else evenly
    values = np.clip(rng.normal(means, 1 / 4, (n_users, d)), -1, 1)
    truth = values.mean(axis=0)

    def collect(mechanism: NumberMechanism) -> Moments:
        return mechanism.estimate(mechanism.tally(mechanism.randomize(values, rng)))

    projecting = MultiRphm.for_epsilon(d, epsilon)
    projecting = dataclasses.replace(projecting, nonce=rng.bytes(NONCE_BYTES))
    hybrid = collect(MultiHm.for_epsilon(d, epsilon))
    projected = collect(projecting)
    signs = collect(MeanEst(d, ResponseWeights.for_epsilon(epsilon)))
    estimates = {
        "Multi-HM": hybrid.means,
        "Multi-RPHM": projected.means,
        "projection alone": truth + projecting.bias(values),
        "Multi-HM × q/d": hybrid.means * (projecting.projected / d),
        "Multi-HM shrunk to 0": shrink_to_zero(hybrid),
        "Multi-HM shrunk to its mean": shrink_to_common_mean(hybrid),
        "Multi-RPHM centred": centred(projecting, projected.means),
        "MeanEST": signs.means,
        "answer 0": np.zeros(d),
    }
    return {name: mse_of(estimate, truth) for name, estimate in estimates.items()}


def shrink_to_common_mean(moments: Moments) -> Vector:
    """
    Shrink means towards their common mean [EM73]; best where the attributes are similar.

    The factor is that of `shrink_to_zero` for distances from the mean, with 1 - 3/d: fewer than
    four means are unchanged.
    """
    centre = moments.means.mean()
    apart = moments.means - centre
    shrunk: Vector = centre + apart * shrinkage_factor(apart, moments.variances, lost_degrees=3)
    return shrunk


def centred(mechanism: MultiRphm, means: Vector) -> Vector:
    """
    Restore the common level of all attributes that projection removes, by post-processing.

    A vector of equal means projects to a multiple of R's column sums. The level is fitted by least
    squares; then the part of that vector orthogonal to R is added.
    """
    matrix = mechanism.matrix
    sums = matrix.sum(axis=0)
    level = sums @ (means @ matrix) / (sums @ sums)
    restored: Vector = means + level * (1 - matrix @ sums)
    return restored


def projection(seed: int, progress: Progress) -> Report:
    """Run the projection experiment, and report its errors."""
    return report(run(np.random.default_rng(seed), settings(), progress))


def report(measured: Measured) -> Report:
    """Return a table per population, and points of the errors by d at ε = 1 and by ε at d = 400."""
    tables: dict[str, list[dict[str, str]]] = {}
    points, figures = list[Point](), []
    for setting, errors in measured.items():
        title, d, epsilon = _TITLES[setting.population], setting.dimensions, setting.local_epsilon
        cells = {name: error.format(".3g") for name, error in errors.items()}
        tables.setdefault(title, []).append({"d": f"{d}", "ε": f"{epsilon:g}", **cells})
        figures.append({"setting": setting, "errors": errors})
        for plotted, x, label in (
            (epsilon == _EPSILON, d, "dimensions, at ε = 1"),
            (d == _DIMENSION, epsilon, "local ε, at 400 dimensions"),
        ):
            axes = Axes(title, label, "mean squared error per attribute")
            points += [
                Point(axes, name, x, error.mean, error.half_width)
                for name, error in errors.items()
                if plotted
            ]
    return Report(
        title="Random projection before Multi-HM [Sun+20]",
        explanation="mean squared error per attribute, ± one standard error over the runs.",
        tables=tables,
        figures=figures,
        points=sorted(points, key=lambda point: (point.axes, point.x)),
    )
