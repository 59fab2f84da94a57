"""Faults of what is written down: the ledger, budgets, signatures, and what becomes of a batch."""

import asyncio
import dataclasses
import math
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import analyzer.spending
from analyzer import ledger
from analyzer.release import Releases
from analyzer.spending import Spent
from analyzer.store import Store
from common.errors import LedgerError
from common.ledger_entry import ChainHead, LedgerEntry, verify
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault

_FEW: Final = 8
"""Releases to a population that are remembered."""


def users_not_hashed() -> AbstractContextManager[None]:
    """Plant a ledger whose hashes leave out how many users and refused reports there were."""
    honest = LedgerEntry.fields

    def other(self: LedgerEntry) -> dict[str, Any]:
        fields = honest(self)
        return {name: fields[name] for name in fields if name not in {"n_users", "n_refused"}}

    return planting.attribute(LedgerEntry, "fields", other)


def chain_unfollowed() -> AbstractContextManager[None]:
    """Plant a walk through the ledger that looks at each entry by itself."""

    def other(entries: Iterable[LedgerEntry], head: ChainHead | None = None) -> ChainHead:
        head = head or ChainHead()
        for entry in entries:
            if entry.entry != head.entry + 1 or entry.entry_hash != entry.expected_hash():
                raise LedgerError(f"the ledger is broken at entry {entry.entry}")
            head = ChainHead(entry=entry.entry, entry_hash=entry.entry_hash)
        return head

    return planting.function(verify, other)


def releases_not_looked_for() -> AbstractContextManager[None]:
    """Plant a start that does not look for releases which the ledger does not hold."""

    def other(connection: sqlite3.Connection) -> ChainHead:
        return verify(ledger._entries(connection))

    return planting.function(ledger.check, other)


def few_releases_found() -> AbstractContextManager[None]:
    """Plant a ledger that gives a population's first eight releases."""
    honest = ledger.entries_of

    def other(connection: sqlite3.Connection, population: str) -> list[LedgerEntry]:
        return honest(connection, population)[:_FEW]

    return planting.function(honest, other)


def newest_delta() -> AbstractContextManager[None]:
    """Plant an analyzer that judges every budget at the newest task's δ."""
    honest = analyzer.spending._require

    def other(together: Sequence[Spent]) -> None:
        delta = together[-1].budget_delta
        honest([dataclasses.replace(one, budget_delta=delta) for one in together])

    return planting.function(honest, other)


def infinite_left_out() -> AbstractContextManager[None]:
    """Plant an analyzer that composes only releases of which something is certified."""
    honest = Store.releases_to

    async def other(self: Store, population: str) -> list[LedgerEntry]:
        return [one for one in await honest(self, population) if one.epsilon < math.inf]

    return planting.attribute(Store, "releases_to", other)


def charged_apart() -> AbstractContextManager[None]:
    """Plant an analyzer in which each release has a lock of its own until it is charged."""
    honest = Releases._charge_and_release

    async def other(self: Releases, *arguments: Any) -> None:
        self._charging = asyncio.Lock()
        await honest(self, *arguments)

    return planting.attribute(Releases, "_charge_and_release", other)


RECORDS: Final = (
    Fault(
        name="users-not-hashed",
        says="an entry's hash leaves out how many users and refused reports there were",
        scenario="analyzer-ledger",
        check="altered, in its n_users",
        plant=users_not_hashed,
    ),
    Fault(
        name="chain-unfollowed",
        says="each entry of the ledger is looked at by itself",
        scenario="analyzer-ledger",
        check="an entry was replaced, with its hash",
        plant=chain_unfollowed,
    ),
    Fault(
        name="releases-not-looked-for",
        says="nobody looks for releases that the ledger does not hold",
        scenario="analyzer-ledger",
        check="lacks the last release",
        plant=releases_not_looked_for,
    ),
    Fault(
        name="few-releases-found",
        says="a population's first eight releases are composed, and no later one",
        scenario="analyzer-budgets",
        check="charged with all 20 before it",
        plant=few_releases_found,
    ),
    Fault(
        name="newest-delta",
        says="every budget is judged at the newest task's delta",
        scenario="analyzer-budgets",
        check="an earlier task's budget at that one's δ",
        plant=newest_delta,
    ),
    Fault(
        name="infinite-left-out",
        says="releases of which nothing is certified are not composed",
        scenario="analyzer-budgets",
        check="after a release of which nothing is certified",
        plant=infinite_left_out,
    ),
    Fault(
        name="charged-apart",
        says="two releases are composed before either is charged",
        scenario="analyzer-budgets",
        check="composed at once, one is charged",
        plant=charged_apart,
    ),
)
