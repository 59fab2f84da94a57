"""The page of the analyzer's ledger: released batches, and nothing of those that are collected."""

from collections.abc import Sequence
from dataclasses import dataclass

from common.ledger_entry import ChainHead, LedgerEntry
from deploy.pages.page import render


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """What all releases to one population cost together."""

    name: str
    releases: int
    composed_epsilon: float


def releases_page(entries: Sequence[LedgerEntry], head: ChainHead, *, version: str) -> str:
    """
    Make the page of all releases.

    Args:
        entries: The ledger's, in their order, verified.
        head: Where their chain ends.
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
        populations=populations(entries),
        alone=sum(1 for entry in entries if not entry.population),
    )


def populations(entries: Sequence[LedgerEntry]) -> tuple[Population, ...]:
    """Add releases up by population; those to nobody who is asked again stand for themselves."""
    names = dict.fromkeys(entry.population for entry in entries if entry.population)
    found = []
    for name in names:
        of_name = [entry for entry in entries if entry.population == name]
        found.append(
            Population(
                name=name,
                releases=len(of_name),
                composed_epsilon=of_name[-1].composed_epsilon,
            )
        )
    return tuple(found)
