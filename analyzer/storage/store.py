"""The analyzer's database: tasks, staged batches, cell counts, results and the ledger."""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Concatenate, Final, Literal, ParamSpec, TypeVar

from analyzer.storage import ledger, task_table
from common.errors import ConflictError
from common.messages.batch import BatchId, BatchManifest
from common.messages.ledger_entry import ChainHead, LedgerEntry
from common.runtime.database import Database
from common.runtime.schema import Schema
from common.task_digest import TaskDigest
from common.wire.results import MAX_LEDGER_ENTRIES

_TABLES: Final = (
    task_table.SCHEMA
    + """
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
)

P = ParamSpec("P")
T = TypeVar("T")

DeliveredState = Literal["staged", "released", "unusable"]
"""State of a delivered batch."""


class Store:
    """The analyzer's database. Each method that writes is one durable transaction."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, Schema(steps=(_TABLES,)))

    async def run(
        self,
        work: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a function of `task_table` as one transaction."""
        return await self._database.run(work, *args, **kwargs)

    async def begin_batch(self, manifest: BatchManifest) -> bool:
        """
        Begin to stage a batch, discarding an earlier incomplete delivery.

        Returns:
            Whether the batch's reports are needed; False if it was staged before.

        Raises:
            ConflictError: Another batch, or this one with another manifest, was staged for this
                task; or a batch with this batch_id was delivered for another task.
        """
        return await self._database.run(_begin_batch, manifest)

    async def add_chunks(self, batch_id: BatchId, position: int, chunks: Sequence[bytes]) -> None:
        """Store consecutive chunks, starting at `position`."""
        await self._database.run(_add_chunks, batch_id, position, chunks)

    async def finish_batch(self, batch_id: BatchId, staged_hash: bytes, commitment: bytes) -> None:
        """Mark a batch as staged, with its hash and commitment, in one transaction."""
        await self._database.run(_finish_batch, batch_id, staged_hash, commitment)

    async def staged_hash(self, batch_id: BatchId) -> bytes | None:
        """Look up the hash of a staged batch; None if there is none."""
        return await self._database.run(
            _blob, "SELECT staged_hash FROM staged_hashes WHERE batch_id = ?", batch_id
        )

    async def commitment(self, digest: TaskDigest) -> bytes | None:
        """Look up the commitment to a task's batch; None if an earlier version staged it."""
        return await self._database.run(
            _blob, "SELECT commitment FROM commitments WHERE task_digest = ?", digest
        )

    async def staged(self) -> list[BatchManifest]:
        """List the staged batches that are neither released nor unusable."""
        return await self._database.run(_staged)

    async def chunk(self, batch_id: BatchId, position: int) -> bytes | None:
        """Return one staged chunk; None after the last."""
        return await self._database.run(
            _blob,
            "SELECT sealed_reports FROM chunks WHERE batch_id = ? AND position = ?",
            batch_id,
            position,
        )

    async def release(
        self, manifest: BatchManifest, cells: bytes, result: bytes, cost: ledger.Charge
    ) -> None:
        """
        Store the cells and result, charge the ledger, and delete the reports, in one transaction.

        The deleted reports are then erased from the disk; if that fails, it is retried later.
        """
        await self._database.run(_release, manifest, cells, result, cost)
        await self._database.empty_log()

    async def check_ledger(self) -> ChainHead:
        """
        Verify the ledger with `ledger.check`, and return the chain's head.

        Raises:
            LedgerError: As in `ledger.check`.
        """
        return await self._database.run(ledger.check)

    async def ledger(self, after: int) -> list[LedgerEntry]:
        """List at most MAX_LEDGER_ENTRIES entries of the ledger with numbers above `after`."""
        return await self._database.run(ledger.entries_after, after, MAX_LEDGER_ENTRIES)

    async def releases_to(self, population: str) -> list[LedgerEntry]:
        """List the ledger's entries of a population."""
        return await self._database.run(ledger.entries_of, population)

    async def populations(self) -> list[str]:
        """List the populations with a release."""
        return await self._database.run(ledger.populations)

    async def batch_states(self) -> dict[TaskDigest, DeliveredState]:
        """Return the state of every batch that is staged, released or unusable. Run at start."""
        return await self._database.run(_batch_states)

    async def mark_unusable(self, manifest: BatchManifest, failure: str) -> None:
        """Store the reason why a batch can never be released; its staged reports are kept."""
        await self._database.run(_mark_unusable, manifest, failure)

    async def failure(self, digest: TaskDigest) -> str | None:
        """Look up the reason why a task's batch can never be released; None if there is none."""
        return await self._database.run(_failure, digest)

    async def result(self, digest: TaskDigest) -> bytes | None:
        """Look up a released result; None if there is none."""
        return await self._database.run(
            _blob, "SELECT result FROM results WHERE task_digest = ?", digest
        )

    def close(self) -> None:
        """Close the database."""
        self._database.close()


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
        raise ConflictError("a batch with this batch_id was delivered for another task")
    if known is not None and known[3]:
        if tuple(known[:3]) != described:
            raise ConflictError("another batch was delivered for this task: one task, one release")
        return False
    # Only a whole batch is final; an incomplete one is replaced.
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
    connection: sqlite3.Connection, batch_id: BatchId, staged_hash: bytes, commitment: bytes
) -> None:
    connection.execute("UPDATE batches SET staged = 1 WHERE batch_id = ?", (batch_id,))
    connection.execute("INSERT INTO staged_hashes VALUES (?, ?)", (batch_id, staged_hash))
    connection.execute(
        "INSERT INTO commitments SELECT task_digest, ? FROM batches WHERE batch_id = ?",
        (commitment, batch_id),
    )


def _blob(connection: sqlite3.Connection, query: str, *key: bytes | int) -> bytes | None:
    """Return a query's single value; None if it finds none."""
    row = connection.execute(query, key).fetchone()
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


def _batch_states(connection: sqlite3.Connection) -> dict[TaskDigest, DeliveredState]:
    rows = connection.execute(
        "SELECT task_digest, CASE WHEN task_digest IN (SELECT task_digest FROM results) "
        "THEN 'released' WHEN failure IS NOT NULL THEN 'unusable' ELSE 'staged' END "
        "FROM batches WHERE staged OR failure IS NOT NULL"
    )
    return {TaskDigest(digest): state for digest, state in rows}


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


def _mark_unusable(connection: sqlite3.Connection, manifest: BatchManifest, failure: str) -> None:
    connection.execute(
        "UPDATE batches SET failure = ? WHERE task_digest = ?", (failure, manifest.task_digest)
    )


def _failure(connection: sqlite3.Connection, digest: TaskDigest) -> str | None:
    row = connection.execute(
        "SELECT failure FROM batches WHERE task_digest = ?", (digest,)
    ).fetchone()
    return None if row is None else row[0]
