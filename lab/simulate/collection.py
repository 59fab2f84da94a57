"""
Simulate one collection of items by the services' own code, without network or encryption.

For large collections, only cell counts are drawn, from the distribution of the reports' counts.
"""

from typing import Final, NamedTuple

import numpy as np

from shuffledp.analyzer.estimation.histogram import estimate
from shuffledp.analyzer.finalize import mixture_of
from shuffledp.common.mechanisms.base import Counts, Mechanism, Mixture, is_null
from shuffledp.common.messages.result import Histogram
from shuffledp.common.task.task import Task

ONE_BY_ONE: Final = 30_000_000
"""Maximum bytes of reports to simulate one by one: about two million hashed reports."""


class CellCounts(NamedTuple):
    """A batch's reports, counted by the mechanism's cells."""

    cells: Counts
    n_reports: int
    """Reports after the shuffler's sampling, dummies included."""


def few_enough_reports(task: Task, n_users: int) -> bool:
    """Return whether reports are few enough to simulate one by one, and dummies quick to draw."""
    n_reports = n_users * (task.own_reports + task.dummies.expected_per_user)
    return task.dummies.quick and n_reports * task.mechanism.report_bytes <= ONE_BY_ONE


def collect(
    task: Task, mechanism: Mechanism, users: Counts, rng: np.random.Generator, *, one_by_one: bool
) -> CellCounts:
    """
    Simulate a collection, and count its reports by cell.

    `users` counts the users of each item, shape (domain_size,). Without `one_by_one`, cell counts
    are drawn, ignoring the maximum of dummies per user, which is practically never reached.
    """
    simulate = _simulate_reports if one_by_one else _draw
    return with_noise(task, simulate(task, mechanism, users, rng), rng)


def with_noise(task: Task, counts: CellCounts, rng: np.random.Generator) -> CellCounts:
    """Add the shufflers' dummies."""
    if task.shuffler.most_dummies == 0:
        return counts
    added = task.shuffler.draw_dummies(rng)
    return CellCounts(cells=counts.cells + added, n_reports=counts.n_reports + int(added.sum()))


def _simulate_reports(
    task: Task, mechanism: Mechanism, users: Counts, rng: np.random.Generator
) -> CellCounts:
    n_users = int(users.sum())
    values = np.repeat(np.arange(task.domain_size, dtype=np.int64), users)
    real = mechanism.randomize(values, rng)
    _, dummies = task.dummies.draw(mechanism, n_users, rng)
    reports = np.concatenate([real, dummies])
    reports = reports[task.shuffler.draw_kept(len(reports), rng)]
    reports = reports[~is_null(reports)]
    return CellCounts(cells=mechanism.tally(reports), n_reports=len(reports))


def _draw(task: Task, mechanism: Mechanism, users: Counts, rng: np.random.Generator) -> CellCounts:
    if task.shuffler.keep_probability < 1:
        users = rng.binomial(users, task.shuffler.keep_probability)
    return CellCounts(*task.dummies.sample(mechanism, users, rng))


def estimate_histogram(
    task: Task, mechanism: Mechanism, counts: CellCounts, n_users: int
) -> tuple[Histogram, Mixture]:
    """Estimate as the analyzer does; return the histogram and the mixture of reports."""
    mixture = mixture_of(task, n_users, counted=counts.n_reports)
    refinement = task.refinement
    return estimate(mechanism, counts.cells, mixture=mixture, refinement=refinement), mixture
