"""
Compare the bias and variance of means by PrivKV and by PrivKVM at one total local ε.

Users without a key report a fake value, which biases the mean. PrivKVM draws fakes with the
previous iteration's mean; the alternative is one round, corrected by a formula [GLCXC20]. The
population is synthetic, because the data of [YHMZ19] is not available.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

import numpy as np

from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.key_value.pairs import Pairs
from shuffledp.common.mechanisms.key_value.privkv import PrivKv
from shuffledp.common.task.draft import PairDraft
from shuffledp.deploy.results.next_task import iteration
from shuffledp.lab.planning.predictions import expected_pairs
from shuffledp.lab.simulate.accuracy import Summary
from shuffledp.lab.simulate.plot import Axes, Point
from shuffledp.lab.simulate.table import Progress, Report

_CORRECTED: Final = "fakes taken out"
_MEAN: Final = 0.6
_WIDTH: Final = 0.2
"""Half the width of the range of a key's values."""


@dataclass(frozen=True, slots=True)
class _Method:
    """An estimation method with its total local ε and number of iterations."""

    local_epsilon: float
    method: Literal["iterated", "fakes taken out"]
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueExperiment:
    """Parameters of the experiment."""

    n_users: int = 200_000
    shares: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    """Share of users who own each key."""
    local_epsilons: tuple[float, ...] = (1.0, 2.0, 4.0)
    """Total local ε, over all iterations."""
    iterations: tuple[int, ...] = (1, 2, 3, 5, 8)
    key_share: float = 0.5
    """Share of the local ε that protects key ownership."""
    repeats: int = 20
    seed: int = 1

    @property
    def means(self) -> Vector:
        """True means, of alternating sign; shape (keys,)."""
        return _MEAN * np.where(np.arange(len(self.shares)) % 2, -1.0, 1.0)

    def people(self, rng: np.random.Generator) -> Pairs:
        """Draw the users' key-value pairs."""
        shape = (self.n_users, len(self.shares))
        values = self.means + rng.uniform(-_WIDTH, _WIDTH, shape)
        owned = np.where(rng.random(shape) < self.shares, values, np.nan)
        return Pairs.of_table(owned, len(self.shares))

    def mechanism(self, method: _Method, number: int, previous: Vector | None) -> PrivKv:
        """Return the mechanism of iteration `number`, from 1 on, given the previous means."""
        whole = PairDraft(key_share=self.key_share)
        epsilon, draft = iteration(whole, method.local_epsilon, method.iterations, number, previous)
        return PrivKv.of_spec(PrivKv.specify(draft, epsilon), len(self.shares))

    def collect(self, method: _Method, people: Pairs, rng: np.random.Generator) -> Vector:
        """Run all iterations of a method, and estimate the means; shape (keys,)."""
        previous: Vector | None = None
        for number in range(1, method.iterations + 1):
            mechanism = self.mechanism(method, number, previous)
            estimate = mechanism.estimate(mechanism.tally(mechanism.randomize(people, rng)))
            previous = estimate.means_with_fakes
        corrected = method.method == _CORRECTED
        return mechanism.without_fakes(estimate).means if corrected else estimate.means_with_fakes

    def theory(self, method: _Method) -> tuple[Vector, Vector]:
        """
        Return the means expected after the last iteration, and their standard deviations.

        An iteration's error is its own noise plus the share φ of fakes times the previous error.
        """
        previous: Vector | None = None
        variance = np.zeros(len(self.shares))
        for number in range(1, method.iterations + 1):
            mechanism = self.mechanism(method, number, previous)
            expected = expected_pairs(mechanism, np.array(self.shares), self.means, self.n_users)
            fakes = mechanism.share_of_fakes(np.array(self.shares))
            variance = expected.errors_with_fakes**2 + fakes**2 * variance
            previous = expected.means_with_fakes
        return expected.means_with_fakes, np.sqrt(variance)

    def figures(self, method: _Method, estimates: Vector) -> dict[str, Any]:
        """Summarize a method's estimates, shape (repeats, keys), as JSON fields."""
        truth = self.means
        bias = Summary.of(((truth - estimates) * np.sign(truth)).mean(axis=1).tolist())
        expected, deviations = self.theory(method)
        corrected = method.method == _CORRECTED
        in_theory = 0.0 if corrected else float(((truth - expected) * np.sign(truth)).mean())
        return asdict(method) | {
            "pull": bias.mean,
            "pull_error": bias.standard_error,
            "pull_theory": in_theory,
            "spread": float(np.sqrt(estimates.var(axis=0, ddof=1).mean())),
            "spread_theory": None if corrected else float(np.sqrt((deviations**2).mean())),
            "error": float(np.sqrt(((estimates - truth) ** 2).mean())),
        }


def run(experiment: KeyValueExperiment, progress: Progress) -> list[dict[str, Any]]:
    """
    Run every method on the same users, who are drawn again for each repeat.

    Returns JSON fields per total ε and method, averaged over keys, for values in -1 .. 1: the bias
    towards 0 (`pull`), the standard deviation over repeats (`spread`), and the root mean squared
    error. Cost: about 20 ms per iteration for 200,000 users.
    """
    methods = list[_Method]()
    for epsilon in experiment.local_epsilons:
        methods.append(_Method(epsilon, _CORRECTED, 1))
        methods += [_Method(epsilon, "iterated", number) for number in experiment.iterations]
    estimates: list[list[Vector]] = [[] for _ in methods]
    for repeat in range(experiment.repeats):
        people = experiment.people(np.random.default_rng((experiment.seed, repeat)))
        for index, method in enumerate(methods):
            rng = np.random.default_rng((experiment.seed, repeat, index))
            estimates[index].append(experiment.collect(method, people, rng))
        progress(repeat + 1, experiment.repeats)
    return list(map(experiment.figures, methods, map(np.array, estimates)))


def key_value(seed: int, progress: Progress) -> Report:
    """Run the PrivKV experiment, and report its errors."""
    experiment = KeyValueExperiment(seed=seed)
    return report(run(experiment, progress), experiment)


def report(figures: Sequence[dict[str, Any]], experiment: KeyValueExperiment) -> Report:
    """Return the report on the figures of `run`: a table row and two points per method."""
    x = "iterations, at one total ε"
    bias = Axes("bias caused by fakes", x, "mean bias towards 0")
    error = Axes("bias and noise together", x, "root mean squared error of a mean")
    rows, points = [], list[Point]()
    for row in figures:
        number, theory = row["iterations"], row["spread_theory"]
        corrected = f", {_CORRECTED}" * (row["method"] == _CORRECTED)
        rows.append(
            {
                "ε": f"{row['local_epsilon']:g}",
                "iterations": f"{number}{corrected}",
                "error": f"{row['error']:.4f}",
                "bias": f"{row['pull']:.4f} ±{row['pull_error']:.4f}",
                "theory": f"{row['pull_theory']:.4f}",
                "spread": f"{row['spread']:.4f}",
                "in theory": "-" if theory is None else f"{theory:.4f}",
            }
        )
        series = f"total ε {row['local_epsilon']:g}{corrected}"
        points.append(Point(bias, series, number, row["pull"], row["pull_error"]))
        points.append(Point(error, series, number, row["error"]))
    return Report(
        title=f"PrivKV and PrivKVM: {experiment.n_users:,} people, {experiment.repeats} repeats",
        explanation="means of values in -1 .. 1. Bias is towards 0, caused by fakes; spread is the "
        "standard deviation; error is the root mean squared error. ε is the total of all "
        "iterations. Theory ignores that means are clipped to -1 .. 1.",
        tables={"Errors": rows},
        figures=figures,
        points=points,
    )
