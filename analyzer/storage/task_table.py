"""
The tables of published tasks: signed bytes, lines (summaries for lists), and sentinels.

Tasks are listed from their lines, since a task may have two megabytes of labels. Functions of a
connection, run by the store in its database's thread.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final, Self

from common.crypto.signing import SignedTask
from common.errors import BatchStateError, WireError
from common.messages.inclusion_proof import split
from common.task.task import Task
from common.task_digest import TaskDigest

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS tasks (
    task_digest BLOB PRIMARY KEY,
    task BLOB NOT NULL,
    signature BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS task_lines (
    task_digest BLOB PRIMARY KEY REFERENCES tasks,
    protocol TEXT NOT NULL,
    domain_size INTEGER NOT NULL,
    population TEXT NOT NULL,
    n_min INTEGER NOT NULL,
    target_size INTEGER NOT NULL,
    deadline INTEGER NOT NULL
) WITHOUT ROWID;
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
class TaskLine:
    """The listed fields of a task, in the order of the table's columns."""

    protocol: str
    domain_size: int
    population: str
    n_min: int
    target_size: int
    deadline: int

    @classmethod
    def of(cls, task: Task) -> Self:
        """Return the line of a task."""
        return cls(
            protocol=task.protocol,
            domain_size=task.domain_size,
            population=task.population,
            n_min=task.n_min,
            target_size=task.target_size,
            deadline=task.deadline,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTask:
    """The line of a published task, and the state of its batch."""

    task_digest: TaskDigest
    line: TaskLine
    staged: bool
    n_users: int
    """Users in the staged batch; 0 if there is none."""
    released: bool
    failure: str
    """Reason why the batch can never be released; else empty."""


def add(connection: sqlite3.Connection, signed: SignedTask, line: TaskLine) -> None:
    """Store a task with its line."""
    connection.execute(
        "INSERT INTO tasks VALUES (?, ?, ?)", (signed.digest(), signed.task_bytes, signed.signature)
    )
    connection.execute(
        "INSERT INTO task_lines VALUES (?, ?, ?, ?, ?, ?, ?)", (signed.digest(), *astuple(line))
    )


def find(connection: sqlite3.Connection, digest: TaskDigest) -> SignedTask | None:
    """Look up a task."""
    row = connection.execute(
        "SELECT task, signature FROM tasks WHERE task_digest = ?", (digest,)
    ).fetchone()
    return None if row is None else SignedTask(task_bytes=row[0], signature=row[1])


def without_line(connection: sqlite3.Connection) -> list[TaskDigest]:
    """List the tasks without a line."""
    rows = connection.execute(
        "SELECT task_digest FROM tasks WHERE task_digest NOT IN "
        "(SELECT task_digest FROM task_lines)"
    )
    return [TaskDigest(digest) for (digest,) in rows]


_STORED: Final = (
    "SELECT task_digest, protocol, domain_size, population, n_min, target_size, deadline, "
    "coalesce(staged, 0), coalesce(n_users, 0), "
    "EXISTS (SELECT 1 FROM results WHERE results.task_digest = task_lines.task_digest), "
    "coalesce(failure, '') FROM task_lines LEFT JOIN batches USING (task_digest) "
)


def stored(connection: sqlite3.Connection, digest: TaskDigest) -> StoredTask | None:
    """Look up a task's line, and the state of its batch."""
    row = connection.execute(f"{_STORED} WHERE task_digest = ?", (digest,)).fetchone()
    return None if row is None else _stored(row)


def after(connection: sqlite3.Connection, last: TaskDigest, at_most: int) -> list[StoredTask]:
    """List at most `at_most` tasks with digests above `last`, which may be empty, sorted."""
    query = f"{_STORED} WHERE task_digest > ? ORDER BY task_digest LIMIT ?"
    return [_stored(row) for row in connection.execute(query, (last, at_most))]


def _stored(row: Sequence[Any]) -> StoredTask:
    digest, protocol, size, population, n_min, target, deadline, *batch = row
    staged, n_users, released, failure = batch
    return StoredTask(
        task_digest=TaskDigest(digest),
        line=TaskLine(
            protocol=protocol,
            domain_size=size,
            population=population,
            n_min=n_min,
            target_size=target,
            deadline=deadline,
        ),
        staged=bool(staged),
        n_users=n_users if staged else 0,
        released=bool(released),
        failure=failure,
    )


_UNFINISHED: Final = (
    "FROM tasks LEFT JOIN task_lines USING (task_digest) LEFT JOIN batches USING (task_digest) "
    "WHERE failure IS NULL AND task_digest NOT IN (SELECT task_digest FROM results)"
)
"""Tasks that may still get a result."""


def deadlines(connection: sqlite3.Connection) -> dict[TaskDigest, int]:
    """Return the deadlines of tasks with a line that may still get a result."""
    rows = connection.execute(
        f"SELECT task_digest, deadline {_UNFINISHED} AND deadline IS NOT NULL"
    )
    return {TaskDigest(digest): deadline for digest, deadline in rows}


def awaited(connection: sqlite3.Connection, since: float) -> list[bytes]:
    """
    List the bytes of tasks that may still get a result.

    Each has a staged batch, a deadline after `since`, or no line.
    """
    rows = connection.execute(
        f"SELECT task {_UNFINISHED} AND (coalesce(staged, 0) OR deadline IS NULL OR deadline > ?)",
        (since,),
    )
    return [task for (task,) in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentinel:
    """An operator's test submission."""

    leaves: tuple[bytes, ...]
    """Leaves of its sealed reports."""
    acknowledged: bool
    """Whether the shuffler acknowledged it; if not, it may never have been sent."""


def add_sentinels(
    connection: sqlite3.Connection,
    digest: TaskDigest,
    planted: Sequence[bytes],
    most: int,
    *,
    acknowledged: bool,
) -> None:
    """
    Store sentinels, each its concatenated leaves, in the order of arrival; all, or none.

    Known ones can only become acknowledged: the shuffler has stored them.

    Raises:
        BatchStateError: The task's batch is staged, or there would be more than `most` sentinels.
        WireError: A new sentinel shares a leaf with another, new or known.

    Cost: a look-up for each; all of the task's sentinels are read if any is new.
    """
    known = {leaves: _acknowledged(connection, digest, leaves) for leaves in planted}
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
        before = [leaf for sentinel in sentinels(connection, digest) for leaf in sentinel.leaves]
        _check_leaves_differ(before, new)
        _insert_sentinels(connection, digest, new, most, acknowledged=acknowledged)
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
    """Refuse repeated leaves, since one report would count for two sentinels."""
    every = [*before, *(leaf for leaves in new for leaf in split(leaves))]
    if len(set(every)) != len(every):
        raise WireError(f"{len(every) - len(set(every))} leaves are repeated")


def _insert_sentinels(
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


def sentinels(connection: sqlite3.Connection, digest: TaskDigest) -> list[Sentinel]:
    """List a task's sentinels in the order in which they were registered."""
    rows = connection.execute(
        "SELECT leaves, acknowledged FROM sentinels WHERE task_digest = ? ORDER BY position",
        (digest,),
    )
    return [
        Sentinel(leaves=tuple(split(leaves)), acknowledged=bool(acknowledged))
        for leaves, acknowledged in rows
    ]
