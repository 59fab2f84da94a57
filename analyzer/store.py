"""The analyzer's file: tasks, staged batches, cell counts, results and the ledger."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from analyzer import ledger, sentinel_table
from analyzer.lookout import Sentinel
from common.batch import BatchId, BatchManifest
from common.errors import BatchConflictError
from common.ledger_entry import ChainHead, LedgerEntry
from common.ledger_wire import MAX_LEDGER_ENTRIES
from common.runtime.database import Database
from common.signing import SignedTask
from common.task_digest import TaskDigest

_SCHEMA: Final = (
    """
CREATE TABLE IF NOT EXISTS tasks (
    task_digest BLOB PRIMARY KEY,
    task BLOB NOT NULL,
    signature BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batches (
    task_digest BLOB PRIMARY KEY REFERENCES tasks,
    batch_id BLOB NOT NULL UNIQUE,
    n_users INTEGER NOT NULL,
    n_reports INTEGER NOT NULL,
    staged INTEGER NOT NULL DEFAULT 0,
    failure TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS chunks (
    batch_id BLOB NOT NULL,
    position INTEGER NOT NULL,
    sealed_reports BLOB NOT NULL,
    PRIMARY KEY (batch_id, position)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS staged_hashes (
    batch_id BLOB PRIMARY KEY,
    staged_hash BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS results (
    task_digest BLOB PRIMARY KEY REFERENCES tasks,
    cells BLOB NOT NULL,
    result BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS commitments (
    task_digest BLOB PRIMARY KEY REFERENCES tasks,
    commitment BLOB NOT NULL
) WITHOUT ROWID;
"""
    + ledger.SCHEMA
    + sentinel_table.SCHEMA
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTask:
    """A published task, and how far its batch is."""

    signed: SignedTask
    staged: bool
    n_users: int
    """Of the staged batch; else 0."""
    released: bool
    failure: str
    """Why it can never be released; else empty."""


BatchEnd = Literal["staged", "released", "unusable"]
"""How far a batch is at the analyzer."""


class Store:
    """Everything that the analyzer keeps. Each method is one durable transaction."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, _SCHEMA)

    async def add_task(self, signed: SignedTask) -> None:
        """Keep a published task."""
        await self._database.run(_add_task, signed)

    async def task(self, digest: TaskDigest) -> SignedTask | None:
        """Look up a published task."""
        return await self._database.run(_task, digest)

    async def stored_task(self, digest: TaskDigest) -> StoredTask | None:
        """Look up a published task, and how far its batch is."""
        return await self._database.run(_stored_task, digest)

    async def tasks_after(self, after: TaskDigest, at_most: int) -> list[StoredTask]:
        """List tasks with digests above `after`, which may be empty, in ascending order."""
        return await self._database.run(_tasks_after, after, at_most)

    async def unfinished_tasks(self) -> list[tuple[SignedTask, bool]]:
        """List tasks that may still have a result, and whether their batch is staged."""
        return await self._database.run(_unfinished_tasks)

    async def begin_batch(self, manifest: BatchManifest) -> bool:
        """
        Begin to stage a batch, forgetting an earlier delivery that broke off.

        Returns:
            Whether it is still to be received; False if it is staged or released already.

        Raises:
            BatchConflictError: Another batch was delivered for this task, or the same one under
                another manifest.
        """
        return await self._database.run(_begin_batch, manifest)

    async def add_chunks(self, batch_id: BatchId, position: int, chunks: Sequence[bytes]) -> None:
        """Stage consecutive chunks, the first of them at `position`."""
        await self._database.run(_add_chunks, batch_id, position, chunks)

    async def finish_batch(
        self, batch_id: BatchId, staged_hash: bytes | None = None, commitment: bytes | None = None
    ) -> None:
        """Mark a batch as staged whole, and keep its hash and what was signed of it, at once."""
        await self._database.run(_finish_batch, batch_id, staged_hash, commitment)

    async def staged_hash(self, batch_id: BatchId) -> bytes | None:
        """Look up the hash of a staged batch; None where an earlier version staged it."""
        return await self._database.run(_staged_hash, batch_id)

    async def commitment(self, digest: TaskDigest) -> bytes | None:
        """Look up what was signed of a task's batch; None where an earlier version staged it."""
        return await self._database.run(_commitment, digest)

    async def add_sentinels(
        self, digest: TaskDigest, sentinels: Sequence[bytes], most: int, *, acknowledged: bool
    ) -> None:
        """Register sentinels, before the batch is staged; see `sentinel_table.register`."""
        await self._database.run(
            sentinel_table.register, digest, sentinels, most, acknowledged=acknowledged
        )

    async def sentinels(self, digest: TaskDigest) -> list[Sentinel]:
        """List a task's sentinels in the order in which they were registered."""
        return await self._database.run(sentinel_table.registered, digest)

    async def staged(self) -> list[BatchManifest]:
        """List batches that are staged and not yet released."""
        return await self._database.run(_staged)

    async def chunk(self, batch_id: BatchId, position: int) -> bytes | None:
        """Give one staged chunk; None past the last."""
        return await self._database.run(_chunk, batch_id, position)

    async def release(
        self, manifest: BatchManifest, cells: bytes, result: bytes, cost: ledger.Charge
    ) -> None:
        """Keep cells and result, charge the ledger, and drop the staged reports, at once."""
        await self._database.run(_release, manifest, cells, result, cost)
        await self._database.empty_log()

    async def check_ledger(self) -> ChainHead:
        """
        Walk the ledger's chain, and give its head.

        Raises:
            LedgerError: It is broken.
        """
        return await self._database.run(ledger.check)

    async def ledger(self, after: int) -> list[LedgerEntry]:
        """List entries of the ledger with numbers above `after`: at most MAX_LEDGER_ENTRIES."""
        return await self._database.run(ledger.entries_after, after, MAX_LEDGER_ENTRIES)

    async def releases_to(self, population: str) -> list[LedgerEntry]:
        """List every release to a population."""
        return await self._database.run(ledger.entries_of, population)

    async def populations(self) -> list[str]:
        """List the populations to which something was released."""
        return await self._database.run(ledger.populations)

    async def batch_states(self) -> dict[TaskDigest, BatchEnd]:
        """Tell how far every batch is that ever came whole, or was given up. Run at start."""
        return await self._database.run(_batch_states)

    async def give_up(self, manifest: BatchManifest, failure: str) -> None:
        """Record why a batch can never be released; what was staged of it is kept."""
        await self._database.run(_give_up, manifest, failure)

    async def failure(self, digest: TaskDigest) -> str | None:
        """Look up why a task's batch can never be released."""
        return await self._database.run(_failure, digest)

    async def result(self, digest: TaskDigest) -> bytes | None:
        """Look up a released result."""
        return await self._database.run(_result, digest)

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def _add_task(connection: sqlite3.Connection, signed: SignedTask) -> None:
    connection.execute(
        "INSERT INTO tasks VALUES (?, ?, ?)", (signed.digest(), signed.task_bytes, signed.signature)
    )


def _task(connection: sqlite3.Connection, digest: TaskDigest) -> SignedTask | None:
    row = connection.execute(
        "SELECT task, signature FROM tasks WHERE task_digest = ?", (digest,)
    ).fetchone()
    return None if row is None else SignedTask(task_bytes=row[0], signature=row[1])


_STORED_TASKS: Final = (
    "SELECT task, signature, coalesce(staged, 0), coalesce(n_users, 0), "
    "EXISTS (SELECT 1 FROM results WHERE results.task_digest = tasks.task_digest), "
    "coalesce(failure, '') FROM tasks LEFT JOIN batches USING (task_digest) "
)


def _stored(row: tuple[bytes, bytes, int, int, int, str]) -> StoredTask:
    task, signature, staged, n_users, released, failure = row
    return StoredTask(
        signed=SignedTask(task_bytes=task, signature=signature),
        staged=bool(staged),
        n_users=n_users if staged else 0,
        released=bool(released),
        failure=failure,
    )


def _stored_task(connection: sqlite3.Connection, digest: TaskDigest) -> StoredTask | None:
    row = connection.execute(f"{_STORED_TASKS} WHERE task_digest = ?", (digest,)).fetchone()
    return None if row is None else _stored(row)


def _tasks_after(
    connection: sqlite3.Connection, after: TaskDigest, at_most: int
) -> list[StoredTask]:
    query = f"{_STORED_TASKS} WHERE task_digest > ? ORDER BY task_digest LIMIT ?"
    return [_stored(row) for row in connection.execute(query, (after, at_most))]


def _unfinished_tasks(connection: sqlite3.Connection) -> list[tuple[SignedTask, bool]]:
    rows = connection.execute(
        "SELECT task, signature, coalesce(staged, 0) FROM tasks LEFT JOIN batches "
        "USING (task_digest) WHERE failure IS NULL "
        "AND task_digest NOT IN (SELECT task_digest FROM results)"
    )
    return [
        (SignedTask(task_bytes=task, signature=signature), bool(staged))
        for task, signature, staged in rows
    ]


def _begin_batch(connection: sqlite3.Connection, manifest: BatchManifest) -> bool:
    described = (manifest.batch_id, manifest.n_users, manifest.n_reports)
    known = connection.execute(
        "SELECT batch_id, n_users, n_reports, staged FROM batches WHERE task_digest = ?",
        (manifest.task_digest,),
    ).fetchone()
    other = connection.execute(
        "SELECT 1 FROM batches WHERE batch_id = ? AND task_digest != ?",
        (manifest.batch_id, manifest.task_digest),
    ).fetchone()
    if other is not None:
        raise BatchConflictError("a batch with this batch_id was delivered for another task")
    if known is not None and known[3]:
        if tuple(known[:3]) != described:
            raise BatchConflictError(
                "another batch was delivered for this task: one task, one release"
            )
        return False
    # Only a batch that came whole holds the task's place; what broke off leaves none behind.
    if known is not None:
        connection.execute("DELETE FROM chunks WHERE batch_id = ?", (known[0],))
        connection.execute("DELETE FROM batches WHERE batch_id = ?", (known[0],))
    connection.execute(
        "INSERT INTO batches (task_digest, batch_id, n_users, n_reports) VALUES (?, ?, ?, ?)",
        (manifest.task_digest, *described),
    )
    return True


def _add_chunks(
    connection: sqlite3.Connection, batch_id: BatchId, position: int, chunks: Sequence[bytes]
) -> None:
    connection.executemany(
        "INSERT INTO chunks VALUES (?, ?, ?)",
        [(batch_id, position + offset, chunk) for offset, chunk in enumerate(chunks)],
    )


def _finish_batch(
    connection: sqlite3.Connection,
    batch_id: BatchId,
    staged_hash: bytes | None,
    commitment: bytes | None,
) -> None:
    connection.execute("UPDATE batches SET staged = 1 WHERE batch_id = ?", (batch_id,))
    if staged_hash is not None:
        connection.execute("INSERT INTO staged_hashes VALUES (?, ?)", (batch_id, staged_hash))
    if commitment is not None:
        connection.execute(
            "INSERT INTO commitments SELECT task_digest, ? FROM batches WHERE batch_id = ?",
            (commitment, batch_id),
        )


def _staged_hash(connection: sqlite3.Connection, batch_id: BatchId) -> bytes | None:
    row = connection.execute(
        "SELECT staged_hash FROM staged_hashes WHERE batch_id = ?", (batch_id,)
    ).fetchone()
    return None if row is None else bytes(row[0])


def _commitment(connection: sqlite3.Connection, digest: TaskDigest) -> bytes | None:
    row = connection.execute(
        "SELECT commitment FROM commitments WHERE task_digest = ?", (digest,)
    ).fetchone()
    return None if row is None else bytes(row[0])


def _staged(connection: sqlite3.Connection) -> list[BatchManifest]:
    rows = connection.execute(
        "SELECT task_digest, batch_id, n_users, n_reports FROM batches "
        "WHERE staged AND failure IS NULL AND task_digest NOT IN (SELECT task_digest FROM results)"
    )
    return [
        BatchManifest(
            task_digest=TaskDigest(digest),
            batch_id=BatchId(batch_id),
            n_users=n_users,
            n_reports=n_reports,
        )
        for digest, batch_id, n_users, n_reports in rows
    ]


def _batch_states(connection: sqlite3.Connection) -> dict[TaskDigest, BatchEnd]:
    rows = connection.execute(
        "SELECT task_digest, CASE WHEN task_digest IN (SELECT task_digest FROM results) "
        "THEN 'released' WHEN failure IS NOT NULL THEN 'unusable' ELSE 'staged' END "
        "FROM batches WHERE staged OR failure IS NOT NULL"
    )
    return {TaskDigest(digest): state for digest, state in rows}


def _chunk(connection: sqlite3.Connection, batch_id: BatchId, position: int) -> bytes | None:
    row = connection.execute(
        "SELECT sealed_reports FROM chunks WHERE batch_id = ? AND position = ?",
        (batch_id, position),
    ).fetchone()
    return None if row is None else bytes(row[0])


def _release(
    connection: sqlite3.Connection,
    manifest: BatchManifest,
    cells: bytes,
    result: bytes,
    cost: ledger.Charge,
) -> None:
    connection.execute(
        "INSERT INTO results VALUES (?, ?, ?)", (manifest.task_digest, cells, result)
    )
    ledger.charge(connection, manifest, cost)
    connection.execute("DELETE FROM chunks WHERE batch_id = ?", (manifest.batch_id,))


def _give_up(connection: sqlite3.Connection, manifest: BatchManifest, failure: str) -> None:
    connection.execute(
        "UPDATE batches SET failure = ? WHERE task_digest = ?", (failure, manifest.task_digest)
    )


def _failure(connection: sqlite3.Connection, digest: TaskDigest) -> str | None:
    row = connection.execute(
        "SELECT failure FROM batches WHERE task_digest = ?", (digest,)
    ).fetchone()
    return None if row is None else row[0]


def _result(connection: sqlite3.Connection, digest: TaskDigest) -> bytes | None:
    row = connection.execute(
        "SELECT result FROM results WHERE task_digest = ?", (digest,)
    ).fetchone()
    return None if row is None else bytes(row[0])
