"""
PrivKV against PrivKVM: how far iterating lowers the bias of means, and its cost in variance.

Everything is at one total local ε. People without a key answer with a fake value, and fakes pull
the estimated mean towards them; PrivKVM takes the means of the iteration before for fakes, and pays
for it by a value's ε that is split over iterations. Beside both stands the single round with the
fakes taken out by formula, which needs no iteration [GLCXC20]. The data are synthetic, as the
paper's own could not be read [YHMZ19]. The randomness is seeded.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal

import numpy as np

from common.mechanisms.base import Vector
from common.mechanisms.key_value.pairs import Pairs
from common.mechanisms.key_value.privkv import PairRequest, PrivKv
from common.mechanisms.key_value.privkvm import iteration
from deploy.simulate.errors import Summary
from deploy.simulate.plot import Axes, Point
from deploy.simulate.table import Progress, Report

Method = Literal["iterated", "fakes taken out"]
_CORRECTED: Final[Method] = "fakes taken out"
_WIDTH: Final = 0.2
"""How far values of one key lie from their mean, to either side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueExperiment:
    """The collections to run."""

    n_users: int = 200_000
    shares: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    """Of people who own each key; the odd keys have the mean `mean`, the even ones its negative."""
    mean: float = 0.6
    """Of the values of a key, within ±(1 - .2)."""
    local_epsilons: tuple[float, ...] = (1.0, 2.0, 4.0)
    """Totals, each over all iterations."""
    iterations: tuple[int, ...] = (1, 2, 3, 5, 8)
    key_share: float = 0.5
    """Of the total, for whether a key is owned."""
    repeats: int = 20
    seed: int = 1

    @property
    def means(self) -> Vector:
        """The true means; shape (keys,)."""
        return self.mean * np.where(np.arange(len(self.shares)) % 2, -1.0, 1.0)

    def people(self, rng: np.random.Generator) -> Pairs:
        """Draw people with their pairs."""
        shape = (self.n_users, len(self.shares))
        values = self.means + rng.uniform(-_WIDTH, _WIDTH, shape)
        owned = np.where(rng.random(shape) < self.shares, values, np.nan)
        return Pairs.of_table(owned, len(self.shares))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanErrors:
    """One way of estimating at one total; all in units of a range -1 .. 1, averaged over keys."""

    local_epsilon: float
    method: Method
    iterations: int
    pull: float
    """How far means are off towards the middle, on average over repeats: the bias of the fakes."""
    pull_error: float
    """Its standard error."""
    pull_theory: float
    spread: float
    """Standard deviation of a mean over repeats."""
    spread_theory: float
    """Not a number where there is no formula."""
    error: float
    """Root of the mean squared error: bias and spread together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """One way of estimating at one total, with its theory."""

    experiment: KeyValueExperiment
    local_epsilon: float
    method: Method
    iterations: int

    def mechanism(self, number: int, before: Vector | None) -> PrivKv:
        """Make the mechanism of an iteration, from 1 on, with the means of the one before."""
        experiment = self.experiment
        keys, share = len(experiment.shares), experiment.key_share
        whole = PairRequest(
            keys=keys, low=-1.0, high=1.0, local_epsilon=self.local_epsilon, key_share=share
        )
        one = iteration(whole, self.iterations, number, before)
        return PrivKv.of_spec(PrivKv.specify(one), keys)

    def means(self, people: Pairs, rng: np.random.Generator) -> Vector:
        """Collect once, or over several tasks, and estimate the means."""
        before: Vector | None = None
        for number in range(1, self.iterations + 1):
            mechanism = self.mechanism(number, before)
            found = mechanism.estimate(mechanism.tally(mechanism.randomize(people, rng)))
            before = found.means_with_fakes
        corrected = self.method == _CORRECTED
        return mechanism.without_fakes(found).means if corrected else found.means_with_fakes

    def theory(self) -> tuple[Vector, Vector]:
        """
        Return the means that are expected after the last iteration, and their standard deviations.

        Each iteration has noise of its own, and passes on φ of the error of the one before.
        """
        truth, shares = self.experiment.means, np.array(self.experiment.shares)
        if self.method == _CORRECTED:
            return truth, np.full(len(truth), math.nan)
        before: Vector | None = None
        variance = np.zeros(len(shares))
        for number in range(1, self.iterations + 1):
            mechanism = self.mechanism(number, before)
            expected = mechanism.expected(shares, truth, self.experiment.n_users)
            fakes = mechanism.share_of_fakes(shares)
            variance = expected.errors_with_fakes**2 + fakes**2 * variance
            before = expected.means_with_fakes
        return expected.means_with_fakes, np.sqrt(variance)

    def errors(self, drawn: Vector) -> MeanErrors:
        """Summarise estimates of shape (repeats, keys)."""
        truth = self.experiment.means
        pull = Summary.of(((truth - drawn) * np.sign(truth)).mean(axis=1).tolist())
        expected, spread = self.theory()
        return MeanErrors(
            local_epsilon=self.local_epsilon,
            method=self.method,
            iterations=self.iterations,
            pull=pull.mean,
            pull_error=pull.standard_error,
            pull_theory=float(((truth - expected) * np.sign(truth)).mean()),
            spread=float(np.sqrt(drawn.var(axis=0, ddof=1).mean())),
            spread_theory=float(np.sqrt((spread**2).mean())),
            error=float(np.sqrt(((drawn - truth) ** 2).mean())),
        )


def run(experiment: KeyValueExperiment, progress: Progress) -> list[MeanErrors]:
    """
    Run every total and number of iterations on the same people, drawn again for each repeat.

    Returns:
        By total: the single round with the fakes taken out, then the iterated ones.

    Cost: some 20 ms an iteration for 200,000 people.
    """
    settings: list[tuple[Method, int]] = [(_CORRECTED, 1)]
    settings += [("iterated", number) for number in experiment.iterations]
    ways = [
        _Way(experiment=experiment, local_epsilon=epsilon, method=method, iterations=iterations)
        for epsilon, (method, iterations) in product(experiment.local_epsilons, settings)
    ]
    drawn: list[list[Vector]] = [[] for _ in ways]
    for number in range(experiment.repeats):
        people = experiment.people(np.random.default_rng((experiment.seed, number)))
        for place, way in enumerate(ways):
            rng = np.random.default_rng((experiment.seed, number, place))
            drawn[place].append(way.means(people, rng))
        progress(number + 1, experiment.repeats)
    return [way.errors(np.array(found)) for way, found in zip(ways, drawn, strict=True)]


def key_value(seed: int, progress: Progress) -> Report:
    """Run the experiment."""
    experiment = KeyValueExperiment(seed=seed)
    return report(run(experiment, progress), experiment)


def report(found: Sequence[MeanErrors], experiment: KeyValueExperiment) -> Report:
    """Return a line and two points for each way of estimating."""
    x = "iterations, at one total ε"
    bias = Axes("bias that fakes leave", x, "mean distance towards the middle")
    error = Axes("bias and noise together", x, "root of the mean squared error of a mean")
    rows, points = [], list[Point]()
    for each in found:
        corrected = f", {_CORRECTED}" * (each.method == _CORRECTED)
        rows.append(
            {
                "ε": f"{each.local_epsilon:g}",
                "iterations": f"{each.iterations}{corrected}",
                "error": f"{each.error:.4f}",
                "bias": f"{each.pull:.4f} ±{each.pull_error:.4f}",
                "theory": f"{each.pull_theory:.4f}",
                "spread": f"{each.spread:.4f}",
                "in theory": "-" if math.isnan(each.spread_theory) else f"{each.spread_theory:.4f}",
            }
        )
        series = f"total ε {each.local_epsilon:g}{corrected}"
        points.append(Point(bias, series, each.iterations, each.pull, each.pull_error))
        points.append(Point(error, series, each.iterations, each.error))
    figures = [dataclasses.asdict(each) for each in found]
    for fields in figures:
        if math.isnan(fields["spread_theory"]):
            fields["spread_theory"] = None
    return Report(
        title=f"PrivKV and PrivKVM: {experiment.n_users:,} people, {experiment.repeats} repeats",
        explanation="means of values in -1 .. 1: how far fakes pull them towards the middle, how "
        "far they vary, and both together. ε is that of all iterations. Theory leaves out that "
        "means are put back into -1 .. 1.",
        tables={"Errors": rows},
        figures=figures,
        points=points,
    )
