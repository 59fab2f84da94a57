"""
Simulate one collection of items by the services' own code, without network or encryption.

For large collections, only cell counts are drawn, from the distribution of the reports' counts.
"""

from typing import Final, NamedTuple, cast

import numpy as np

from shuffledp.analyzer.finalize import estimate_result, mixture_of
from shuffledp.common.mechanisms.base import Counts, Mechanism, Mixture, is_null
from shuffledp.common.messages.result import Histogram
from shuffledp.common.task.dummies import Sampled
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


def with_noise(task: Task, counts: Sampled, rng: np.random.Generator) -> CellCounts:
    """Add the shufflers' dummies."""
    cells, n_reports = counts
    if task.shuffler.most_dummies:
        added = task.shuffler.draw_dummies(rng)
        cells, n_reports = cells + added, n_reports + int(added.sum())
    return CellCounts(cells, n_reports)


def _simulate_reports(
    task: Task, mechanism: Mechanism, users: Counts, rng: np.random.Generator
) -> Sampled:
    n_users = int(users.sum())
    values = np.repeat(np.arange(task.domain_size, dtype=np.int64), users)
    real = mechanism.randomize(values, rng)
    _, dummies = task.dummies.draw(mechanism, n_users, rng)
    reports = np.concatenate([real, dummies])
    reports = reports[task.shuffler.draw_kept(len(reports), rng)]
    reports = reports[~is_null(reports)]
    return mechanism.tally(reports), len(reports)


def _draw(task: Task, mechanism: Mechanism, users: Counts, rng: np.random.Generator) -> Sampled:
    if task.shuffler.keep_probability < 1:
        users = rng.binomial(users, task.shuffler.keep_probability)
    return task.dummies.sample(mechanism, users, rng)


def estimate_histogram(
    task: Task, mechanism: Mechanism, counts: CellCounts, n_users: int
) -> tuple[Histogram, Mixture]:
    """Estimate as the analyzer does; return the histogram and the mixture of reports."""
    mixture = mixture_of(task, n_users, counted=counts.n_reports)
    return cast("Histogram", estimate_result(task, mechanism, counts.cells, mixture)), mixture
