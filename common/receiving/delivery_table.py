"""The tables of a `Receiver`: manifests, parts that have arrived, and commitments."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

from shuffledp.common.errors import ConflictError, DeliveryUnderWayError
from shuffledp.common.messages.batch import BatchId, BatchManifest, BatchPart
from shuffledp.common.runtime.database import numbers_from_text, numbers_to_text
from shuffledp.common.task_digest import TaskDigest

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS batches (
    task_digest BLOB PRIMARY KEY REFERENCES {tasks},
    batch_id BLOB NOT NULL UNIQUE,
    n_users INTEGER NOT NULL,
    n_reports INTEGER NOT NULL,
    staged INTEGER NOT NULL DEFAULT 0,
    {columns},
    n_parts INTEGER NOT NULL DEFAULT 0,
    salt BLOB
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS parts (
    batch_id BLOB NOT NULL,
    part INTEGER NOT NULL,
    n_reports INTEGER NOT NULL,
    content_hash BLOB NOT NULL,
    PRIMARY KEY (batch_id, part)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS commitments (
    task_digest BLOB PRIMARY KEY REFERENCES {tasks},
    commitment BLOB NOT NULL
) WITHOUT ROWID;
"""
BY_LENGTH: Final = "ALTER TABLE batches ADD COLUMN by_length TEXT NOT NULL DEFAULT '';"
DISCARDED: Final = "ALTER TABLE batches ADD COLUMN n_discarded INTEGER NOT NULL DEFAULT 0;"


def schema(tasks: str, columns: str) -> str:
    """Return the tables: `tasks` is the party's table of tasks, `columns` its own of a batch."""
    return _SCHEMA.format(tasks=tasks, columns=columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A batch's delivery as far as it has come."""

    manifest: BatchManifest
    n_parts: int
    """0 until the delivery is accepted."""
    staged: bool
    """Whether the whole batch has arrived and is committed to."""
    arrived: Mapping[int, BatchPart]
    """The parts that are stored, by number."""


KeptCheck = Callable[[sqlite3.Connection, TaskDigest], None]
"""Raises ConflictError if a task's batch was dropped; called before each change of a delivery."""
MANIFEST: Final = "task_digest, batch_id, n_users, n_reports, n_discarded, by_length"


def manifest_of(row: Sequence[Any]) -> BatchManifest:
    """Return the manifest in the columns `MANIFEST` of a row."""
    digest, batch_id, n_users, n_reports, n_discarded, by_length = row
    return BatchManifest(
        task_digest=TaskDigest(digest),
        batch_id=BatchId(batch_id),
        n_users=n_users,
        n_reports=n_reports,
        n_discarded=n_discarded,
        by_length=numbers_from_text(by_length),
    )


def _row(manifest: BatchManifest) -> tuple[object, ...]:
    *numbers, by_length = astuple(manifest)
    return (*numbers, numbers_to_text(by_length))


def find_delivery(connection: sqlite3.Connection, digest: TaskDigest) -> Delivery | None:
    """Look up the delivery of a task's batch; None if none has begun."""
    row = connection.execute(
        f"SELECT {MANIFEST}, n_parts, staged FROM batches WHERE task_digest = ?",  # noqa: S608
        (digest,),
    ).fetchone()
    if row is None:
        return None
    *stored, n_parts, is_staged = row
    manifest = manifest_of(stored)
    parts = connection.execute(
        "SELECT part, n_reports, content_hash FROM parts WHERE batch_id = ? ORDER BY part",
        (manifest.batch_id,),
    )
    return Delivery(
        manifest=manifest,
        n_parts=n_parts,
        staged=bool(is_staged),
        arrived={
            part: BatchPart(task_digest=digest, part=part, n_reports=of_part, content_hash=content)
            for part, of_part, content in parts
        },
    )


def begin_delivery(
    connection: sqlite3.Connection,
    manifest: BatchManifest,
    n_parts: int,
    check_kept: KeptCheck,
    *,
    replaceable: bool,
) -> Delivery:
    """
    Begin a delivery, or return the one that has begun.

    Only a whole batch is final: an incomplete delivery of another batch, or in another number of
    parts, is replaced. A new delivery has n_parts 0 until `accept_delivery`.

    Raises:
        ConflictError: Another batch, or this one with another manifest, was staged for this task;
            or a batch with this batch_id was delivered for another task.
        DeliveryUnderWayError: A delivery must be replaced, and is not `replaceable`.
    """
    other = connection.execute(
        "SELECT 1 FROM batches WHERE batch_id = ? AND task_digest != ?",
        (manifest.batch_id, manifest.task_digest),
    ).fetchone()
    if other is not None:
        raise ConflictError("a batch with this batch_id was delivered for another task")
    known = find_delivery(connection, manifest.task_digest)
    if known is not None:
        if known.staged and known.manifest != manifest:
            raise ConflictError("another batch was delivered for this task: one task, one release")
        if known.staged or (known.manifest, known.n_parts) == (manifest, n_parts):
            return known
        check_kept(connection, manifest.task_digest)
        if not replaceable:
            raise DeliveryUnderWayError("another batch of this task is being delivered")
        forget_parts(connection, known.manifest.batch_id)
        connection.execute("DELETE FROM batches WHERE task_digest = ?", (manifest.task_digest,))
    connection.execute(
        f"INSERT INTO batches ({MANIFEST}) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608
        _row(manifest),
    )
    return Delivery(manifest=manifest, n_parts=0, staged=False, arrived={})


def accept_delivery(
    connection: sqlite3.Connection, manifest: BatchManifest, n_parts: int, check_kept: KeptCheck
) -> None:
    """Accept a delivery that has begun, unless another one has replaced it."""
    check_kept(connection, manifest.task_digest)
    connection.execute(
        f"UPDATE batches SET n_parts = ? WHERE n_parts = 0 AND ({MANIFEST}) = (?, ?, ?, ?, ?, ?)",  # noqa: S608
        (n_parts, *_row(manifest)),
    )


def add_part(
    connection: sqlite3.Connection, batch_id: BatchId, part: BatchPart, check_kept: KeptCheck
) -> None:
    """Record a part whose block is stored."""
    check_kept(connection, part.task_digest)
    connection.execute(
        "INSERT INTO parts VALUES (?, ?, ?, ?)",
        (batch_id, part.part, part.n_reports, part.content_hash),
    )


def forget_parts(connection: sqlite3.Connection, batch_id: BatchId) -> None:
    """Forget the parts of a batch, so that they are delivered again."""
    connection.execute("DELETE FROM parts WHERE batch_id = ?", (batch_id,))
    connection.execute("UPDATE batches SET salt = NULL WHERE batch_id = ?", (batch_id,))


def fix_salt(connection: sqlite3.Connection, batch_id: BatchId, drawn: bytes) -> bytes:
    """Store a batch's salt, unless it has one; return the stored one."""
    connection.execute(
        "UPDATE batches SET salt = ? WHERE batch_id = ? AND salt IS NULL", (drawn, batch_id)
    )
    row = connection.execute("SELECT salt FROM batches WHERE batch_id = ?", (batch_id,)).fetchone()
    return bytes(row[0])


def finish_delivery(
    connection: sqlite3.Connection, digest: TaskDigest, commitment: bytes, check_kept: KeptCheck
) -> None:
    """Mark a task's batch as staged, with its commitment."""
    check_kept(connection, digest)
    connection.execute("UPDATE batches SET staged = 1 WHERE task_digest = ?", (digest,))
    connection.execute("INSERT INTO commitments VALUES (?, ?)", (digest, commitment))
