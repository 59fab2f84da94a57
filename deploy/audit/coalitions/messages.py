"""
The messages of users in many trials, and how strongly they speak for one of two values.

The deployed code draws reports, dummies and numbers of dummies. A report of item v is uniform with
probability γ and otherwise uniform among those that support v, so it is
w(v) = γ + (1-γ)·l·[supports v] times as likely as a dummy. In a set of messages that holds one own
report, the odds of v are the mean of w(v) over the set [BBGN19]: a ratio of sums is the best
statistic.
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
"""Score of a view that is impossible under the other value; finite, so that scores subtract."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """Messages of many trials."""

    reports: Reports
    trial: NDArray[np.int64]
    """Trial of each report, shape of reports."""
    trials: int

    def joined(self, other: "Sent") -> "Sent":
        """Join the messages of the same trials."""
        return Sent(
            reports=np.concatenate([self.reports, other.reports]),
            trial=np.concatenate([self.trial, other.trial]),
            trials=self.trials,
        )

    def without(self, dropped: NDArray[np.bool_]) -> "Sent":
        """Remove messages."""
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
    """Return whether dummies are drawn one user at a time."""
    return not dummies.uniform


def weights(mechanism: Mechanism, reports: Reports, item: int) -> Vector:
    """
    Return w(item) of each report up to a common factor; shape of reports.

    Without a reduction there are no dummies, and the odds of one report suffice.
    """
    supported, reduction = mechanism.supports(reports, item), mechanism.reduction
    if reduction is None:
        return np.asarray(1 + math.expm1(mechanism.local_epsilon) * supported, dtype=np.float64)
    return np.asarray(
        reduction.blanket + reduction.signal * reduction.answers * supported, dtype=np.float64
    )


def scores(mechanism: Mechanism, sent: Sent, items: tuple[int, int]) -> Vector:
    """Return the log odds of the first item against the second, for each trial."""
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
    Return the difference of the items' counts in each batch, after the shuffler drops and adds.

    Where the shuffler adds dummies that name items, these two counts are all the evidence.
    """
    kept = sent.without(~draw_kept(task.shuffler, len(sent.reports), rng))
    counts = [
        np.bincount(kept.trial[mechanism.supports(kept.reports, item)], minlength=sent.trials)
        + draw_item_dummies(task.shuffler, sent.trials, rng)
        for item in items
    ]
    difference: Vector = (counts[0] - counts[1]).astype(np.float64)
    return difference
