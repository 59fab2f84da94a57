"""
The relay's database in one SQLite file: tasks, deliveries, and the states of their batches.

A task's row outlives its batch, so that no second delivery of it is ever accepted.
"""

import asyncio
import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import Final

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import ConflictError
from shuffledp.common.messages.batch import BatchId, BatchState
from shuffledp.common.receiving import delivery_table
from shuffledp.common.receiving.received_job import ARRIVED, MERGED, SPLIT
from shuffledp.common.runtime.blocks import Blocks
from shuffledp.common.runtime.database import Database, Schema
from shuffledp.common.task_digest import TaskDigest
from shuffledp.shuffler.batch_states import FINAL_STATES
from shuffledp.shuffler.relay.layer_jobs import OPENED
from shuffledp.shuffler.storage.submission_store import BatchStore, StoredBatch

RECEIVED: Final = (ARRIVED, SPLIT, MERGED, OPENED)
"""Subfolders of a batch that arrived, which are deleted once it is permuted."""
_STEPS: Final = (
    """
CREATE TABLE IF NOT EXISTS tasks (
    task_digest BLOB PRIMARY KEY,
    task BLOB NOT NULL,
    signature BLOB NOT NULL
) WITHOUT ROWID;
"""
    + delivery_table.schema(
        "tasks",
        "state TEXT NOT NULL DEFAULT 'collecting', n_permuted INTEGER NOT NULL DEFAULT 0, "
        "n_discarded_here INTEGER NOT NULL DEFAULT 0, shuffle_seconds REAL NOT NULL DEFAULT 0, "
        "part_hashes BLOB NOT NULL DEFAULT x''",
    )
    + delivery_table.BY_LENGTH
    + delivery_table.DISCARDED,
)
_FINAL: Final = ", ".join(f"'{state.value}'" for state in FINAL_STATES)
_LOST: Final = (FINAL_STATES | {BatchState.QUARANTINED}) - {BatchState.ERASED}
"""States from which no batch reaches the analyzer, or none that the relay knows of."""


def check_kept(connection: sqlite3.Connection, digest: TaskDigest) -> None:
    """Raise ConflictError if the batch of a task has ended without being delivered."""
    query = "SELECT state FROM batches WHERE task_digest = ?"
    [state] = connection.execute(query, (digest,)).fetchone() or [None]
    if state in _LOST:
        raise ConflictError(f"the task's batch is {state} at this relay, and no other is accepted")


def kept(connection: sqlite3.Connection) -> Collection[BatchId]:
    """Return the batches that have not ended."""
    query = f"SELECT batch_id FROM batches WHERE state NOT IN ({_FINAL})"  # noqa: S608
    return {BatchId(batch_id) for (batch_id,) in connection.execute(query)}


class RelayStore(BatchStore):
    """The relay's database; see BatchStore."""

    BATCHES = (
        "SELECT batch_id, task_digest, task, signature, CAST(state AS BLOB), staged * n_users, "
        "n_permuted, by_length, shuffle_seconds, n_discarded_here, part_hashes, (SELECT "
        "coalesce(sum(n_reports), 0) FROM parts WHERE parts.batch_id = batches.batch_id) "
        "FROM batches JOIN tasks USING (task_digest)"
    )
    """A batch has its users, and closes, once it is staged."""
    STATES = "SELECT batch_id, CAST(state AS BLOB) FROM batches"

    def __init__(self, path: Path, blocks: Blocks) -> None:
        self.database = Database(path, Schema(steps=_STEPS))
        super().__init__(self.database)
        self._blocks = blocks

    async def task(self, digest: TaskDigest) -> SignedTask | None:
        """Look up a task; None if it is not kept."""
        query = "SELECT task, signature FROM tasks WHERE task_digest = ?"
        rows = await self.database.fetch(query, digest)
        return SignedTask(task_bytes=rows[0][0], signature=rows[0][1]) if rows else None

    async def keep_task(self, signed: SignedTask) -> None:
        """Keep a task."""
        row = (signed.digest(), signed.task_bytes, signed.signature)
        await self.database.fetch("INSERT OR IGNORE INTO tasks VALUES (?, ?, ?)", *row)

    async def _store_state(self, batch: StoredBatch, state: BatchState) -> int:
        return await self.database.run(_set_state, batch, state)

    async def clean_up(self, batch_id: BatchId) -> None:
        for subfolder in RECEIVED:
            await asyncio.to_thread(self._blocks.delete, f"{batch_id.hex()}/{subfolder}")


def _set_state(connection: sqlite3.Connection, batch: StoredBatch, state: BatchState) -> int:
    changed = connection.execute(
        "UPDATE batches SET state = ?, n_permuted = ?, n_discarded_here = ?, shuffle_seconds = ?, "
        "part_hashes = ? WHERE batch_id = ? AND state = ? RETURNING staged * n_users",
        (
            *(state.value, batch.n_reports, batch.n_discarded, batch.shuffle_seconds),
            *(batch.part_hashes, batch.batch_id, batch.state.value),
        ),
    ).fetchone()
    return batch.check_moved(changed, state)
