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
from shuffler.storage.submission_store import OPEN_STATES, Arrival, Observer, StoredBatch
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


class SqliteStore:
    """The shuffler's SQLite database."""

    def __init__(self, path: Path, clock: Clock, observer: Observer = lambda *_: None) -> None:
        self._observer = observer
        self._clock = clock
        self._database = Database(path, Schema(steps=_STEPS))
        self._path = path
        self._commits = GroupCommit(self._commit)
        self._deduplications: dict[BatchId, Deduplication] = {}

    async def open_batch(self, batch_id: BatchId, signed: SignedTask) -> StoredBatch:
        """Begin the batch of a task, or return the existing one."""
        return await self._database.run(_open_batch, batch_id, signed)

    async def get(self, digest: TaskDigest) -> StoredBatch:
        """
        Look up the batch of a task.

        Raises:
            UnknownTaskError: The task has no batch.
            DamagedStorageError: The batch's row is damaged, or of a later version.
        """
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

    async def set_state(self, batch: StoredBatch, state: BatchState) -> None:
        """Store a batch's next state, or raise BatchStateError if the state has changed."""
        n_users = await self._database.run(_set_state, batch, state)
        self._observer(batch.batch_id, batch.state, state, n_users)

    async def record_permuted(self, batch: StoredBatch, state: BatchState) -> None:
        """Record a permuted batch, and delete its submissions; see `SubmissionStore`."""
        await self.set_state(batch, state)
        await self._drop_submissions(batch.batch_id)

    async def set_last_state(self, batch: StoredBatch, state: BatchState) -> None:
        """
        Store a batch's final state, before its key is destroyed.

        Raises:
            BatchStateError: The state or number of users changed after the batch was read, so the
                decision may no longer hold.
        """
        n_users = await self._database.run(_set_last_state, batch, state)
        self._observer(batch.batch_id, batch.state, state, n_users)

    async def clean_up(self, batch: StoredBatch) -> None:
        """Delete a finished batch's submissions."""
        await self._drop_submissions(batch.batch_id)

    async def _drop_submissions(self, batch_id: BatchId) -> None:
        self._deduplications.pop(batch_id, None)
        while await self._database.run(submission_table.drop_some, batch_id):
            pass

    async def sweep(self) -> None:
        """
        Delete what a crash left: submissions of permuted or expired batches. Run at start.

        Batches in unknown states are left unchanged.
        """
        for batch_id, state in (await self.states()).items():
            if state is not None and state not in OPEN_STATES:
                await self._drop_submissions(batch_id)

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


def _set_state(connection: sqlite3.Connection, batch: StoredBatch, state: BatchState) -> int:
    """Store a state; return the number of users, which may exceed `batch.n_users` by now."""
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
    return int(n_users)


def _set_last_state(connection: sqlite3.Connection, batch: StoredBatch, state: BatchState) -> int:
    n_users = _set_state(connection, batch, state)
    if n_users != batch.n_users:
        raise BatchStateError(
            f"the batch had {batch.n_users} users when it was read; it now has {n_users}"
        )
    return n_users
