"""
The shuffler's database in one SQLite file.

Submissions are durable before they are acknowledged, and deleted once the batch is permuted. They
are stored in randomly numbered groups under the batch's key. SQLite's log retains the order of
commits for a while, but nothing on the disk relates a submission to a position in the permuted
batch, once the batch's seed is destroyed.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.messages.batch import BatchId, BatchState
from shuffledp.common.messages.submission import Outcome
from shuffledp.common.runtime.clock import Clock
from shuffledp.common.runtime.database import Database, Schema, numbers_to_text, storage_failures
from shuffledp.shuffler.storage import submission_store
from shuffledp.shuffler.storage import submissions as submission_table
from shuffledp.shuffler.storage.group import Arrival, Group
from shuffledp.shuffler.storage.submission_store import GroupSource, StoredBatch, SubmissionStore
from shuffledp.shuffler.storage.submissions import Deduplication

_STEPS: Final = (
    """
CREATE TABLE IF NOT EXISTS batches (
    batch_id BLOB PRIMARY KEY,
    task_digest BLOB NOT NULL UNIQUE,
    task BLOB NOT NULL,
    signature BLOB NOT NULL,
    state TEXT NOT NULL,
    n_users INTEGER NOT NULL DEFAULT 0,
    n_reports INTEGER NOT NULL DEFAULT 0,
    shuffle_seconds REAL NOT NULL DEFAULT 0
) WITHOUT ROWID;
"""
    + submission_table.SCHEMA,
    "ALTER TABLE batches ADD COLUMN by_length TEXT NOT NULL DEFAULT '';",
    submission_store.MAY_BE_SENT,
    "ALTER TABLE batches ADD COLUMN part_hashes BLOB NOT NULL DEFAULT x'';",
)


@dataclass(frozen=True, slots=True)
class SqliteGroups(GroupSource):
    """The groups in the shuffler's SQLite database, which its own process keeps open."""

    path: Path

    def read(self, batch_id: BatchId, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        with (
            storage_failures(),
            closing(
                sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)
            ) as connection,
        ):
            yield from connection.execute(
                "SELECT number, sealed FROM submission_groups "
                "WHERE batch_id = ? AND number BETWEEN ? AND ? ORDER BY number",
                (batch_id, first, last - 1),
            )


class SqliteStore(SubmissionStore):
    """The shuffler's SQLite database."""

    BATCHES = (
        "SELECT batch_id, task_digest, task, signature, CAST(state AS BLOB), n_users, n_reports, "
        "by_length, shuffle_seconds, 0, part_hashes, 0 FROM batches"
    )
    STATES = "SELECT batch_id, CAST(state AS BLOB) FROM batches"
    REFUSALS = "SELECT batch_id, outcome, n FROM refusals"

    def __init__(self, path: Path, clock: Clock) -> None:
        self._clock = clock
        self._database = Database(path, Schema(steps=_STEPS))
        super().__init__(self._database)
        self._path = path
        self._deduplications: dict[BatchId, Deduplication] = {}

    async def open_batch(self, batch_id: BatchId, signed: SignedTask) -> StoredBatch:
        await self._database.fetch(
            "INSERT OR IGNORE INTO batches (batch_id, task_digest, task, signature, state) "
            "VALUES (?, ?, ?, ?, ?)",
            *(batch_id, signed.digest(), signed.task_bytes, signed.signature),
            BatchState.COLLECTING.value,
        )
        return await self.get(signed.digest())

    def group_source(self) -> SqliteGroups:
        return SqliteGroups(self._path)

    async def _append(self, arrivals: Sequence[Arrival]) -> list[list[list[Outcome]]]:
        def append(connection: sqlite3.Connection) -> list[tuple[list[list[Outcome]], list[Group]]]:
            known, now = self._deduplications, self._clock.now()
            return [submission_table.append(connection, known, now, each) for each in arrivals]

        judged = await self._database.run(append)
        for arrival, (_, stored) in zip(arrivals, judged, strict=True):
            for group in stored:  # only a committed submission can be repeated
                numbers = np.full(len(group), group.number, dtype=np.uint64)
                self._deduplications[arrival.batch_id].remember(group.tags, numbers)
        return [outcomes for outcomes, _ in judged]

    async def add_refusals(self, counts: Mapping[BatchId, Counter[Outcome]]) -> None:
        await self._database.run(submission_table.add_refusals, counts)

    async def _store_state(self, batch: StoredBatch, state: BatchState) -> int:
        return await self._database.run(_set_state, batch, state)

    async def clean_up(self, batch_id: BatchId) -> None:
        self._deduplications.pop(batch_id, None)
        while await self._database.run(submission_table.drop_some, batch_id):
            pass


def _set_state(connection: sqlite3.Connection, batch: StoredBatch, state: BatchState) -> int:
    changed = connection.execute(
        "UPDATE batches SET state = ?, n_reports = ?, by_length = ?, shuffle_seconds = ?, "
        "part_hashes = ? WHERE batch_id = ? AND state = ? RETURNING n_users",
        (
            *(state.value, batch.n_reports, numbers_to_text(batch.by_length)),
            *(batch.shuffle_seconds, batch.part_hashes, batch.batch_id, batch.state.value),
        ),
    ).fetchone()
    return batch.check_moved(changed, state)
