"""
PrivKV against PrivKVM: what iterating takes off the bias of means, and what it costs in variance.

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
from deploy.results.privkvm import budgets, iteration
from deploy.simulate.experiments.experiment_report import Progress, Report, ReportTable, unreported
from deploy.simulate.plot import Panel, Series

Method = Literal["iterated", "fakes taken out"]
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

    def whole(self, local_epsilon: float) -> PairRequest:
        """Return the requirements at one total."""
        return PairRequest(
            keys=len(self.shares),
            low=-1.0,
            high=1.0,
            local_epsilon=local_epsilon,
            key_share=self.key_share,
        )


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


def run(experiment: KeyValueExperiment, progress: Progress = unreported) -> list[MeanErrors]:
    """
    Run every total and number of iterations on the same people, drawn again for each repeat.

    Returns:
        By total: the single round with the fakes taken out, then the iterated ones.

    Cost: some 20 ms an iteration for 200,000 people.
    """
    settings: list[tuple[Method, int]] = [("fakes taken out", 1)]
    settings += [("iterated", number) for number in experiment.iterations]
    asked = list(product(experiment.local_epsilons, settings))
    drawn: list[list[Vector]] = [[] for _ in asked]
    for number in range(experiment.repeats):
        people = _people(experiment, np.random.default_rng((experiment.seed, number)))
        for place, (local_epsilon, (method, iterations)) in enumerate(asked):
            rng = np.random.default_rng((experiment.seed, number, place))
            whole = experiment.whole(local_epsilon)
            drawn[place].append(_means(whole, people, method, iterations, rng))
        progress(number + 1, experiment.repeats)
    return [
        _summary(experiment, experiment.whole(local_epsilon), setting, np.array(found))
        for (local_epsilon, setting), found in zip(asked, drawn, strict=True)
    ]


def _people(experiment: KeyValueExperiment, rng: np.random.Generator) -> Pairs:
    shape = (experiment.n_users, len(experiment.shares))
    values = experiment.means + rng.uniform(-_WIDTH, _WIDTH, shape)
    owned = np.where(rng.random(shape) < experiment.shares, values, np.nan)
    return Pairs.of_table(owned, len(experiment.shares))


def _means(
    whole: PairRequest, people: Pairs, method: Method, iterations: int, rng: np.random.Generator
) -> Vector:
    """Collect once, or over several tasks, and estimate the means."""
    before: Vector | None = None
    for budget in budgets(whole.local_epsilon, iterations, whole.key_share):
        mechanism = _built(iteration(whole, budget, before))
        found = mechanism.estimate(mechanism.tally(mechanism.randomize(people, rng)))
        before = found.means_with_fakes
    taken_out = method == "fakes taken out"
    return mechanism.without_fakes(found).means if taken_out else found.means_with_fakes


def _built(wanted: PairRequest) -> PrivKv:
    return PrivKv.of_spec(PrivKv.specify(wanted), wanted.keys)


def _theory(
    experiment: KeyValueExperiment, whole: PairRequest, iterations: int
) -> tuple[Vector, Vector]:
    """
    Return the means that are expected after the last iteration, and their standard deviations.

    Each iteration has noise of its own, and passes on φ of the error of the one before.
    """
    shares = np.array(experiment.shares)
    before: Vector | None = None
    variance = np.zeros(len(shares))
    for budget in budgets(whole.local_epsilon, iterations, whole.key_share):
        mechanism = _built(iteration(whole, budget, before))
        expected = mechanism.expected(shares, experiment.means, experiment.n_users)
        variance = expected.errors_with_fakes**2 + mechanism.share_of_fakes(shares) ** 2 * variance
        before = expected.means_with_fakes
    return expected.means_with_fakes, np.sqrt(variance)


def _summary(
    experiment: KeyValueExperiment, whole: PairRequest, setting: tuple[Method, int], drawn: Vector
) -> MeanErrors:
    """Summarise estimates of shape (repeats, keys)."""
    method, iterations = setting
    truth = experiment.means
    pulls = ((truth - drawn) * np.sign(truth)).mean(axis=1)
    expected, spread = _theory(experiment, whole, iterations)
    if method == "fakes taken out":
        expected, spread = truth, np.full(len(truth), math.nan)
    return MeanErrors(
        local_epsilon=whole.local_epsilon,
        method=method,
        iterations=iterations,
        pull=float(pulls.mean()),
        pull_error=float(pulls.std(ddof=1) / math.sqrt(len(pulls))),
        pull_theory=float(((truth - expected) * np.sign(truth)).mean()),
        spread=float(np.sqrt(drawn.var(axis=0, ddof=1).mean())),
        spread_theory=float(np.sqrt((spread**2).mean())),
        error=float(np.sqrt(((drawn - truth) ** 2).mean())),
    )


def key_value(seed: int, progress: Progress) -> Report:
    """Run the experiment."""
    experiment = KeyValueExperiment(seed=seed)
    return report(run(experiment, progress), experiment)


def report(found: Sequence[MeanErrors], experiment: KeyValueExperiment) -> Report:
    """Return a line for each way of estimating, and the best at each total."""
    rows = [
        {
            "ε": f"{each.local_epsilon:g}",
            "iterations": f"{each.iterations}{', fakes taken out' * (each.method != 'iterated')}",
            "bias": f"{each.pull:.4f} ±{each.pull_error:.4f}",
            "theory": f"{each.pull_theory:.4f}",
            "spread": f"{each.spread:.4f}",
            "in theory": "-" if math.isnan(each.spread_theory) else f"{each.spread_theory:.4f}",
            "error": f"{each.error:.4f}",
        }
        for each in found
    ]
    figures = [dataclasses.asdict(each) for each in found]
    for each in figures:
        if math.isnan(each["spread_theory"]):
            each["spread_theory"] = None
    return Report(
        title=f"PrivKV and PrivKVM: {experiment.n_users:,} people, {experiment.repeats} repeats",
        explanation="means of values in -1 .. 1: how far fakes pull them towards the middle, how "
        "far they vary, and both together. ε is that of all iterations. Theory leaves out that "
        "means are put back into -1 .. 1.",
        tables=[ReportTable(rows=rows, remarks=remarks(found))],
        figures=figures,
        panels=_panels(found),
    )


def remarks(found: Sequence[MeanErrors]) -> list[str]:
    """State for each total how many iterations err least, and how the corrected round compares."""
    sentences = []
    for total, (corrected, *iterated) in _by_total(found).items():
        best = min(iterated, key=lambda each: each.error)
        sentences.append(
            f"At ε = {total:g} the error is least with {best.iterations} "
            f"iteration{'s' * (best.iterations > 1)}, {best.error:.4f}; "
            f"one round with the fakes taken out errs by {corrected.error:.4f}."
        )
    return sentences


def _by_total(found: Sequence[MeanErrors]) -> dict[float, list[MeanErrors]]:
    totals: dict[float, list[MeanErrors]] = {}
    for each in found:
        totals.setdefault(each.local_epsilon, []).append(each)
    return totals


def _panels(found: Sequence[MeanErrors]) -> list[Panel]:
    """Return the bias and the whole error against iterations; dotted: the corrected round."""
    bias, error = list[Series](), list[Series]()
    for colour, (total, (corrected, *iterated)) in enumerate(_by_total(found).items()):
        whole = Series(
            name=f"total ε {total:g}",
            x=[float(each.iterations) for each in iterated],
            y=[each.error for each in iterated],
            colour=colour,
        )
        same = [corrected.error] * len(iterated)
        taken_out = f"{whole.name}, fakes taken out"
        error += [whole, dataclasses.replace(whole, name=taken_out, y=same, line=":")]
        pulls = [each.pull for each in iterated]
        whiskers = [each.pull_error for each in iterated]
        bias.append(dataclasses.replace(whole, y=pulls, error=whiskers))
    return [
        Panel(
            title=title,
            x_label="iterations, at one total ε",
            y_label=label,
            series=series,
            log=series is error,
        )
        for title, label, series in (
            ("bias that fakes leave", "mean distance towards the middle", bias),
            ("bias and noise together", "root of the mean squared error of a mean", error),
        )
    ]
