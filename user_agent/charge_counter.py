"""
The tables of the counter of charges, a file of its own, which must be in no backup.

A store that was restored from a backup has forgotten charges; this file has not. A charge is
counted after the store has saved it, and before anything of the answer leaves the device. So the
file never has a charge that an intact store lacks; a charge that it lacks has revealed nothing.
"""

import sqlite3
from collections.abc import Iterable
from typing import Final

FILE: Final = "charges.sqlite"
TABLES: Final = """
CREATE TABLE IF NOT EXISTS charges (
    person TEXT NOT NULL,
    task_digest BLOB NOT NULL,
    envelope_hash BLOB NOT NULL,
    local_epsilon REAL NOT NULL,
    central_epsilon REAL NOT NULL,
    delta REAL NOT NULL,
    PRIMARY KEY (person, task_digest)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counted_store (
    id BLOB PRIMARY KEY
) WITHOUT ROWID;
"""
COALITION_COLUMN: Final = """
ALTER TABLE {0} ADD COLUMN coalition_epsilon REAL NOT NULL DEFAULT 9e999;
UPDATE {0} SET coalition_epsilon = local_epsilon;
"""
"""Step for a table of charges; those before it were of tasks with one shuffler."""
CHAINED_COLUMN: Final = """
ALTER TABLE {0} ADD COLUMN chained INTEGER NOT NULL DEFAULT FALSE;
UPDATE {0} SET chained = TRUE
WHERE coalition_epsilon < local_epsilon AND local_epsilon = 9e999 AND task_digest != x'';
"""
"""Step for the same table; earlier programs knew tasks with two shufflers by their ε alone."""
Charge = tuple[str, bytes, bytes, float, float, float, float, bool]
"""Person, task's digest, SHA-256 of the envelope, and the first fields of `Claim`."""


def charges(connection: sqlite3.Connection) -> tuple[bytes, list[Charge]]:
    """Return the id of the counted store, empty if there is none, and its charges."""
    row = connection.execute("SELECT id FROM counted_store").fetchone()
    return row[0] if row else b"", connection.execute("SELECT * FROM charges").fetchall()


def count(connection: sqlite3.Connection, charged: Iterable[Charge]) -> None:
    """Add charges; those that are counted stay as they are."""
    connection.executemany("INSERT OR IGNORE INTO charges VALUES (?, ?, ?, ?, ?, ?, ?, ?)", charged)


def replace_charges(
    connection: sqlite3.Connection, store: bytes, charged: Iterable[Charge]
) -> None:
    """Count all charges of a store, in place of any other store's."""
    if connection.execute("SELECT id FROM counted_store WHERE id = ?", (store,)).fetchone() is None:
        connection.execute("DELETE FROM charges")
        connection.execute("DELETE FROM counted_store")
        connection.execute("INSERT INTO counted_store VALUES (?)", (store,))
    count(connection, charged)
