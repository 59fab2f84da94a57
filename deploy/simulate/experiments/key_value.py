"""
PrivKV against PrivKVM: what iterating takes off the bias of means, and what it costs in variance.

Everything is at one total local ε. Whoever does not own a key answers with a fake value, and fakes
pull the estimated mean towards them; PrivKVM takes the means of the iteration before for fakes, and
pays for it by a value's ε that is split over iterations. Beside both stands the single round with
the fakes taken out by formula, which needs no iteration [GLCXC20]. The data are synthetic, as the
paper's own could not be read [YHMZ19]. Run by researchers; the randomness is seeded.
"""

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from common.errors import SettingsError
from common.mechanisms.base import Vector
from common.mechanisms.key_value.pairs import Pairs
from common.mechanisms.key_value.privkv import PrivKv, WantedPairs
from deploy.results.privkvm import budgets, iteration
from deploy.terminal.tables import add_columns, print_whole

Method = Literal["iterated", "fakes taken out"]
_WIDTH: Final = 0.2
"""How far values of one key lie from their mean, to either side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What is run."""

    n_users: int = 200_000
    shares: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    """Of people who own each key; the odd keys have the mean `mean`, the even ones its negative."""
    mean: float = 0.6
    """Of the values of a key, within ±(1 - .2)."""
    local_epsilons: tuple[float, ...] = (1.0, 2.0, 4.0)
    """Totals, each over all iterations."""
    iterations: tuple[int, ...] = (1, 2, 3, 5, 8)
    key_share: float = 0.5
    """Of the total, what whether a key is owned may cost."""
    repeats: int = 20
    seed: int = 1

    def __post_init__(self) -> None:
        if not 0 < abs(self.mean) <= 1 - _WIDTH:
            raise SettingsError(f"mean is {self.mean}; it must not be 0, and within ±{1 - _WIDTH}")
        if self.repeats < 2:  # noqa: PLR2004  # one has no standard error
            raise SettingsError(f"repeats is {self.repeats}; there must be at least 2")
        if not all(0 < share < 1 for share in self.shares):
            raise SettingsError("a share of people must be above 0 and below 1")

    @property
    def means(self) -> Vector:
        """The true means; shape (keys,)."""
        return self.mean * np.where(np.arange(len(self.shares)) % 2, -1.0, 1.0)

    def whole(self, local_epsilon: float) -> WantedPairs:
        """Say what is wanted at one total."""
        return WantedPairs(
            keys=len(self.shares),
            low=-1.0,
            high=1.0,
            local_epsilon=local_epsilon,
            key_share=self.key_share,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
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


def run(experiment: Experiment) -> list[Outcome]:
    """
    Run every total and number of iterations on the same people, drawn anew for each repeat.

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
    return [
        _outcome(experiment, experiment.whole(local_epsilon), setting, np.array(found))
        for (local_epsilon, setting), found in zip(asked, drawn, strict=True)
    ]


def _people(experiment: Experiment, rng: np.random.Generator) -> Pairs:
    shape = (experiment.n_users, len(experiment.shares))
    values = experiment.means + rng.uniform(-_WIDTH, _WIDTH, shape)
    owned = np.where(rng.random(shape) < experiment.shares, values, np.nan)
    return Pairs.of_table(owned, len(experiment.shares))


def _means(
    whole: WantedPairs, people: Pairs, method: Method, iterations: int, rng: np.random.Generator
) -> Vector:
    """Collect once, or over several tasks, and estimate the means."""
    before: Vector | None = None
    for budget in budgets(whole.local_epsilon, iterations, whole.key_share):
        mechanism = _built(iteration(whole, budget, before))
        found = mechanism.estimate(mechanism.tally(mechanism.randomize(people, rng)))
        before = found.means_with_fakes
    taken_out = method == "fakes taken out"
    return mechanism.without_fakes(found).means if taken_out else found.means_with_fakes


def _built(wanted: WantedPairs) -> PrivKv:
    return PrivKv.of_spec(PrivKv.specify(wanted), wanted.keys)


def _theory(experiment: Experiment, whole: WantedPairs, iterations: int) -> tuple[Vector, Vector]:
    """
    Give the means that are expected after the last iteration, and their standard deviations.

    Each iteration has noise of its own, and passes on φ of what the one before was off.
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


def _outcome(
    experiment: Experiment, whole: WantedPairs, setting: tuple[Method, int], drawn: Vector
) -> Outcome:
    """Summarise estimates of shape (repeats, keys)."""
    method, iterations = setting
    truth = experiment.means
    pulls = ((truth - drawn) * np.sign(truth)).mean(axis=1)
    expected, spread = _theory(experiment, whole, iterations)
    if method == "fakes taken out":
        expected, spread = truth, np.full(len(truth), math.nan)
    return Outcome(
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


def show(outcomes: Sequence[Outcome], console: Console) -> None:
    """Print a line for each way of estimating, and what is best at each total."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    headings = ("ε", "iterations", "bias", "theory", "spread", "in theory", "error")
    add_columns(table, dict.fromkeys(headings, "right"))
    for each in outcomes:
        table.add_row(
            f"{each.local_epsilon:g}",
            _named(each),
            f"{each.pull:.4f} ±{each.pull_error:.4f}",
            f"{each.pull_theory:.4f}",
            f"{each.spread:.4f}",
            "-" if math.isnan(each.spread_theory) else f"{each.spread_theory:.4f}",
            f"{each.error:.4f}",
        )
    console.print(
        "Means of values in -1 .. 1: how far fakes pull them towards the middle, how far they "
        "vary, and both together. ε is that of all iterations. Theory leaves out that means are "
        "put back into -1 .. 1.",
        highlight=False,
    )
    print_whole(table, console)
    for sentence in remarks(outcomes):
        console.print(sentence, style="dim", highlight=False)


def _named(outcome: Outcome) -> str:
    return str(outcome.iterations) if outcome.method == "iterated" else "1, fakes taken out"


def remarks(outcomes: Sequence[Outcome]) -> list[str]:
    """Say for each total how many iterations err least, and how the corrected round compares."""
    sentences = []
    for total in dict.fromkeys(each.local_epsilon for each in outcomes):
        here = [each for each in outcomes if each.local_epsilon == total]
        iterated = min(
            (each for each in here if each.method == "iterated"), key=lambda each: each.error
        )
        corrected = next(each for each in here if each.method == "fakes taken out")
        sentences.append(
            f"At ε = {total:g} the error is least with {iterated.iterations} "
            f"iteration{'s' * (iterated.iterations > 1)}, {iterated.error:.4f}; "
            f"one round with the fakes taken out errs by {corrected.error:.4f}."
        )
    return sentences


def plot(outcomes: Sequence[Outcome], path: Path, title: str) -> tuple[Path, Path]:
    """
    Write a figure of bias and error against iterations, as PNG and as SVG.

    Raises:
        SettingsError: matplotlib is not there, or the figure cannot be written.
    """
    try:
        figure: Any = importlib.import_module("deploy.simulate.experiments.key_value_figure")
    except ModuleNotFoundError as error:
        raise SettingsError(
            "a figure needs matplotlib: install shuffledp with its extra research "
            "(pip install 'shuffledp[research]'), or matplotlib beside it"
        ) from error
    written: tuple[Path, Path] = figure.save(figure.draw(outcomes, title=title), path)
    return written
