"""
Simulate one collection of items, without network and without sealing.

Randomizers, dummies, the shuffler's draws and the estimator are those of the services. Where
messages are too many to make, `sample_cells` draws their counts by cell from the same distribution.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from analyzer.estimation.histogram import estimate
from analyzer.finalize import mixture_of
from common.mechanisms.base import Counts, Mechanism, Mixture
from common.messages.result import Histogram
from common.task.task import Task
from shuffler.shuffle import draw_item_dummies, draw_kept
from user_agent.contribution import draw_dummies, draw_dummy_counts

ONE_BY_ONE: Final = 30_000_000
"""Bytes of reports up to which each message is made: some two million hashed ones."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counted:
    """The analyzer's counts of a batch."""

    cells: Counts
    n_reports: int
    """Reports that were counted: users' own that were kept, and all dummies."""


def made_one_by_one(task: Task, n_users: int) -> bool:
    """Check whether so many users' messages are few enough to make each of them."""
    messages = n_users * (1 + task.dummies.expected_per_user)
    return task.dummies.uniform and messages * task.mechanism.report_bytes <= ONE_BY_ONE


def count(
    task: Task,
    mechanism: Mechanism,
    users: Counts,
    rng: np.random.Generator,
    *,
    one_by_one: bool,
) -> Counted:
    """
    Collect from users and count by cell.

    Args:
        task: Under which they answer.
        mechanism: The task's.
        users: By item, shape (domain_size,).
        rng: Source of everybody's randomness.
        one_by_one: Make every user's messages; otherwise draw their counts (dummies of each item
            without their cut at `most`, which is far out of reach).
    """
    collect = _one_by_one if one_by_one else _sampled
    counted = collect(task, mechanism, users, rng)
    if task.shuffler.law == "none":
        return counted
    added = draw_item_dummies(task.shuffler, task.domain_size, rng)
    return Counted(cells=counted.cells + added, n_reports=counted.n_reports + int(added.sum()))


def _one_by_one(
    task: Task, mechanism: Mechanism, users: Counts, rng: np.random.Generator
) -> Counted:
    n_users = int(users.sum())
    values = np.repeat(np.arange(task.domain_size, dtype=np.int64), users)
    own = mechanism.randomize(values, rng)
    if task.dummies.uniform:
        total = int(draw_dummy_counts(task.dummies, n_users, rng).sum())
        dummies = mechanism.dummies(total, rng)
    else:
        dummies = np.concatenate(
            [draw_dummies(mechanism, task.dummies, rng) for _ in range(n_users)]
        )
    reports = np.concatenate([own, dummies])
    reports = reports[draw_kept(task.shuffler, len(reports), rng)]
    return Counted(cells=mechanism.tally(reports), n_reports=len(reports))


def _sampled(task: Task, mechanism: Mechanism, users: Counts, rng: np.random.Generator) -> Counted:
    n_users, dummies = int(users.sum()), task.dummies
    if task.shuffler.kept < 1:
        users = rng.binomial(users, task.shuffler.kept)
    if dummies.uniform:
        total = int(draw_dummy_counts(dummies, n_users, rng).sum())
        cells = mechanism.sample_cells(users, total, rng)
    else:
        named = rng.binomial(n_users, dummies.extra_chance, size=task.domain_size)
        cells, total = mechanism.sample_cells(users, 0, rng) + named, int(named.sum())
    return Counted(cells=cells, n_reports=int(users.sum()) + total)


def release(
    task: Task, mechanism: Mechanism, counted: Counted, n_users: int
) -> tuple[Histogram, Mixture]:
    """Estimate as the analyzer does; return the histogram and the mixture it assumes."""
    mixture = mixture_of(task, n_users, counted=counted.n_reports)
    refinement = task.refinement
    return estimate(mechanism, counted.cells, mixture=mixture, refinement=refinement), mixture
