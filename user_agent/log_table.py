"""The device's table of what it saw of the log."""

import sqlite3
from typing import Final

from common.task_digest import TaskDigest
from common.transparency.checkpoint import SignedCheckpoint
from common.transparency.log_evidence import LogEvidence
from common.wire.transparency import evidence_from_bytes, evidence_to_wire

LOG_TABLE: Final = """
CREATE TABLE IF NOT EXISTS log_evidence (
    task_digest BLOB NOT NULL,
    refused INTEGER NOT NULL,
    origin TEXT NOT NULL,
    size INTEGER NOT NULL,
    evidence BLOB NOT NULL,
    PRIMARY KEY (refused, task_digest, evidence)
) WITHOUT ROWID;
"""
_MAX_REFUSED: Final = 64
"""Maximum number of refused checkpoints that are kept."""


def last_checkpoint(connection: sqlite3.Connection, origin: str) -> SignedCheckpoint | None:
    """Return the largest accepted checkpoint of a log; None before the first."""
    row = connection.execute(
        "SELECT evidence FROM log_evidence WHERE NOT refused AND origin = ? "
        "ORDER BY size DESC LIMIT 1",
        (origin,),
    ).fetchone()
    return None if row is None else evidence_from_bytes(row[0])[0].checkpoint


def keep(
    connection: sqlite3.Connection, digest: TaskDigest, evidence: LogEvidence, old_size: int
) -> bool:
    """Replace a task's accepted evidence, unless the last checkpoint's size is not `old_size`."""
    last = last_checkpoint(connection, evidence.checkpoint.checkpoint.origin)
    if (last.checkpoint.size if last else 0) != old_size:
        return False
    connection.execute("DELETE FROM log_evidence WHERE NOT refused AND task_digest = ?", (digest,))
    _insert(connection, digest, evidence)
    return True


def refuse(connection: sqlite3.Connection, digest: TaskDigest, evidence: LogEvidence) -> None:
    """Store refused evidence, unless there is too much."""
    [n_refused] = connection.execute("SELECT sum(refused) FROM log_evidence").fetchone()
    if (n_refused or 0) < _MAX_REFUSED:
        _insert(connection, digest, evidence)


def all_evidence(connection: sqlite3.Connection) -> list[LogEvidence]:
    """Return all rows, the accepted first."""
    rows = connection.execute("SELECT evidence FROM log_evidence ORDER BY refused, size")
    return evidence_from_bytes(b"".join(row for (row,) in rows))


def _insert(connection: sqlite3.Connection, digest: TaskDigest, evidence: LogEvidence) -> None:
    head, raw = evidence.checkpoint.checkpoint, evidence_to_wire([evidence])
    connection.execute(
        "INSERT OR IGNORE INTO log_evidence VALUES (?, ?, ?, ?, ?)",
        (digest, evidence.refused, head.origin, head.size, raw.SerializeToString()),
    )
