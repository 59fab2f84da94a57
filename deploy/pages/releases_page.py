"""The page of the analyzer's ledger: released batches, and none that are being collected."""

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
    Render the page of all releases.

    Args:
        entries: Of the ledger, in their order, verified.
        head: Where their chain ends.
        populations: Those of the entries, with their budgets.
        version: Of this program.
    """
    return render(
        "releases.html",
        version=version,
        styles=("releases.css",),
        title=f"{len(entries):,} release" + "s" * (len(entries) != 1),
        entries=entries,
        head=head,
        populations=populations,
        alone=sum(1 for entry in entries if not entry.population),
    )
