"""The page of the analyzer's ledger: released batches, and nothing of those that are collected."""

from collections.abc import Sequence

from common.messages.ledger_entry import ChainHead, LedgerEntry
from deploy.pages.page import render
from deploy.tasks.population_budgets import PopulationBudgets


def releases_page(
    entries: Sequence[LedgerEntry],
    head: ChainHead,
    populations: Sequence[PopulationBudgets],
    *,
    version: str,
) -> str:
    """
    Make the page of all releases.

    Args:
        entries: The ledger's, in their order, verified.
        head: Where their chain ends.
        populations: Those that the entries name, with their budgets.
        version: Of this program.
    """
    releases = f"{len(entries):,} release" + "s" * (len(entries) != 1)
    return render(
        "releases.html",
        version=version,
        styles=("releases.css",),
        title=releases,
        entries=entries,
        head=head,
        populations=populations,
        alone=sum(1 for entry in entries if not entry.population),
    )
