"""Ledger entries, and populations with their budgets, for tests."""

from typing import Any, Final

from analyzer.budgets import PopulationBudget
from common.messages.batch import BatchId
from common.messages.ledger_entry import FIRST_PREVIOUS_HASH, LedgerEntry
from common.task_digest import TaskDigest
from deploy.tasks.population_budgets import PopulationBudgets

_FIELDS: Final[dict[str, Any]] = {
    "task_digest": TaskDigest(b"\xd1" * 32),
    "batch_id": BatchId(b"b" * 16),
    "population": "staff",
    "n_users": 100,
    "n_refused": 2,
    "coalition": "analyzer",
    "epsilon": float("inf"),
    "delta": 1e-6,
    "theorem": "formula 1",
    "composed_epsilon": 0.51234,
}


def first_entry(**changes: Any) -> LedgerEntry:
    """Return a valid first entry, with some fields changed."""
    return LedgerEntry.chained(FIRST_PREVIOUS_HASH, **_FIELDS | {"entry": 1} | changes)


def next_entry(before: LedgerEntry, **changes: Any) -> LedgerEntry:
    """Return a valid entry after another, with some fields changed."""
    number = before.entry + 1
    return LedgerEntry.chained(before.entry_hash, **_FIELDS | {"entry": number} | changes)


def population_budgets(population: str = "staff", *, spent: float = 0.70001) -> PopulationBudgets:
    """Return a population with a budget of epsilon 1.2 at delta 1e-5."""
    budget = PopulationBudget(epsilon=1.2, delta=1e-5, spent_epsilon=spent)
    return PopulationBudgets(population=population, releases=2, budgets=(budget,))
