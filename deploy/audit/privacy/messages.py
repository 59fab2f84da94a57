"""
What one person sends, many times over, and how strongly it speaks for one of two values.

Reports and dummies come from the mechanism that devices run, and numbers of dummies from the law
that they draw. A report of item v is uniform with probability γ and uniform among those that
support v otherwise, so that next to a dummy it is w(v) = γ + (1-γ)·l·[supports v] times as likely.
Of a set of messages one of which is the person's own, nobody knowing which, the odds of v are the
mean of w(v) over the set [BBGN19]: a ratio of sums is the best statistic there is.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.base import Mechanism, Reports, Vector
from common.task.dummy_spec import DummySpec
from common.task.task import Task
from shuffler.dummies import draw_item_dummies, draw_kept
from user_agent.contribution import draw_dummies, draw_dummy_counts

_CERTAIN: Final = 1e100
"""Score of a view that is impossible under the other value; infinities cannot be subtracted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """Messages of many trials, all together."""

    reports: Reports
    trial: NDArray[np.int64]
    """To which trial each belongs, shape of reports."""
    trials: int

    def joined(self, other: "Sent") -> "Sent":
        """Put the messages of the same trials together."""
        return Sent(
            reports=np.concatenate([self.reports, other.reports]),
            trial=np.concatenate([self.trial, other.trial]),
            trials=self.trials,
        )

    def without(self, dropped: NDArray[np.bool_]) -> "Sent":
        """Leave messages out."""
        return Sent(reports=self.reports[~dropped], trial=self.trial[~dropped], trials=self.trials)


def own_reports(
    mechanism: Mechanism, item: int, trials: int, rng: np.random.Generator, each: int = 1
) -> Sent:
    """Draw `each` users' reports of one item, for each trial."""
    trial = np.repeat(np.arange(trials), each)
    values = np.full(len(trial), item, dtype=np.int64)
    return Sent(reports=mechanism.randomize(values, rng), trial=trial, trials=trials)


def own_dummies(
    task: Task, mechanism: Mechanism, trials: int, rng: np.random.Generator, each: int = 1
) -> Sent:
    """Draw `each` users' dummies, for each trial."""
    dummies = task.dummies
    if dummies.uniform:
        numbers = draw_dummy_counts(dummies, trials * each, rng)
        reports = mechanism.dummies(int(numbers.sum()), rng)
    else:
        drawn = [draw_dummies(mechanism, dummies, rng) for _ in range(trials * each)]
        numbers = np.array([len(one) for one in drawn], dtype=np.int64)
        reports = np.concatenate(drawn)
    trial = np.repeat(np.repeat(np.arange(trials), each), numbers)
    return Sent(reports=reports, trial=trial, trials=trials)


def slow_to_draw(dummies: DummySpec) -> bool:
    """Say whether dummies are drawn one user at a time."""
    return not dummies.uniform


def weights(mechanism: Mechanism, reports: Reports, item: int) -> Vector:
    """
    Give w(item) of each report, but for a common factor; shape of reports.

    Where the mechanism has no reduction, no dummies go with it: the odds of one report are enough.
    """
    supported, reduction = mechanism.supports(reports, item), mechanism.reduction
    if reduction is None:
        return np.asarray(1 + math.expm1(mechanism.local_epsilon) * supported, dtype=np.float64)
    return np.asarray(
        reduction.blanket + reduction.signal * reduction.answers * supported, dtype=np.float64
    )


def scores(mechanism: Mechanism, sent: Sent, items: tuple[int, int]) -> Vector:
    """Give the log of the odds of the first item against the second, of each trial's messages."""
    sums = [
        np.bincount(
            sent.trial,
            weights=weights(mechanism, sent.reports, item),
            minlength=sent.trials,
        )
        for item in items
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.log(sums[0]) - np.log(sums[1])
    score: Vector = np.nan_to_num(odds, nan=0.0, posinf=_CERTAIN, neginf=-_CERTAIN)
    return score


def count_scores(
    task: Task, mechanism: Mechanism, sent: Sent, items: tuple[int, int], rng: np.random.Generator
) -> Vector:
    """
    Give how much oftener a batch supports the first item, after what the shuffler drops and adds.

    Where it adds dummies that name items, nothing but these two counts tells the two apart.
    """
    kept = sent.without(~draw_kept(task.shuffler, len(sent.reports), rng))
    counts = [
        np.bincount(kept.trial[mechanism.supports(kept.reports, item)], minlength=sent.trials)
        + draw_item_dummies(task.shuffler, sent.trials, rng)
        for item in items
    ]
    difference: Vector = (counts[0] - counts[1]).astype(np.float64)
    return difference
