"""
The shuffler's database in one SQLite file.

Submissions are durable before they are acknowledged, and deleted once the batch is permuted. They
are stored in randomly numbered groups under the batch's key. SQLite's log retains the order of
commits for a while, but nothing on the disk relates a submission to a position in the permuted
batch, once the batch's seed is destroyed.
"""

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from common.crypto.signing import SignedTask
from common.errors import BatchStateError, DamagedStorageError, UnknownTaskError
from common.messages.batch import BatchId, BatchState, numbers_from_text, numbers_to_text
from common.messages.submission import Outcome
from common.runtime.clock import Clock
from common.runtime.database import Database
from common.runtime.schema import Schema
from common.task_digest import TaskDigest
from shuffler.storage import submissions as submission_table
from shuffler.storage.group_commit import GroupCommit
from shuffler.storage.group_source import SqliteGroups
from shuffler.storage.submission_store import Arrival, Observer, StoredBatch, SubmissionStore
from shuffler.storage.submissions import Deduplication

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
)


class SqliteStore(SubmissionStore):
    """The shuffler's SQLite database."""

    def __init__(self, path: Path, clock: Clock, observer: Observer = lambda *_: None) -> None:
        super().__init__(observer)
        self._clock = clock
        self._database = Database(path, Schema(steps=_STEPS))
        self._path = path
        self._commits = GroupCommit(self._commit)
        self._deduplications: dict[BatchId, Deduplication] = {}

    async def open_batch(self, batch_id: BatchId, signed: SignedTask) -> StoredBatch:
        """Begin the batch of a task; see `SubmissionStore.open_batch`."""
        return await self._database.run(_open_batch, batch_id, signed)

    async def get(self, digest: TaskDigest) -> StoredBatch:
        """Look up the batch of a task; see `SubmissionStore.get`."""
        return await self._database.run(_get, "task_digest", digest)

    async def read(self, batch_id: BatchId) -> StoredBatch:
        """Read one batch's row; raise DamagedStorageError if this version cannot read it."""
        return await self._database.run(_get, "batch_id", batch_id)

    async def states(self) -> dict[BatchId, BatchState | None]:
        """Return the state of every batch; None if it is damaged or of a later version."""
        return await self._database.run(_states)

    def group_source(self) -> SqliteGroups:
        """Return a reader of the groups for worker processes."""
        return SqliteGroups(self._path)

    async def append(self, arrival: Arrival) -> list[list[Outcome]]:
        """Store new submissions durably; see `SubmissionStore.append`."""
        return await self._commits.append(arrival)

    async def _commit(self, arrivals: Sequence[Arrival]) -> list[list[list[Outcome]]]:
        judged, stored = await self._database.run(
            submission_table.append, arrivals, self._deduplications, self._clock.now
        )
        for batch_id, group in stored:  # only a committed submission can be repeated
            self._deduplications[batch_id].remember(group)
        return judged

    async def add_refusals(self, counts: Mapping[BatchId, Counter[Outcome]]) -> None:
        """Add to the counts of refused and repeated submissions."""
        await self._database.run(submission_table.add_refusals, counts)

    async def refusals(self) -> dict[BatchId, Counter[Outcome]]:
        """Return every batch's stored counts of refused and repeated submissions."""
        return await self._database.run(submission_table.refusals)

    async def _store_state(self, batch: StoredBatch, state: BatchState, *, same_users: bool) -> int:
        return await self._database.run(_set_state, batch, state, same_users=same_users)

    async def clean_up(self, batch_id: BatchId) -> None:
        """Delete a finished batch's submissions."""
        self._deduplications.pop(batch_id, None)
        while await self._database.run(submission_table.drop_some, batch_id):
            pass

    def close(self) -> None:
        """Close the database."""
        self._database.close()


_SELECT: Final = (
    "SELECT batch_id, task_digest, task, signature, CAST(state AS BLOB), n_users, n_reports, "
    "by_length, shuffle_seconds FROM batches "
)
_STATES: Final = {state.value.encode(): state for state in BatchState}
"""States by stored bytes. Damaged bytes may not be text: a query of all rows as text would fail."""


def _open_batch(
    connection: sqlite3.Connection, batch_id: BatchId, signed: SignedTask
) -> StoredBatch:
    digest, state = signed.digest(), BatchState.COLLECTING.value
    connection.execute(
        "INSERT OR IGNORE INTO batches (batch_id, task_digest, task, signature, state) "
        "VALUES (?, ?, ?, ?, ?)",
        (batch_id, digest, signed.task_bytes, signed.signature, state),
    )
    return _get(connection, "task_digest", digest)


def _get(connection: sqlite3.Connection, column: str, key: bytes) -> StoredBatch:
    """Read the row of a batch, where `column` is task_digest or batch_id."""
    row = connection.execute(f"{_SELECT} WHERE {column} = ?", (key,)).fetchone()
    if row is None:
        raise UnknownTaskError("this shuffler has no batch for this task")
    batch_id, digest, task, signature, state, n_users, n_reports, by_length, seconds = row
    signed = SignedTask(task_bytes=task, signature=signature)
    if signed.digest() != digest:
        raise DamagedStorageError("a task in the shuffler's database is damaged")
    if state not in _STATES:
        raise DamagedStorageError(
            "the state of a batch in the shuffler's database is damaged, or of a later version"
        )
    return StoredBatch(
        batch_id=BatchId(batch_id),
        signed=signed,
        state=_STATES[state],
        n_users=n_users,
        n_reports=n_reports,
        by_length=numbers_from_text(by_length),
        shuffle_seconds=seconds,
    )


def _states(connection: sqlite3.Connection) -> dict[BatchId, BatchState | None]:
    rows = connection.execute("SELECT batch_id, CAST(state AS BLOB) FROM batches")
    return {BatchId(batch_id): _STATES.get(state) for batch_id, state in rows}


def _set_state(
    connection: sqlite3.Connection, batch: StoredBatch, state: BatchState, *, same_users: bool
) -> int:
    changed = connection.execute(
        "UPDATE batches SET state = ?, n_reports = ?, by_length = ?, shuffle_seconds = ? "
        "WHERE batch_id = ? AND state = ? RETURNING n_users",
        (
            state.value,
            batch.n_reports,
            numbers_to_text(batch.by_length),
            batch.shuffle_seconds,
            batch.batch_id,
            batch.state.value,
        ),
    ).fetchall()
    if not changed:
        raise BatchStateError(f"the batch is no longer {batch.state.value}")
    [(n_users,)] = changed
    if same_users and n_users != batch.n_users:
        raise BatchStateError(
            f"the batch had {batch.n_users} users when it was read; it now has {n_users}"
        )
    return int(n_users)
