"""
The issuer's database: one row per person and token key, and counts of people's tokens.

A row holds no name and no time, and rows are ordered by a keyed hash. Restoring an old copy of the
database would let people who are missing from it get a second token.
"""

import sqlite3
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final, Literal

from shuffledp.common.runtime.database import Database, Schema
from shuffledp.issuer.token_cap import Charge

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS issued (
    key_id BLOB NOT NULL,
    person BLOB NOT NULL,
    request BLOB NOT NULL,
    signature BLOB NOT NULL,
    PRIMARY KEY (key_id, person)
) WITHOUT ROWID;
"""
_COUNTED: Final = """
CREATE TABLE counted (
    period INTEGER NOT NULL,
    person BLOB NOT NULL,
    tokens INTEGER NOT NULL,
    PRIMARY KEY (period, person)
) WITHOUT ROWID;
"""
_NOBODY: Final = b""
"""Person of a key's first row; hashes of persons have 32 bytes."""
_ROWS_AT_ONCE: Final = 1000
"""Rows that one transaction deletes; devices wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A signature that the issuer has given, or may give, to a person."""

    request: bytes
    """SHA-256 of the blinded message."""
    signature: bytes
    is_new: bool = False
    """Whether it has just been stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A person's request for a signature."""

    key_id: bytes
    person: bytes
    """The key's hash of the person."""
    request: bytes
    """SHA-256 of the blinded message."""
    sign: Callable[[], bytes]
    """Makes the signature."""
    charge: Charge | None = None
    """Counts the token, if the issuer has a cap."""


Settled = list[Issued | str]
"""The stored signature of each request of a call, or the rule that refuses it: the cap."""


class IssuanceStore(Database):
    """The issuer's database. Each method that writes is one durable transaction or several."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Schema(steps=(_TABLE, _COUNTED)))

    async def begin(self, key_id: bytes) -> None:
        """Note that a key exists, before it is held: a row of nobody."""
        await self.run(_insert, key_id, _NOBODY, Issued(request=b"", signature=b""))

    async def keys(self) -> dict[str, bool]:
        """Return the ids of all keys, in hexadecimal digits, and whether each must be held."""
        statement = "SELECT key_id, request != x'' FROM issued WHERE person = ?"
        return {key_id.hex(): bool(held) for key_id, held in await self.fetch(statement, _NOBODY)}

    async def mark(self, keys: Collection[str], *, held: bool) -> None:
        """Note that keys are held or, before they are destroyed, that they may be missing."""
        for key_id in keys:
            await self.fetch(
                "UPDATE issued SET request = ? WHERE key_id = ? AND person = ?",
                *(b"held" * held, bytes.fromhex(key_id), _NOBODY),
            )

    async def settle(
        self, calls: Sequence[Sequence[Wanted]], sign: Callable[[Sequence[Wanted]], Sequence[bytes]]
    ) -> list[Settled]:
        """
        Return the stored signature of each request of several calls; sign and store the missing.

        A missing one is charged first. A person who has had all tokens gets none.

        This transaction decides between requests of one person: the first is signed, and only the
        stored signature may leave the issuer. It serves several calls, since a flush of the disk
        takes as long as several signatures. `sign` runs in the database's thread.
        """
        people: dict[tuple[bytes, bytes], Wanted] = {}
        for each in chain.from_iterable(calls):
            people.setdefault((each.key_id, each.person), each)

        def settle(connection: sqlite3.Connection) -> dict[tuple[bytes, bytes], Issued | str]:
            found = dict[tuple[bytes, bytes], Issued | str]()
            missing = list[Wanted]()
            for place, each in people.items():
                if issued := _find(connection, *place):
                    found[place] = issued
                elif each.charge is None or _has_counted(connection, each.charge):
                    missing.append(each)
                else:
                    found[place] = each.charge.refusal()
            for each, signature in zip(missing, sign(missing), strict=True):
                issued = Issued(request=each.request, signature=signature, is_new=True)
                _insert(connection, each.key_id, each.person, issued)
                found[each.key_id, each.person] = issued
            return found

        def answer(each: Wanted) -> Issued | str:
            settled = found[each.key_id, each.person]
            if isinstance(settled, str) or each is people[each.key_id, each.person]:
                return settled
            return replace(settled, is_new=False)

        found = await self.run(settle)
        return [[answer(each) for each in call] for call in calls]

    async def forget_others(self, held: Collection[str]) -> None:
        """Erase the rows of all keys whose ids, in hexadecimal digits, are not in `held`."""
        after = b""
        erased = False
        following = "SELECT min(key_id) FROM issued WHERE key_id > ?"
        while (key_id := (await self.fetch(following, after))[0][0]) is not None:
            while key_id.hex() not in held and await self.run(
                _delete_some, "issued WHERE key_id", key_id
            ):
                erased = True
            after = key_id
        if erased:
            await self.empty_log()

    async def periods(self) -> frozenset[int]:
        """Return the ends of the periods in which tokens were counted."""
        return frozenset(end for (end,) in await self.fetch("SELECT DISTINCT period FROM counted"))

    async def forget_counts(self, held: Collection[int]) -> None:
        """Erase the counts of all periods whose ends are not in `held`."""
        for end in await self.periods() - set(held):
            while await self.run(_delete_some, "counted WHERE period", end):
                pass
            await self.empty_log()


def _find(connection: sqlite3.Connection, key_id: bytes, person: bytes) -> Issued | None:
    row = connection.execute(
        "SELECT request, signature FROM issued WHERE key_id = ? AND person = ?", (key_id, person)
    ).fetchone()
    return None if row is None else Issued(request=row[0], signature=row[1])


def _insert(connection: sqlite3.Connection, key_id: bytes, person: bytes, issued: Issued) -> None:
    row = (key_id, person, issued.request, issued.signature)
    connection.execute("INSERT OR IGNORE INTO issued VALUES (?, ?, ?, ?)", row)


def _has_counted(connection: sqlite3.Connection, charge: Charge) -> bool:
    """Count a token; return False, and count nothing, for a person who has had all."""
    counted = connection.execute(
        "INSERT INTO counted VALUES (?, ?, 1) "
        "ON CONFLICT DO UPDATE SET tokens = tokens + 1 WHERE tokens < ?",
        (charge.end, charge.person, charge.most),
    )
    return counted.rowcount > 0


def _delete_some(
    connection: sqlite3.Connection,
    where: Literal["issued WHERE key_id", "counted WHERE period"],
    value: bytes | int,
) -> bool:
    """Delete at most _ROWS_AT_ONCE rows of a key or a period; return whether there were any."""
    rows = f"{where} = :value"
    deleted = connection.execute(
        f"DELETE FROM {rows} AND person IN (SELECT person FROM {rows} LIMIT :most)",  # noqa: S608
        {"value": value, "most": _ROWS_AT_ONCE},
    )
    return deleted.rowcount > 0
