"""Show the analyzer's ledger as a table and as JSON."""

from collections.abc import Sequence
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from common.messages.guarantee import rounded_up
from common.messages.ledger_entry import ChainedEntry, ChainHead, DecisionEntry, LedgerEntry
from deploy.tasks import population_budgets
from deploy.tasks.population_budgets import PopulationBudgets
from deploy.terminal.durations import format_time
from deploy.terminal.escape import escaped
from deploy.terminal.tables import add_columns, print_whole

_DIGITS: Final = 12
"""Hexadecimal digits of a task digest in the table."""


def as_json(
    entries: Sequence[ChainedEntry],
    head: ChainHead,
    populations: Sequence[PopulationBudgets],
) -> dict[str, Any]:
    """Return the ledger's JSON fields: entries, head of the hash chain, and budgets."""
    return {
        "entries": entries,
        "head": head,
        "populations": [population_budgets.as_json(each) for each in populations],
    }


def show(
    entries: Sequence[ChainedEntry],
    head: ChainHead,
    populations: Sequence[PopulationBudgets],
    console: Console,
) -> None:
    """Print the entries of a verified ledger, the populations' budgets, and the chain's head."""
    table = _table("Privacy loss of each release against the analyzer")
    table.caption = (
        "All so far: the composed epsilon of the population's releases up to this one, at the "
        "task's budget_delta."
    )
    figures = ("users", "refused", "epsilon", "delta", "all so far")
    add_columns(table, {"population": "left", **dict.fromkeys(figures, "right")})
    for entry in entries:
        if not isinstance(entry, LedgerEntry):
            continue
        table.add_row(
            *(f"{entry.entry:,}", entry.task_digest.hex()[:_DIGITS]),
            escaped(entry.population) or "none",
            *(f"{entry.n_users:,}", f"{entry.n_refused:,}", rounded_up(entry.epsilon)),
            *(rounded_up(entry.delta), rounded_up(entry.composed_epsilon)),
        )
    print_whole(table, console)
    _show_decisions([entry for entry in entries if isinstance(entry, DecisionEntry)], console)
    if populations:
        population_budgets.show(populations, console)
    counted = f"{head.entry:,} {'entry' if head.entry == 1 else 'entries'}"
    console.print(
        f"The hash chain of {counted} is valid. Keep a copy of its head:\n{head.entry_hash.hex()}",
        markup=False,
    )


def _show_decisions(decisions: Sequence[DecisionEntry], console: Console) -> None:
    """Print the decisions on batches without a result, if there are any."""
    if not decisions:
        return
    table = _table("Decisions on batches")
    add_columns(table, dict.fromkeys(("decision", "time", "reason", "note"), "left"))
    for entry in decisions:
        table.add_row(
            *(f"{entry.entry:,}", entry.task_digest.hex()[:_DIGITS], entry.decision),
            *(format_time(entry.decided), escaped(entry.reason), escaped(entry.note)),
        )
    print_whole(table, console)


def _table(title: str) -> Table:
    """Return a compact table of entries, with the columns of the entry and its task."""
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    add_columns(table, {"entry": "right"})
    table.add_column("task", no_wrap=True, min_width=_DIGITS)
    return table
