"""The analyzer's ledger, for whoever reads it: a table, or JSON."""

from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from common.guarantee import rounded_up
from common.ledger_entry import ChainHead, LedgerEntry
from deploy import population_budgets
from deploy.foreign_text import shown
from deploy.population_budgets import PopulationBudgets

_DIGITS: Final = 12
"""Hexadecimal digits of a digest that are shown in a table."""


def as_json(
    entries: Sequence[LedgerEntry], head: ChainHead, populations: Sequence[PopulationBudgets]
) -> dict[str, Any]:
    """Give every entry with both of its hashes, the head, and what populations have left."""
    return {
        "entries": [
            {
                **entry.fields(),
                "previous_hash": entry.previous_hash.hex(),
                "entry_hash": entry.entry_hash.hex(),
            }
            for entry in entries
        ],
        "head": {"entry": head.entry, "entry_hash": head.entry_hash.hex()},
        "populations": [population_budgets.as_json(one) for one in populations],
    }


def show(
    entries: Sequence[LedgerEntry],
    head: ChainHead,
    populations: Sequence[PopulationBudgets],
    console: Console,
) -> None:
    """Print the entries, what populations have left of their budgets, and the head."""
    table = Table(title="What each release cost its population against the analyzer")
    for heading in ("entry", "task", "population", "users", "refused", "epsilon", "delta"):
        table.add_column(heading, overflow="fold")
    table.add_column("epsilon of all so far, at budget_delta", overflow="fold")
    for entry in entries:
        table.add_row(
            str(entry.entry),
            entry.task_digest.hex()[:_DIGITS],
            shown(entry.population) or "(alone)",
            str(entry.n_users),
            str(entry.n_refused),
            rounded_up(entry.epsilon),
            rounded_up(entry.delta),
            rounded_up(entry.composed_epsilon),
        )
    console.print(table)
    if populations:
        population_budgets.show(populations, console)
    entries_in_words = "entry" if head.entry == 1 else "entries"
    console.print(
        f"The chain of {head.entry} {entries_in_words} holds. Its head, to be noted down:\n"
        f"{head.entry_hash.hex()}",
        markup=False,
    )
