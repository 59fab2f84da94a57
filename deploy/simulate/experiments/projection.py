"""
Random projection before Multi-HM [Sun+20]: where it helps, why, and what helps more.

The paper finds Multi-RPHM's estimate closer than Multi-HM's where all attributes have one
distribution, and close to the cost of projection alone. This runs both beside three ways to shrink
Multi-HM's own estimate, also over attributes that differ.

Projecting helps because it shrinks. A dimension of q is told of by d/q times as many people as one
of d, and Rᵀ spreads what is estimated of q dimensions over d: a share (q/d)² of Multi-HM's noise is
left, and a share 1 - q/d of the means' square is lost. Multi-HM times q/d has that noise too, and
loses (1 - q/d)².
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from analyzer.estimation.projection import shrink_to_common_mean, shrink_to_zero
from common.mechanisms.base import Vector
from common.mechanisms.numeric.coordinate_sampling import MultiHm
from common.mechanisms.numeric.mean_est import MeanEst
from common.mechanisms.numeric.multi_rphm import MultiRphm
from common.mechanisms.numeric.number import Moments, NumberMechanism
from common.mechanisms.weights import ResponseWeights
from common.task.task import NONCE_BYTES
from deploy.simulate.errors import Summary, mse
from deploy.simulate.plot import Axes, Point
from deploy.simulate.table import Progress, Report

Attributes = Literal["alike", "differing"]
"""Whether all attributes have one mean, 1/3, or means evenly from -1/√3 to 1/√3: their mean square
is the same. People are normal around them with standard deviation 1/4, cut at -1 and 1."""
_TITLES: Final[Mapping[Attributes, str]] = {
    "alike": "All attributes have one mean, as in the paper",
    "differing": "Attributes have means evenly from -.58 to .58, of the same mean square",
}
_EPSILON: Final = 1.0
_DIMENSION: Final = 400


@dataclass(frozen=True, slots=True)
class VectorSetting:
    """One collection that is repeated."""

    population: Attributes
    dimensions: int
    local_epsilon: float


Measured = Mapping[VectorSetting, Mapping[str, Summary]]
"""Mean squared errors per attribute, against these very people's means, by estimate."""


def settings(populations: Sequence[Attributes] = ("alike", "differing")) -> list[VectorSetting]:
    """Return the paper's settings, and ε = 2, for each population."""
    axes = [(d, _EPSILON) for d in (200, 300, 400, 500, 600)]
    axes += [(_DIMENSION, epsilon) for epsilon in (0.6, 0.8, 1.2, 1.4, 2.0)]
    return [
        VectorSetting(population, d, epsilon) for population in populations for d, epsilon in axes
    ]


def run(
    rng: np.random.Generator,
    chosen: Sequence[VectorSetting],
    progress: Progress,
    *,
    n_users: int = 10_000,
    runs: int = 10,
) -> Measured:
    """
    Collect and estimate, with new people and a new projection in each run.

    Cost: about half a second a run of 400 dimensions; one or two minutes for the paper's settings.
    """
    measured = {}
    for place, setting in enumerate(chosen):
        found = list[dict[str, float]]()
        for number in range(runs):
            found.append(_errors(setting, n_users, rng))
            progress(place * runs + number + 1, len(chosen) * runs)
        measured[setting] = {name: Summary.of([each[name] for each in found]) for name in found[0]}
    return measured


def _errors(setting: VectorSetting, n_users: int, rng: np.random.Generator) -> dict[str, float]:
    """Draw people of shape (n_users, dimensions), and estimate their means in every way."""
    d, epsilon = setting.dimensions, setting.local_epsilon
    evenly = ((2 * np.arange(d) + 1) / d - 1) / np.sqrt(3)
    means = np.full(d, 1 / 3) if setting.population == "alike" else evenly
    values = np.clip(rng.normal(means, 1 / 4, (n_users, d)), -1, 1)
    truth = values.mean(axis=0)

    def collected(mechanism: NumberMechanism) -> Moments:
        return mechanism.estimate(mechanism.tally(mechanism.randomize(values, rng)))

    projecting = MultiRphm.for_epsilon(d, epsilon, rng.bytes(NONCE_BYTES))
    hybrid = collected(MultiHm.for_epsilon(d, epsilon))
    projected = collected(projecting)
    signs = collected(MeanEst(d, ResponseWeights.for_epsilon(epsilon)))
    estimates = {
        "Multi-HM": hybrid.means,
        "Multi-RPHM": projected.means,
        "projection alone": truth + projecting.bias(values),
        "Multi-HM × q/d": hybrid.means * (projecting.inner.dimensions / d),
        "Multi-HM shrunk to 0": shrink_to_zero(hybrid),
        "Multi-HM shrunk to its mean": shrink_to_common_mean(hybrid),
        "Multi-RPHM centred": centred(projecting, projected.means),
        "MeanEST": signs.means,
        "answer 0": np.zeros(d),
    }
    return {name: mse(found, truth) for name, found in estimates.items()}


def centred(mechanism: MultiRphm, means: Vector) -> Vector:
    """
    Restore the loss of a level that all attributes share, by post-processing a projected estimate.

    The level is fitted to the projected means by least squares: those of one level are R's column
    sums times it. The part of such a level that is perpendicular to R is then added.
    """
    matrix = mechanism.matrix
    shares = matrix.sum(axis=0)
    level = shares @ (means @ matrix) / (shares @ shares)
    whole: Vector = means + level * (1 - matrix @ shares)
    return whole


def projection(seed: int, progress: Progress) -> Report:
    """Run the experiment."""
    return report(run(np.random.default_rng(seed), settings(), progress))


def report(measured: Measured) -> Report:
    """Return a table for each population, and its errors against d at ε = 1 and ε at d = 400."""
    tables: dict[str, list[dict[str, str]]] = {}
    points = list[Point]()
    for setting, errors in measured.items():
        title, d, epsilon = _TITLES[setting.population], setting.dimensions, setting.local_epsilon
        cells = {name: error.written(".3g") for name, error in errors.items()}
        tables.setdefault(title, []).append({"d": f"{d}", "ε": f"{epsilon:g}", **cells})
        for chosen, x, label in (
            (epsilon == _EPSILON, d, "dimensions, at ε = 1"),
            (d == _DIMENSION, epsilon, "local ε, at 400 dimensions"),
        ):
            axes = Axes(title, label, "mean squared error per attribute")
            points += [
                Point(axes, name, x, error.mean, error.standard_error)
                for name, error in errors.items()
                if chosen
            ]
    return Report(
        title="Random projection before Multi-HM [Sun+20]",
        explanation="mean squared errors per attribute, ± one standard error over the runs.",
        tables=tables,
        figures=[
            {
                "setting": dataclasses.asdict(setting),
                "errors": {name: dataclasses.asdict(error) for name, error in errors.items()},
            }
            for setting, errors in measured.items()
        ],
        points=sorted(points, key=lambda point: (point.axes, point.x)),
    )
