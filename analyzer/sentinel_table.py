"""The sentinels that operators registered: rows of the analyzer's file."""

import sqlite3
from collections.abc import Sequence
from typing import Final

from analyzer.lookout import Sentinel
from common.errors import BatchStateError
from common.merkle import split
from common.task_digest import TaskDigest

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS sentinels (
    task_digest BLOB NOT NULL REFERENCES tasks,
    position INTEGER NOT NULL,
    leaves BLOB NOT NULL,
    acknowledged INTEGER NOT NULL,
    PRIMARY KEY (task_digest, position),
    UNIQUE (task_digest, leaves)
) WITHOUT ROWID;
"""


def register(
    connection: sqlite3.Connection,
    digest: TaskDigest,
    sentinels: Sequence[bytes],
    most: int,
    *,
    acknowledged: bool,
) -> None:
    """
    Keep sentinels in the order in which they come; known ones may only become acknowledged.

    Args:
        connection: In a transaction: all of them, or none.
        digest: Their task.
        sentinels: Of each its leaves, one after the other.
        most: As many as the task has room for.
        acknowledged: Whether the shuffler has stored them.

    Raises:
        BatchStateError: The task's batch is staged, and this would change what it is held to; or
            there would be more than `most`.
    """
    rows = connection.execute(
        "SELECT leaves, acknowledged FROM sentinels WHERE task_digest = ?", (digest,)
    ).fetchall()
    known = {bytes(leaves): bool(was) for leaves, was in rows}
    if all(leaves in known and known[leaves] >= acknowledged for leaves in sentinels):
        return
    staged = connection.execute(
        "SELECT 1 FROM batches WHERE task_digest = ? AND staged", (digest,)
    ).fetchone()
    if staged is not None:
        raise BatchStateError("the task's batch has arrived; sentinels are registered before that")
    for leaves in sentinels:
        if leaves not in known:
            connection.execute(
                "INSERT INTO sentinels VALUES (?, ?, ?, ?)",
                (digest, len(known), leaves, acknowledged),
            )
            known[leaves] = acknowledged
        elif acknowledged:
            connection.execute(
                "UPDATE sentinels SET acknowledged = 1 WHERE task_digest = ? AND leaves = ?",
                (digest, leaves),
            )
    if len(known) > most:
        raise BatchStateError(
            f"the task would have {len(known)} sentinels; between n_min and target_size there is "
            f"room for {most}"
        )


def registered(connection: sqlite3.Connection, digest: TaskDigest) -> list[Sentinel]:
    """List a task's sentinels in the order in which they were registered."""
    rows = connection.execute(
        "SELECT leaves, acknowledged FROM sentinels WHERE task_digest = ? ORDER BY position",
        (digest,),
    )
    return [
        Sentinel(leaves=tuple(split(leaves)), acknowledged=bool(acknowledged))
        for leaves, acknowledged in rows
    ]
