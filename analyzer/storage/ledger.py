"""The ledger of releases and decisions: append-only, each entry chained to the previous one."""

import heapq
import sqlite3
from collections.abc import Iterator
from dataclasses import fields
from itertools import islice
from operator import attrgetter
from typing import Any, Final, TypeVar, cast

from shuffledp.common.errors import ConflictError, LedgerError
from shuffledp.common.messages.ledger_entry import (
    ChainedEntry,
    ChainHead,
    DecisionEntry,
    LedgerEntry,
    verify,
)
from shuffledp.common.task_digest import TaskDigest

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS ledger (
    entry INTEGER PRIMARY KEY AUTOINCREMENT,
    task_digest BLOB NOT NULL UNIQUE,
    batch_id BLOB NOT NULL UNIQUE,
    population TEXT NOT NULL,
    n_users INTEGER NOT NULL,
    n_refused INTEGER NOT NULL,
    coalition TEXT NOT NULL,
    epsilon REAL NOT NULL,
    delta REAL NOT NULL,
    theorem TEXT NOT NULL,
    composed_epsilon REAL NOT NULL,
    previous_hash BLOB NOT NULL,
    entry_hash BLOB NOT NULL
);
CREATE TRIGGER IF NOT EXISTS ledger_is_never_changed BEFORE UPDATE ON ledger
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER IF NOT EXISTS ledger_is_never_shortened BEFORE DELETE ON ledger
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""
_DECISIONS: Final = """
CREATE TABLE decisions (
    entry INTEGER PRIMARY KEY,
    task_digest BLOB NOT NULL UNIQUE,
    batch_id BLOB NOT NULL UNIQUE,
    decision TEXT NOT NULL,
    reason TEXT NOT NULL,
    note TEXT NOT NULL,
    decided INTEGER NOT NULL,
    signature BLOB NOT NULL,
    previous_hash BLOB NOT NULL,
    entry_hash BLOB NOT NULL
);
"""
_NEVER_CHANGED: Final = """
CREATE TRIGGER decisions_are_never_changed BEFORE UPDATE ON decisions
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER decisions_are_never_removed BEFORE DELETE ON decisions
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""
DECISIONS: Final = _DECISIONS + _NEVER_CHANGED
"""Releases and decisions share one chain, and so one sequence of numbers."""
DECIDED_TWICE: Final = (
    "ALTER TABLE decisions RENAME TO decided_once;"  # noqa: S608  # fixed text
    + _DECISIONS.replace(" UNIQUE", "")
    + "INSERT INTO decisions SELECT * FROM decided_once; DROP TABLE decided_once;"
    + _NEVER_CHANGED
)
"""A batch that was to be released, but became unusable, may be dropped later."""
WAIVED: Final = "ALTER TABLE ledger ADD COLUMN waived TEXT NOT NULL DEFAULT '';"

E = TypeVar("E", bound=ChainedEntry)

_TABLES: Final[dict[type[ChainedEntry], str]] = {LedgerEntry: "ledger", DecisionEntry: "decisions"}
_COLUMNS: Final[dict[type[ChainedEntry], tuple[str, ...]]] = {
    kind: tuple(field.name for field in fields(cast("Any", kind))) for kind in _TABLES
}


def append(connection: sqlite3.Connection, entry: E) -> E:
    """Add an entry at the end of the chain, and return it as it is chained."""
    last = connection.execute(
        "SELECT entry, entry_hash FROM ledger UNION ALL SELECT entry, entry_hash FROM decisions "
        "ORDER BY entry DESC LIMIT 1"
    ).fetchone()
    head = ChainHead() if last is None else ChainHead(entry=last[0], entry_hash=last[1])
    chained, columns = entry.following(head), _COLUMNS[type(entry)]
    connection.execute(
        f"INSERT INTO {_TABLES[type(entry)]} ({', '.join(columns)}) "  # noqa: S608  # fixed text
        f"VALUES ({', '.join('?' * len(columns))})",
        tuple(getattr(chained, name) for name in columns),
    )
    return chained


def entries_after(connection: sqlite3.Connection, after: int, limit: int) -> list[ChainedEntry]:
    """List at most `limit` entries with numbers above `after`, in order."""
    return list(islice(_merged(connection, "entry > ?", after), limit))


def entries_of(connection: sqlite3.Connection, population: str) -> list[LedgerEntry]:
    """List the entries of all releases to a population."""
    return list(_read(connection, LedgerEntry, "population = ?", population))


def find_decision(connection: sqlite3.Connection, digest: TaskDigest) -> DecisionEntry | None:
    """Look up the last decision on a task's batch; None if there is none."""
    return next(reversed([*_read(connection, DecisionEntry, "task_digest = ?", digest)]), None)


def check_not_dropped(connection: sqlite3.Connection, digest: TaskDigest) -> None:
    """Raise ConflictError if the operator dropped a task's batch."""
    decided = find_decision(connection, digest)
    if decided is not None and decided.decision == "drop":
        raise ConflictError("the operator dropped the batch of this task")


def populations(connection: sqlite3.Connection) -> list[str]:
    """List the populations with a release."""
    rows = connection.execute("SELECT DISTINCT population FROM ledger WHERE population != ''")
    return [population for (population,) in rows]


def check(connection: sqlite3.Connection) -> ChainHead:
    """
    Verify the chain, and that it contains every release. Run at start.

    Raises LedgerError if a column or row is invalid, the chain is broken, or a release is missing.
    """
    for kind, table in _TABLES.items():
        known = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        columns, expected = ", ".join(name for (name,) in known), ", ".join(_COLUMNS[kind])
        if columns != expected:
            raise LedgerError(f"the ledger's columns are {columns}; they must be {expected}")
    try:
        head = verify(_merged(connection, "entry > ?", -1))
    except (TypeError, ValueError, AttributeError, sqlite3.OperationalError) as error:
        raise LedgerError("the ledger is broken: a row is not a valid entry") from error
    missing = connection.execute(
        "SELECT task_digest FROM results "
        "WHERE task_digest NOT IN (SELECT task_digest FROM ledger) LIMIT 1"
    ).fetchone()
    if missing is not None:
        raise LedgerError(f"the ledger is broken: it lacks the release of task {missing[0].hex()}")
    return head


def _merged(connection: sqlite3.Connection, condition: str, *values: int) -> Iterator[ChainedEntry]:
    """Yield the entries of both kinds that meet a condition, in order."""
    each = (_read(connection, kind, condition, *values) for kind in _TABLES)
    return heapq.merge(*each, key=attrgetter("entry"))


def _read(
    connection: sqlite3.Connection, kind: type[E], condition: str, *values: bytes | int | str
) -> Iterator[E]:
    """Yield the entries of one kind that meet a condition, in order."""
    columns, build = _COLUMNS[kind], cast("Any", kind)
    query = f"SELECT {', '.join(columns)} FROM {_TABLES[kind]} WHERE {condition} ORDER BY entry"  # noqa: S608  # fixed text
    for row in connection.execute(query, values):
        yield build(**dict(zip(columns, row, strict=True)))
