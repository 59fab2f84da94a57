"""Results with their task, large and small, for tests of pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.messages.result import Histogram, Result
from shuffledp.common.task.task import Task
from shuffledp.deploy.datasets.sample_people import SamplePeople
from shuffledp.deploy.demo.truth import beside_truth
from shuffledp.deploy.pages.result_page import result_page
from shuffledp.deploy.results.result_view import result_view
from tests.support.results import guarantee, released
from tests.support.tasks import PublishedTask, published

N_USERS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Collected:
    """A result, its task, and the true shares."""

    result: Result
    task: Task
    truth: NDArray[np.float64]


@cache
def _published(labels: tuple[str, ...], size: int) -> PublishedTask:
    return published(
        domain_size=size,
        labels=labels,
        population="staff & {guests}",
        local_epsilon=4.0,
        n_min=N_USERS // 2,
        target_size=N_USERS,
    )


def collected(*, size: int = 0, labels: Sequence[str] = ()) -> Collected:
    """Return shares proportional to 1 / rank with noise of seed 7; the last share is truly 0."""
    size = size or len(labels)
    signed = _published(tuple(labels), size)
    rng = np.random.default_rng(7)
    truth = 1 / np.arange(1, size + 1)
    truth[-1] = 0
    truth /= truth.sum()
    errors = np.sqrt(1e-6 + truth / N_USERS)
    frequencies = truth + errors * rng.standard_normal(size)
    frequencies[0] = truth[0]
    frequencies[-1] = -errors[-1]
    refined = np.maximum(frequencies, 0)
    result = released(
        signed.task,
        signed.signed.digest(),
        buckets=signed.task.item_mechanism.buckets,
        n_users=N_USERS,
        n_reports=2 * N_USERS,
        n_dummies=N_USERS - 6,
        refused={"repeated": 3, "unreadable": 2, "malformed": 1},
        estimate=Histogram(
            frequencies=frequencies,
            standard_errors=errors,
            refined=refined / refined.sum(),
            mse_theory=float(np.mean(errors**2)),
        ),
        guarantees=(
            guarantee("analyzer", 0.108_169_5, 1e-6),
            guarantee("shuffler+analyzer", 4.0, 0.0),
            guarantee("network", 0.0, 0.0),
        ),
        published_claim="Theorem 1 would claim epsilon 0.6194 at delta 1e-06",
    )
    return Collected(result=result, task=signed.task, truth=truth)


def page_of(found: Collected, *, known: bool = False) -> str:
    """Render the page of a result; with `known`, beside the true shares, as in a demo."""
    view = result_view(found.result.estimate, found.task, most=9)
    if known:
        people = SamplePeople(kind="categorical", title="", values=[], draft={}, truth=found.truth)
        view = beside_truth(view, found.result.estimate, found.task, people)
    return result_page(found.result, found.task, view)
