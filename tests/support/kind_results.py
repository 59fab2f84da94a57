"""A result for every kind of task except items, with its task."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from shuffledp.common.mechanisms.registry import rappor_of
from shuffledp.common.mechanisms.tables import Tables
from shuffledp.common.messages.result import (
    BitTable,
    Estimate,
    FoundValues,
    KeyValues,
    Means,
    Owners,
    Result,
    ShareTables,
)
from shuffledp.common.protocols import Kind
from shuffledp.common.task.task import Task
from shuffledp.common.task.view_specs import TableSpec
from tests.support.kind_tasks import kind_task
from tests.support.results import released

N_USERS: Final = 4000
CANDIDATES: Final = ("Ohio", "Utah", "Alberta")
"""Held by three quarters of the people, by one quarter, and by nobody."""
PROTOCOL_OF: Final[dict[Kind, str]] = {
    "string": "rappor",
    "open": "discover",
    "mean": "piecewise",
    "vector": "multi-hm",
    "key-value": "priv-kv",
    "table": "tables",
}
"""One protocol of each kind."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KindCollected:
    """A result and its task."""

    result: Result
    task: Task


@cache
def kind_collected(kind: Kind, labels: tuple[str, ...] = ()) -> KindCollected:
    """
    Return a result of a small task: bits of seed 7 for texts, hand-made figures of other kinds.

    Args:
        kind: Kind of the task.
        labels: Labels of its numbers or keys; none for texts.
    """
    protocol = PROTOCOL_OF[kind]
    task = kind_task(protocol, labels=labels)
    return KindCollected(result=result_of(task, estimate=_estimate(task)), task=task)


def result_of(task: Task, **changes: Any) -> Result:
    """Return a result of a task; `changes` must contain an estimate."""
    fields: dict[str, Any] = {
        "n_users": N_USERS,
        "n_reports": N_USERS * task.lengths[0],
        "n_dummies": N_USERS * task.dummies.lengths[0],
        "published_claim": "no paper states one",
    }
    return released(task, **fields | changes)


def _estimate(task: Task) -> Estimate:
    size = task.domain_size
    if task.kind == "string":
        return bit_table(task)
    if task.kind == "open":
        return FoundValues(
            values=(b"Ohio\0\0", "café".encode() + b"\0", b"Utah\0\0"),
            shares=np.array([0.5, 0.25, 0.125]),
            standard_errors=np.full(3, 0.03125),
            reports=np.full(5, N_USERS // 5),
            sure_share=0.125,
            least_share=0.0625,
            expected_false=0.5,
        )
    if isinstance(task.mechanism, TableSpec):
        return share_tables(task)
    if task.kind == "key-value":
        return KeyValues(
            means_with_fakes=np.linspace(4.0, 1.5, size),
            errors_with_fakes=np.full(size, 0.125),
            reports=np.bincount(np.arange(N_USERS) % size),
            owners=Owners(
                frequencies=np.linspace(0.05, 0.8, size),
                frequency_errors=np.full(size, 0.02),
                means=np.linspace(4.5, 1.0, size),
                mean_errors=np.full(size, 0.25),
            ),
        )
    means = np.linspace(1.5, 4.75, size)
    errors = np.full(size, 0.125)
    return Means(
        means=means, standard_errors=errors, shrunk=means - 0.0625, mse_theory=float(errors[0] ** 2)
    )


def share_tables(task: Task) -> ShareTables:
    """
    Estimate the tables of 4,000 people from counts with the noise of seed 7.

    Half of the people have the same number for every attribute, the others any numbers.
    """
    mechanism, rng = Tables.of(task), np.random.default_rng(7)
    sizes = np.array(mechanism.attribute_sizes)
    alike = rng.integers(0, sizes.min(), size=(N_USERS // 2, 1)) + np.zeros_like(sizes)
    people = np.concatenate([alike, rng.integers(0, sizes, size=(N_USERS // 2, len(sizes)))])
    cells = mechanism.tally(mechanism.randomize(people, rng))
    return mechanism.estimate(cells + mechanism.sample_dummies(N_USERS, rng), N_USERS)


def bit_table(task: Task) -> BitTable:
    """Draw the bit counts of 4,000 people's filters, with seed 7."""
    rappor, rng = rappor_of(task), np.random.default_rng(7)
    held = np.array([3 * N_USERS // 4, N_USERS // 4], dtype=np.int64)
    cells = rappor.sample_cells(held, CANDIDATES[:2], rng)
    cohorts = rappor.spec.cohorts
    return BitTable(cohort_sizes=cells[:cohorts], bit_counts=cells[cohorts:].reshape(cohorts, -1))
