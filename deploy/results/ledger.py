"""Show the analyzer's ledger as a table and as JSON."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from shuffledp.common.messages import ledger_entry
from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.deploy.tasks import population_budgets
from shuffledp.deploy.terminal.durations import format_time
from shuffledp.deploy.terminal.escape import escaped
from shuffledp.deploy.terminal.tables import add_columns, print_whole

_DIGITS: Final = 12
"""Hexadecimal digits of a task digest in the table."""


class LedgerView(NamedTuple):
    """A verified ledger, the head of its hash chain, and the populations' budgets."""

    entries: Sequence[ledger_entry.ChainedEntry]
    head: ledger_entry.ChainHead
    populations: Sequence[population_budgets.PopulationBudgets] = ()

    @property
    def releases(self) -> list[ledger_entry.LedgerEntry]:
        """The entries of releases."""
        return [entry for entry in self.entries if isinstance(entry, ledger_entry.LedgerEntry)]

    @property
    def decisions(self) -> list[ledger_entry.DecisionEntry]:
        """The decisions on batches without a result."""
        return [entry for entry in self.entries if isinstance(entry, ledger_entry.DecisionEntry)]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON fields: entries, head of the hash chain, and budgets."""
        budgets = [population_budgets.as_json(each) for each in self.populations]
        return {"entries": self.entries, "head": self.head, "populations": budgets}

    def show(self, console: Console) -> None:
        """Print the populations' budgets, the chain's head, and the entries."""
        if self.populations:
            population_budgets.show(self.populations, console)
        number, digest = self.head.entry, self.head.entry_hash.hex()
        counted = f"{number:,} {'entry' if number == 1 else 'entries'}"
        text = f"The hash chain of {counted} is valid. Keep a copy of its head:\n{digest}"
        console.print(text, markup=False)
        _show_releases(self.releases, console)
        _show_decisions(self.decisions, console)


def _show_releases(releases: Sequence[ledger_entry.LedgerEntry], console: Console) -> None:
    """Print the cost of each release."""
    table = _table("Privacy loss of each release against the analyzer")
    table.caption = (
        "All so far: the composed epsilon of the population's releases up to this one, at the "
        "task's budget_delta."
    )
    figures = ("users", "refused", "epsilon", "delta", "all so far")
    add_columns(table, {"population": "left", **dict.fromkeys(figures, "right")})
    for entry in releases:
        table.add_row(
            *(f"{entry.entry:,}", entry.task_digest.hex()[:_DIGITS]),
            escaped(entry.population) or "none",
            *(f"{entry.n_users:,}", f"{entry.n_refused:,}", rounded_up(entry.epsilon)),
            *(rounded_up(entry.delta), rounded_up(entry.composed_epsilon)),
        )
    print_whole(table, console)


def _show_decisions(decisions: Sequence[ledger_entry.DecisionEntry], console: Console) -> None:
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
