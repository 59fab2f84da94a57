"""The table of sentinels that operators registered."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from common.crypto.merkle import split
from common.errors import BatchStateError, WireError
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentinel:
    """An operator's test submission."""

    leaves: tuple[bytes, ...]
    """Leaves of its sealed reports."""
    acknowledged: bool
    """Whether the shuffler acknowledged it; if not, it may never have been sent."""


def register(
    connection: sqlite3.Connection,
    digest: TaskDigest,
    sentinels: Sequence[bytes],
    most: int,
    *,
    acknowledged: bool,
) -> None:
    """
    Store sentinels in the order of arrival; known ones can only become acknowledged.

    Args:
        connection: A connection in a transaction: all are stored, or none.
        digest: Their task.
        sentinels: The concatenated leaves of each.
        most: Largest number of sentinels of the task.
        acknowledged: Whether the shuffler has stored them.

    Raises:
        BatchStateError: The task's batch is staged, or there would be more than `most` sentinels.
        WireError: A new sentinel shares a leaf with another, new or known.

    Cost: a look-up for each; all of the task's sentinels are read if any is new.
    """
    known = {leaves: _acknowledged(connection, digest, leaves) for leaves in sentinels}
    new = [leaves for leaves, was in known.items() if was is None]
    confirmed = [leaves for leaves, was in known.items() if acknowledged and was is False]
    if not (new or confirmed):
        return
    staged = connection.execute(
        "SELECT 1 FROM batches WHERE task_digest = ? AND staged", (digest,)
    ).fetchone()
    if staged is not None:
        raise BatchStateError("the task's batch has arrived; sentinels are registered before that")
    if new:
        before = [leaf for sentinel in registered(connection, digest) for leaf in sentinel.leaves]
        _check_leaves_differ(before, new)
        _add(connection, digest, new, most, acknowledged=acknowledged)
    connection.executemany(
        "UPDATE sentinels SET acknowledged = 1 WHERE task_digest = ? AND leaves = ?",
        [(digest, leaves) for leaves in confirmed],
    )


def _acknowledged(connection: sqlite3.Connection, digest: TaskDigest, leaves: bytes) -> bool | None:
    """Return whether a sentinel was acknowledged; None if it is new."""
    row = connection.execute(
        "SELECT acknowledged FROM sentinels WHERE task_digest = ? AND leaves = ?", (digest, leaves)
    ).fetchone()
    return None if row is None else bool(row[0])


def _check_leaves_differ(before: Sequence[bytes], new: Sequence[bytes]) -> None:
    """Refuse repeated leaves: one report would count for two sentinels."""
    every = [*before, *(leaf for leaves in new for leaf in split(leaves))]
    if len(set(every)) != len(every):
        raise WireError(f"{len(every) - len(set(every))} leaves are repeated")


def _add(
    connection: sqlite3.Connection,
    digest: TaskDigest,
    new: Sequence[bytes],
    most: int,
    *,
    acknowledged: bool,
) -> None:
    [count] = connection.execute(
        "SELECT count(*) FROM sentinels WHERE task_digest = ?", (digest,)
    ).fetchone()
    if count + len(new) > most:
        raise BatchStateError(
            f"the task would have {count + len(new)} sentinels; between n_min and target_size "
            f"there is room for {most}"
        )
    connection.executemany(
        "INSERT INTO sentinels VALUES (?, ?, ?, ?)",
        [(digest, count + place, leaves, acknowledged) for place, leaves in enumerate(new)],
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
