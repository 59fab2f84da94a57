"""Ledger entries, and populations with their budgets, for tests."""

from collections.abc import Iterable
from typing import Any, Final

from shuffledp.analyzer.budgets import PopulationBudget
from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.messages.ledger_entry import (
    ChainedEntry,
    ChainHead,
    DecisionEntry,
    LedgerEntry,
)
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.tasks.population_budgets import PopulationBudgets

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
    return LedgerEntry(**_FIELDS | changes).following(ChainHead())


def next_entry(before: ChainedEntry, **changes: Any) -> LedgerEntry:
    """Return a valid entry after another, with some fields changed."""
    return LedgerEntry(**_FIELDS | changes).following(_head(before))


def decision_entry(
    identity: SigningIdentity, before: ChainedEntry, **changes: Any
) -> DecisionEntry:
    """Return a valid decision after another entry, with some fields changed."""
    fields: dict[str, Any] = {
        "task_digest": _FIELDS["task_digest"],
        "batch_id": _FIELDS["batch_id"],
        "decision": "release",
        "reason": "6 of the batch's 100 reports were refused; most_refused_share is 0.05",
        "note": "junk from one network",
        "decided": 1_800_000_000,
    }
    return DecisionEntry(**fields | changes).signed(identity).following(_head(before))


def _head(last: ChainedEntry) -> ChainHead:
    return ChainHead(entry=last.entry, entry_hash=last.entry_hash)


def releases(entries: Iterable[ChainedEntry]) -> list[LedgerEntry]:
    """Return the releases among the entries of a ledger."""
    return [entry for entry in entries if isinstance(entry, LedgerEntry)]


def population_budgets(population: str = "staff", *, spent: float = 0.70001) -> PopulationBudgets:
    """Return a population with a budget of epsilon 1.2 at delta 1e-5."""
    budget = PopulationBudget(epsilon=1.2, delta=1e-5, spent_epsilon=spent)
    return PopulationBudgets(population=population, releases=2, budgets=(budget,))
