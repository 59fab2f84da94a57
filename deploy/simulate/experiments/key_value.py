"""
PrivKV against PrivKVM: how far iterating lowers the bias of means, and its cost in variance.

All at one total local ε. People without a key report a fake value, which biases the mean. PrivKVM
takes the means of the iteration before for fakes, and splits a value's ε over iterations. The
alternative is one round that removes the fakes by formula [GLCXC20]. The people are synthetic, as
the paper's own data could not be read [YHMZ19].
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from common.mechanisms.base import Vector
from common.mechanisms.key_value.pairs import Pairs
from common.mechanisms.key_value.privkv import PairRequest, PrivKv
from common.mechanisms.key_value.privkvm import iteration
from deploy.simulate.errors import Summary
from deploy.simulate.plot import Axes, Point
from deploy.simulate.table import Progress, Report

_CORRECTED: Final = "fakes taken out"
_MEAN: Final = 0.6
_WIDTH: Final = 0.2
"""How far values of one key lie from their mean, to either side."""


@dataclass(frozen=True, slots=True)
class _Way:
    """One way of estimating at one total."""

    local_epsilon: float
    method: Literal["iterated", "fakes taken out"]
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueExperiment:
    """The collections to run."""

    n_users: int = 200_000
    shares: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    """Of people who own each key."""
    local_epsilons: tuple[float, ...] = (1.0, 2.0, 4.0)
    """Totals, each over all iterations."""
    iterations: tuple[int, ...] = (1, 2, 3, 5, 8)
    key_share: float = 0.5
    """Of the total, for whether a key is owned."""
    repeats: int = 20
    seed: int = 1

    @property
    def means(self) -> Vector:
        """The true means, alternating in sign; shape (keys,)."""
        return _MEAN * np.where(np.arange(len(self.shares)) % 2, -1.0, 1.0)

    def people(self, rng: np.random.Generator) -> Pairs:
        """Draw people with their pairs."""
        shape = (self.n_users, len(self.shares))
        values = self.means + rng.uniform(-_WIDTH, _WIDTH, shape)
        owned = np.where(rng.random(shape) < self.shares, values, np.nan)
        return Pairs.of_table(owned, len(self.shares))

    def mechanism(self, way: _Way, number: int, before: Vector | None) -> PrivKv:
        """Make the mechanism of an iteration, from 1 on, with the means of the one before."""
        keys, epsilon, share = len(self.shares), way.local_epsilon, self.key_share
        whole = PairRequest(keys=keys, low=-1.0, high=1.0, local_epsilon=epsilon, key_share=share)
        one = iteration(whole, way.iterations, number, before)
        return PrivKv.of_spec(PrivKv.specify(one), keys)

    def collect(self, way: _Way, people: Pairs, rng: np.random.Generator) -> Vector:
        """Collect once, or over several tasks, and estimate the means."""
        before: Vector | None = None
        for number in range(1, way.iterations + 1):
            mechanism = self.mechanism(way, number, before)
            found = mechanism.estimate(mechanism.tally(mechanism.randomize(people, rng)))
            before = found.means_with_fakes
        corrected = way.method == _CORRECTED
        return mechanism.without_fakes(found).means if corrected else found.means_with_fakes

    def theory(self, way: _Way) -> tuple[Vector, Vector]:
        """
        Return the expected means after the last iteration, and their standard deviations.

        Each iteration has noise of its own, and passes on φ of the error of the one before.
        """
        before: Vector | None = None
        variance = np.zeros(len(self.shares))
        for number in range(1, way.iterations + 1):
            mechanism = self.mechanism(way, number, before)
            expected = mechanism.expected(np.array(self.shares), self.means, self.n_users)
            fakes = mechanism.share_of_fakes(np.array(self.shares))
            variance = expected.errors_with_fakes**2 + fakes**2 * variance
            before = expected.means_with_fakes
        return expected.means_with_fakes, np.sqrt(variance)

    def figures(self, way: _Way, drawn: Vector) -> dict[str, Any]:
        """Summarise estimates of shape (repeats, keys), for JSON."""
        truth = self.means
        pull = Summary.of(((truth - drawn) * np.sign(truth)).mean(axis=1).tolist())
        expected, spread = self.theory(way)
        corrected = way.method == _CORRECTED
        pulled = 0.0 if corrected else float(((truth - expected) * np.sign(truth)).mean())
        return dataclasses.asdict(way) | {
            "pull": pull.mean,
            "pull_error": pull.standard_error,
            "pull_theory": pulled,
            "spread": float(np.sqrt(drawn.var(axis=0, ddof=1).mean())),
            "spread_theory": None if corrected else float(np.sqrt((spread**2).mean())),
            "error": float(np.sqrt(((drawn - truth) ** 2).mean())),
        }


def run(experiment: KeyValueExperiment, progress: Progress) -> list[dict[str, Any]]:
    """
    Run every total and number of iterations on the same people, drawn again for each repeat.

    Returns:
        By total, the single round with the fakes removed, then the iterated ones; in units of a
        range -1 .. 1, averaged over keys. `pull`: bias towards the middle, with its standard error
        `pull_error`; `spread`: standard deviation of a mean over repeats; `error`: root of the mean
        squared error, of both together.

    Cost: some 20 ms an iteration for 200,000 people.
    """
    ways = [
        way
        for epsilon in experiment.local_epsilons
        for way in (
            _Way(epsilon, _CORRECTED, 1),
            *(_Way(epsilon, "iterated", number) for number in experiment.iterations),
        )
    ]
    drawn: list[list[Vector]] = [[] for _ in ways]
    for number in range(experiment.repeats):
        people = experiment.people(np.random.default_rng((experiment.seed, number)))
        for place, way in enumerate(ways):
            rng = np.random.default_rng((experiment.seed, number, place))
            drawn[place].append(experiment.collect(way, people, rng))
        progress(number + 1, experiment.repeats)
    return [experiment.figures(way, np.array(each)) for way, each in zip(ways, drawn, strict=True)]


def key_value(seed: int, progress: Progress) -> Report:
    """Run the experiment."""
    experiment = KeyValueExperiment(seed=seed)
    return report(run(experiment, progress), experiment)


def report(figures: Sequence[dict[str, Any]], experiment: KeyValueExperiment) -> Report:
    """Return a line and two points for each way of estimating."""
    x = "iterations, at one total ε"
    bias = Axes("bias that fakes leave", x, "mean distance towards the middle")
    error = Axes("bias and noise together", x, "root of the mean squared error of a mean")
    rows, points = [], list[Point]()
    for each in figures:
        number, theory = each["iterations"], each["spread_theory"]
        corrected = f", {_CORRECTED}" * (each["method"] == _CORRECTED)
        rows.append(
            {
                "ε": f"{each['local_epsilon']:g}",
                "iterations": f"{number}{corrected}",
                "error": f"{each['error']:.4f}",
                "bias": f"{each['pull']:.4f} ±{each['pull_error']:.4f}",
                "theory": f"{each['pull_theory']:.4f}",
                "spread": f"{each['spread']:.4f}",
                "in theory": "-" if theory is None else f"{theory:.4f}",
            }
        )
        series = f"total ε {each['local_epsilon']:g}{corrected}"
        points.append(Point(bias, series, number, each["pull"], each["pull_error"]))
        points.append(Point(error, series, number, each["error"]))
    return Report(
        title=f"PrivKV and PrivKVM: {experiment.n_users:,} people, {experiment.repeats} repeats",
        explanation="means of values in -1 .. 1: how far fakes pull them towards the middle, how "
        "far they vary, and both together. ε is that of all iterations. Theory leaves out that "
        "means are put back into -1 .. 1.",
        tables={"Errors": rows},
        figures=figures,
        points=points,
    )
