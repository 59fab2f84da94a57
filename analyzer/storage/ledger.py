"""The ledger of releases: append-only, with each entry chained to the previous one."""

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from common.errors import LedgerError
from common.messages.batch import BatchId, BatchManifest
from common.messages.guarantee import Guarantee
from common.messages.ledger_entry import ChainHead, LedgerEntry, verify
from common.task_digest import TaskDigest

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

_COLUMNS: Final = (
    "entry, task_digest, batch_id, population, n_users, n_refused, coalition, epsilon, delta, "
    "theorem, composed_epsilon, previous_hash, entry_hash"
)
_PLACEHOLDERS: Final = ", ".join("?" * len(_COLUMNS.split(",")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The cost of a release, alone and composed with earlier releases to its population."""

    population: str
    n_refused: int
    guarantee: Guarantee
    composed_epsilon: float


def charge(connection: sqlite3.Connection, manifest: BatchManifest, cost: Charge) -> None:
    """Add a release's entry, in the transaction that stores its result. A task has only one."""
    last = connection.execute(
        "SELECT entry, entry_hash FROM ledger ORDER BY entry DESC LIMIT 1"
    ).fetchone()
    head = ChainHead() if last is None else ChainHead(entry=last[0], entry_hash=last[1])
    entry = LedgerEntry.chained(
        head.entry_hash,
        entry=head.entry + 1,
        task_digest=manifest.task_digest,
        batch_id=manifest.batch_id,
        population=cost.population,
        n_users=manifest.n_users,
        n_refused=cost.n_refused,
        coalition=cost.guarantee.coalition,
        epsilon=cost.guarantee.epsilon,
        delta=cost.guarantee.delta,
        theorem=cost.guarantee.theorem,
        composed_epsilon=cost.composed_epsilon,
    )
    connection.execute(
        f"INSERT INTO ledger ({_COLUMNS}) VALUES ({_PLACEHOLDERS})",  # noqa: S608  # fixed text
        tuple(getattr(entry, name) for name in _COLUMNS.split(", ")),
    )


def entries_after(connection: sqlite3.Connection, after: int, limit: int) -> list[LedgerEntry]:
    """List at most `limit` entries with numbers above `after`, in order."""
    query = f"SELECT {_COLUMNS} FROM ledger WHERE entry > ? ORDER BY entry LIMIT ?"  # noqa: S608  # fixed text
    return [_entry(row) for row in connection.execute(query, (after, limit))]


def entries_of(connection: sqlite3.Connection, population: str) -> list[LedgerEntry]:
    """List the entries of all releases to a population."""
    query = f"SELECT {_COLUMNS} FROM ledger WHERE population = ? ORDER BY entry"  # noqa: S608
    return [_entry(row) for row in connection.execute(query, (population,))]


def populations(connection: sqlite3.Connection) -> list[str]:
    """List the populations with a release."""
    rows = connection.execute("SELECT DISTINCT population FROM ledger WHERE population != ''")
    return [population for (population,) in rows]


def check(connection: sqlite3.Connection) -> ChainHead:
    """
    Verify the chain, and that it contains every release. Run at start.

    Raises:
        LedgerError: The columns or a row are invalid, the chain is broken, or a release is missing.
    """
    columns = ", ".join(row[1] for row in connection.execute("PRAGMA table_info(ledger)"))
    if columns != _COLUMNS:
        raise LedgerError(f"the ledger's columns are {columns}; they must be {_COLUMNS}")
    try:
        head = verify(_entries(connection))
    except (TypeError, ValueError, AttributeError, sqlite3.OperationalError) as error:
        raise LedgerError("the ledger is broken: a row is not a valid entry") from error
    missing = connection.execute(
        "SELECT task_digest FROM results "
        "WHERE task_digest NOT IN (SELECT task_digest FROM ledger) LIMIT 1"
    ).fetchone()
    if missing is not None:
        raise LedgerError(f"the ledger is broken: it lacks the release of task {missing[0].hex()}")
    return head


def _entries(connection: sqlite3.Connection) -> Iterator[LedgerEntry]:
    query = f"SELECT {_COLUMNS} FROM ledger ORDER BY entry"  # noqa: S608  # fixed text
    for row in connection.execute(query):
        yield _entry(row)


def _entry(row: Sequence[Any]) -> LedgerEntry:
    fields = dict(zip(_COLUMNS.split(", "), row, strict=True))
    fields["task_digest"] = TaskDigest(fields["task_digest"])
    fields["batch_id"] = BatchId(fields["batch_id"])
    return LedgerEntry(**fields)
