"""
The tables of published tasks: signed bytes, summaries, and sentinels.

Tasks are listed without parsing their bytes, since a task may have two megabytes of labels.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from shuffledp.analyzer.storage import log_table
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import BatchStateError, TaskError, WireError
from shuffledp.common.messages.batch import TaskState, TaskSummary
from shuffledp.common.messages.inclusion_proof import split
from shuffledp.common.task.task import Task, cached_task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.transparency.log import LogEntry

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


def add(connection: sqlite3.Connection, signed: SignedTask, task: Task) -> None:
    """
    Store a task, its summary and its entry in the log.

    Raises TaskError if an earlier task has its token key: nobody could get another token. Likewise
    if one asks the same population the same until the same deadline: a timer or an operator may
    publish a draft twice, and its people would answer and pay twice.
    """
    if task.population:
        rows = connection.execute(
            "SELECT task_digest, task FROM tasks JOIN task_lines USING (task_digest) "
            "WHERE population = ? AND deadline = ?",
            (task.population, task.deadline),
        )
        for digest, earlier in rows:
            if _repeats(task, earlier):
                raise TaskError(
                    f"the task {digest.hex()[:12]} asks the population {task.population} the same "
                    "until the same deadline; to ask once more, set another deadline"
                )
    if task.tokens is not None:
        key = task.tokens.key.hex().encode()
        used = "SELECT count(*) FROM tasks WHERE instr(task, ?)"
        if connection.execute(used, (key,)).fetchone()[0]:
            raise TaskError(
                "an earlier task has this token key: each task needs a key of its own, from "
                "shuffledp issuer new-key"
            )
    connection.execute(
        "INSERT INTO tasks VALUES (?, ?, ?)", (signed.digest(), signed.task_bytes, signed.signature)
    )
    listed = (getattr(task, name) for name in _LISTED[1:])
    connection.execute(
        "INSERT INTO task_lines VALUES (?, ?, ?, ?, ?, ?, ?)", (signed.digest(), *listed)
    )
    log_table.append(connection, [LogEntry.of_task(signed)])


def _repeats(task: Task, earlier: bytes) -> bool:
    """Return whether a task repeats an earlier one; tokens mend a task that has none."""
    try:
        other = cached_task(earlier)
    except TaskError:
        return False  # of another version, or damaged
    return task.asks_like(other) and (task.tokens is None) == (other.tokens is None)


def find(connection: sqlite3.Connection, digest: TaskDigest) -> SignedTask | None:
    """Look up a published task; None if there is none."""
    row = connection.execute(
        "SELECT task, signature FROM tasks WHERE task_digest = ?", (digest,)
    ).fetchone()
    return None if row is None else SignedTask(task_bytes=row[0], signature=row[1])


_LISTED: Final = (
    *("task_digest", "protocol", "domain_size", "population"),
    *("n_min", "target_size", "deadline"),
)
"""Columns of `task_lines`, and fields of a summary."""
_SUMMARIES: Final = (
    f"SELECT {', '.join(_LISTED)}, coalesce(staged, 0), coalesce(n_users, 0), "  # noqa: S608  # fixed text
    "EXISTS (SELECT 1 FROM results WHERE results.task_digest = task_lines.task_digest), "
    "coalesce(failure, ''), quarantined FROM task_lines LEFT JOIN batches USING (task_digest) "
)


def summary(connection: sqlite3.Connection, digest: TaskDigest, now: float) -> TaskSummary | None:
    """Return a task's summary at `now`, in seconds since 1970 UTC; None if it is not listed."""
    row = connection.execute(f"{_SUMMARIES} WHERE task_digest = ?", (digest,)).fetchone()
    return None if row is None else _summary(row, now)


def summaries_after(
    connection: sqlite3.Connection, last: TaskDigest, limit: int, now: float
) -> list[TaskSummary]:
    """List at most `limit` tasks with digests above `last`, which may be empty, sorted."""
    query = f"{_SUMMARIES} WHERE task_digest > ? ORDER BY task_digest LIMIT ?"
    return [_summary(row, now) for row in connection.execute(query, (last, limit))]


def _summary(row: Sequence[Any], now: float) -> TaskSummary:
    listed = dict(zip(_LISTED, row, strict=False))
    staged, n_users, released, failure, quarantined = row[len(_LISTED) :]
    if released:
        state = TaskState.RELEASED
    elif failure:
        state = TaskState.QUARANTINED if quarantined else TaskState.UNUSABLE
    elif staged:
        state = TaskState.STAGED
    else:
        state = TaskState.OVERDUE if now >= listed["deadline"] else TaskState.OPEN
    return TaskSummary(**listed, state=state, n_users=n_users if staged else 0, failure=failure)


_UNFINISHED: Final = (
    "FROM tasks LEFT JOIN task_lines USING (task_digest) LEFT JOIN batches USING (task_digest) "
    "WHERE (failure IS NULL OR quarantined) "
    "AND task_digest NOT IN (SELECT task_digest FROM results)"
)
"""Tasks that may still get a result."""


def deadlines(connection: sqlite3.Connection) -> dict[TaskDigest, int]:
    """Return the deadlines of listed tasks that may still get a result."""
    rows = connection.execute(
        f"SELECT task_digest, deadline {_UNFINISHED} AND deadline IS NOT NULL"
    )
    return {TaskDigest(digest): deadline for digest, deadline in rows}


def unfinished_tasks(connection: sqlite3.Connection, since: float) -> list[bytes]:
    """
    List the bytes of tasks that may still get a result.

    These have a staged batch, be it quarantined, or a deadline after `since`, or are not listed.
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
    """Leaves of the submission's sealed reports."""
    acknowledged: bool
    """Whether the shuffler acknowledged it; if not, it may never have been sent."""


def add_sentinels(
    connection: sqlite3.Connection,
    digest: TaskDigest,
    planted: Sequence[bytes],
    limit: int,
    *,
    acknowledged: bool,
) -> None:
    """
    Store sentinels, each given as its concatenated leaves, in order: all or none.

    Known sentinels can only become acknowledged, once the shuffler has stored them.

    Raises:
        BatchStateError: The task's batch is staged, or there would be more than `limit` sentinels.
        WireError: A new sentinel shares a leaf with another, new or known.

    Cost: a look-up for each; all of the task's sentinels are read if any is new.
    """
    query = "SELECT leaves, acknowledged FROM sentinels WHERE task_digest = ? AND leaves = ?"
    known = dict(row for leaves in planted for row in connection.execute(query, (digest, leaves)))
    new = [leaves for leaves in dict.fromkeys(planted) if leaves not in known]
    confirmed = [leaves for leaves, was in known.items() if acknowledged and not was]
    if not (new or confirmed):
        return
    staged = connection.execute(
        "SELECT 1 FROM batches WHERE task_digest = ? AND staged", (digest,)
    ).fetchone()
    if staged is not None:
        raise BatchStateError("the task's batch has arrived; register sentinels before that")
    if new:
        earlier = sentinels(connection, digest)
        # A repeated leaf would make one report count for two sentinels.
        every = [leaf for sentinel in earlier for leaf in sentinel.leaves]
        every += [leaf for leaves in new for leaf in split(leaves)]
        if repeated := len(every) - len(set(every)):
            raise WireError(f"{repeated} leaves are repeated")
        count = len(earlier)
        if count + len(new) > limit:
            raise BatchStateError(
                f"the task would have {count + len(new)} sentinels; between n_min and target_size "
                f"there is room for {limit}"
            )
        connection.executemany(
            "INSERT INTO sentinels VALUES (?, ?, ?, ?)",
            [(digest, count + place, leaves, acknowledged) for place, leaves in enumerate(new)],
        )
    connection.executemany(
        "UPDATE sentinels SET acknowledged = 1 WHERE task_digest = ? AND leaves = ?",
        [(digest, leaves) for leaves in confirmed],
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
