"""What each released batch cost: append-only."""

import sqlite3
from typing import Final

from common.batch import BatchId
from common.guarantee import Guarantee
from common.task_digest import TaskDigest

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS ledger (
    entry INTEGER PRIMARY KEY AUTOINCREMENT,
    task_digest BLOB NOT NULL UNIQUE,
    batch_id BLOB NOT NULL UNIQUE,
    n_users INTEGER NOT NULL,
    coalition TEXT NOT NULL,
    epsilon REAL NOT NULL,
    delta REAL NOT NULL,
    theorem TEXT NOT NULL
);
CREATE TRIGGER IF NOT EXISTS ledger_is_never_changed BEFORE UPDATE ON ledger
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER IF NOT EXISTS ledger_is_never_shortened BEFORE DELETE ON ledger
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""


def charge(
    connection: sqlite3.Connection,
    digest: TaskDigest,
    batch_id: BatchId,
    n_users: int,
    guarantee: Guarantee,
) -> None:
    """Enter what a release costs, in the transaction that releases it. Once a task."""
    connection.execute(
        "INSERT INTO ledger (task_digest, batch_id, n_users, coalition, epsilon, delta, theorem) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            digest,
            batch_id,
            n_users,
            guarantee.coalition,
            guarantee.epsilon,
            guarantee.delta,
            guarantee.theorem,
        ),
    )
