"""Users' own reports and dummies in many trials, drawn by the deployed code."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.base import Mechanism, Reports
from common.task.task import Task
from deploy.simulate.collection import draw_group_dummies


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """Messages of many trials."""

    reports: Reports
    trial: NDArray[np.int64]
    """Trial of each report; same shape as reports."""
    trials: int

    def joined(self, other: "Sent") -> "Sent":
        """Add messages to the same trials."""
        return Sent(
            reports=np.concatenate([self.reports, other.reports]),
            trial=np.concatenate([self.trial, other.trial]),
            trials=self.trials,
        )

    def without(self, dropped: NDArray[np.bool_]) -> "Sent":
        """Remove the messages that a mask selects."""
        return Sent(reports=self.reports[~dropped], trial=self.trial[~dropped], trials=self.trials)


def own_reports(
    mechanism: Mechanism, item: int, trials: int, rng: np.random.Generator, each: int = 1
) -> Sent:
    """Draw the own reports of `each` users who hold an item, in each trial."""
    trial = np.repeat(np.arange(trials), each)
    values = np.full(len(trial), item, dtype=np.int64)
    return Sent(reports=mechanism.randomize(values, rng), trial=trial, trials=trials)


def own_dummies(
    task: Task, mechanism: Mechanism, trials: int, rng: np.random.Generator, each: int = 1
) -> Sent:
    """Draw the dummies of `each` users, in each trial."""
    numbers, reports = draw_group_dummies(mechanism, task.dummies, trials * each, rng)
    trial = np.repeat(np.repeat(np.arange(trials), each), numbers)
    return Sent(reports=reports, trial=trial, trials=trials)
