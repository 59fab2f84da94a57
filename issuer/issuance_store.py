"""
The issuer's database: one row for each person and token key.

A row holds no name and no time, and rows are ordered by a keyed hash. Restoring an old copy of the
database would let people who are missing from it get a second token.
"""

import sqlite3
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.runtime.database import Database
from common.runtime.schema import Schema

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS issued (
    key_id BLOB NOT NULL,
    person BLOB NOT NULL,
    request BLOB NOT NULL,
    signature BLOB NOT NULL,
    PRIMARY KEY (key_id, person)
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


_Row = tuple[bytes, bytes, bytes, bytes]


class IssuanceStore(Database):
    """The issuer's database. Each method that writes is one durable transaction or several."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Schema(steps=(_TABLE,)))
        self._waiting: deque[_Row] = deque()

    async def begin(self, key_id: bytes) -> None:
        """Note that a key exists, before it is held: a row of nobody."""
        nothing = Issued(request=b"", signature=b"")
        await self.settle(key_id, _NOBODY, nothing)

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

    async def find(self, key_id: bytes, person: bytes) -> Issued | None:
        """Look up a person's signature by a key; `person` is the key's hash of the person."""
        return await self.run(_find, key_id, person)

    async def settle(self, key_id: bytes, person: bytes, issued: Issued) -> Issued:
        """
        Store a signature unless the person has one by this key; return the one that is stored.

        This transaction decides between concurrent requests: of two signatures only the stored one
        may leave the issuer. It stores the signatures of all waiting calls, as a flush of the disk
        takes as long as several signatures; their own transactions then only read.
        """
        self._waiting.append((key_id, person, issued.request, issued.signature))
        return await self.run(_settle, self._waiting, key_id, person, issued)

    async def forget_others(self, held: Collection[str]) -> None:
        """Erase the rows of all keys whose ids, in hexadecimal digits, are not in `held`."""
        after = b""
        erased = False
        following = "SELECT min(key_id) FROM issued WHERE key_id > ?"
        while (key_id := (await self.fetch(following, after))[0][0]) is not None:
            while key_id.hex() not in held and await self.run(_delete_some, key_id):
                erased = True
            after = key_id
        if erased:
            await self.empty_log()


def _find(connection: sqlite3.Connection, key_id: bytes, person: bytes) -> Issued | None:
    row = connection.execute(
        "SELECT request, signature FROM issued WHERE key_id = ? AND person = ?", (key_id, person)
    ).fetchone()
    return None if row is None else Issued(request=row[0], signature=row[1])


def _settle(
    connection: sqlite3.Connection, waiting: deque[_Row], key_id: bytes, person: bytes, own: Issued
) -> Issued:
    rows = [waiting.popleft() for _ in range(len(waiting))]
    # Its own row again, in case that the transaction which took it from `waiting` has failed.
    rows.append((key_id, person, own.request, own.signature))
    connection.executemany("INSERT OR IGNORE INTO issued VALUES (?, ?, ?, ?)", rows)
    return _find(connection, key_id, person) or own


def _delete_some(connection: sqlite3.Connection, key_id: bytes) -> bool:
    deleted = connection.execute(
        "DELETE FROM issued WHERE key_id = :key AND person IN "
        "(SELECT person FROM issued WHERE key_id = :key LIMIT :rows)",
        {"key": key_id, "rows": _ROWS_AT_ONCE},
    )
    return deleted.rowcount > 0
