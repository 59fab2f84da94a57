"""The log of tasks and keys: its entries, and the checkpoints to serve."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from shuffledp.common.task_digest import DIGEST_BYTES
from shuffledp.common.transparency.checkpoint import SignedCheckpoint
from shuffledp.common.transparency.growth import MAX_ADDED, MAX_ADDED_BYTES
from shuffledp.common.transparency.log import EntryKind, LogEntry
from shuffledp.common.transparency.merkle import leaf_hash

SCHEMA: Final = """
CREATE TABLE log_entries (
    position INTEGER PRIMARY KEY,
    entry BLOB NOT NULL UNIQUE
);
CREATE TABLE log_checkpoints (
    size INTEGER PRIMARY KEY,
    note BLOB NOT NULL
);
"""


def append(connection: sqlite3.Connection, entries: Iterable[LogEntry]) -> None:
    """Append the entries that the log does not have yet, in order."""
    connection.executemany(
        "INSERT OR IGNORE INTO log_entries "
        "SELECT coalesce(max(position) + 1, 0), ? FROM log_entries",
        [(entry.to_bytes(),) for entry in entries],
    )


def append_missing(connection: sqlite3.Connection, keys: Iterable[LogEntry]) -> None:
    """Append keys, and tasks of earlier versions, that the log does not have yet. Run at start."""
    append(connection, keys)
    tasks = connection.execute("SELECT task_digest, signature FROM tasks ORDER BY task_digest")
    append(
        connection, [LogEntry(EntryKind.TASK, digest + signature) for digest, signature in tasks]
    )


def leaves_after(connection: sqlite3.Connection, after: int) -> list[bytes]:
    """Return the leaf hashes of all entries after the first `after`."""
    rows = connection.execute(
        "SELECT entry FROM log_entries WHERE position >= ? ORDER BY position", (after,)
    )
    return [leaf_hash(entry) for (entry,) in rows]


def added_after(
    connection: sqlite3.Connection, after: int, before: int
) -> tuple[tuple[LogEntry, ...], tuple[bytes, ...]]:
    """Return entries `after` .. `before` - 1 and their tasks, as many as one call may hold."""
    rows = connection.execute(
        "SELECT entry, task FROM log_entries LEFT JOIN tasks ON task_digest = substr(entry, ?, ?) "
        "WHERE position >= ? ORDER BY position LIMIT ?",
        (LogEntry.PREFIX_BYTES + 1, DIGEST_BYTES, after, min(MAX_ADDED, before - after)),
    )
    entries, tasks = list[LogEntry](), list[bytes]()
    for entry, task in rows:
        if entries and task and sum(map(len, tasks)) + len(task) > MAX_ADDED_BYTES:
            break
        entries.append(LogEntry.from_bytes(entry))
        tasks += [task] if task else []
    return tuple(entries), tuple(tasks)


def checkpoints(connection: sqlite3.Connection, origin: str) -> list[SignedCheckpoint]:
    """Return a log's stored checkpoints, not an earlier identity's; raise WireError if damaged."""
    rows = connection.execute("SELECT note FROM log_checkpoints")
    stored = [SignedCheckpoint.parse(note) for (note,) in rows]
    return [one for one in stored if one.checkpoint.origin == origin]


def replace_checkpoints(connection: sqlite3.Connection, signed: Sequence[SignedCheckpoint]) -> None:
    """Replace the stored checkpoints."""
    connection.execute("DELETE FROM log_checkpoints")
    rows = [(one.checkpoint.size, one.to_bytes()) for one in signed]
    connection.executemany("INSERT INTO log_checkpoints VALUES (?, ?)", rows)
