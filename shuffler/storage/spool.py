"""
The shuffler's storage: submissions are durable before they are acknowledged, and erased after.

They are stored in randomly numbered groups under the batch's key; each batch also has a directory
for its buckets and the permuted batch. SQLite's log keeps the order of commits for a while: without
the key that is an order of random bytes, and nothing on the disk relates a submission to a position
in the permuted batch.
"""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from common.crypto.signing import SignedTask
from common.errors import BatchStateError, DamagedStorageError, UnknownTaskError
from common.messages.batch import BatchId, BatchState
from common.messages.submission import Outcome
from common.runtime.database import Database
from common.task_digest import TaskDigest
from shuffler.storage import submissions as submission_table
from shuffler.storage.batch_files import BatchFiles, remove_folder, sweep_folders
from shuffler.storage.group import BatchKey
from shuffler.storage.submissions import Arrival, Deduplication

_SCHEMA: Final = (
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
    + submission_table.SCHEMA
)

_PERMUTED_STATES: Final = frozenset(
    {BatchState.PERMUTED, BatchState.DELIVERED, BatchState.QUARANTINED}
)
"""States in which the permuted batch is stored."""
_GATHER_SECONDS: Final = 0.004
"""Wait of a commit for further calls, while calls come together: a flush costs as much processor
time as opening several envelopes."""
_GATHERED: Final = 64
"""Submissions that are committed without that wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """One row of the table of batches."""

    batch_id: BatchId
    signed: SignedTask
    state: BatchState
    n_users: int
    n_reports: int
    """In the permuted batch; 0 before it is permuted."""
    shuffle_seconds: float


class SpoolObserver(Protocol):
    """Told of every change of a batch's state: the metrics."""

    def moved(self, batch_id: BatchId, before: BatchState, state: BatchState, n_users: int) -> None:
        """Record a batch's next state, which is stored. Not called when a batch begins."""


class Spool:
    """The shuffler's database and batch directories."""

    def __init__(self, path: Path, observer: SpoolObserver | None = None) -> None:
        self._observer = observer
        self._database = Database(path, _SCHEMA)
        self._folders = path.with_name("batches")
        self._waiting: list[tuple[Arrival, asyncio.Future[list[list[Outcome]]]]] = []
        self._committing: asyncio.Task[None] | None = None
        self._together = 0
        """Calls in the last commit."""
        self._deduplications: dict[BatchId, Deduplication] = {}

    async def open_batch(self, batch_id: BatchId, signed: SignedTask) -> StoredBatch:
        """Begin the batch of a task, or return the one begun before."""
        return await self._database.run(_open_batch, batch_id, signed)

    async def get(self, digest: TaskDigest) -> StoredBatch:
        """
        Look up the batch of a task.

        Raises:
            UnknownTaskError: The task has no batch.
        """
        return await self._database.run(_get, digest)

    async def states(self) -> dict[BatchId, BatchState]:
        """Return the state of every batch, finished ones included."""
        return await self._database.run(_states)

    async def kept(self) -> list[StoredBatch]:
        """List the batches with stored submissions or a permuted batch."""
        return await self._database.run(_kept)

    def files(self, batch_id: BatchId, key: BatchKey) -> BatchFiles:
        """Return the batch's directory."""
        return BatchFiles(self._folders / batch_id.hex(), key)

    async def append(self, arrival: Arrival) -> list[list[Outcome]]:
        """
        Store the new submissions of some groups durably before returning.

        Calls that arrive during a commit are committed together (group commit).

        Returns:
            The outcome of each submission, group by group, in the groups' own order.

        Raises:
            StorageError: Nothing of the call was stored; safe to retry.
        """
        future: asyncio.Future[list[list[Outcome]]] = asyncio.get_running_loop().create_future()
        self._waiting.append((arrival, future))
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit_waiting())
        return await future

    async def _commit_waiting(self) -> None:
        while self._waiting:
            if self._together > 1 and sum(len(one) for one, _ in self._waiting) < _GATHERED:
                await asyncio.sleep(_GATHER_SECONDS)
            together, self._waiting = self._waiting, []
            self._together = len(together)
            arrivals = [arrival for arrival, _ in together]
            try:
                judged, stored = await self._database.run(
                    submission_table.append, arrivals, self._deduplications
                )
            except Exception as error:  # noqa: BLE001  # raised to every waiting call
                for _, future in together:
                    if not future.done():
                        future.set_exception(error)
                continue
            for batch_id, group in stored:  # only committed ones can be repeated
                self._deduplications[batch_id].remember(group)
            for (_, future), outcomes in zip(together, judged, strict=True):
                if not future.done():
                    future.set_result(outcomes)

    async def groups(self, batch_id: BatchId, after: int, at_most: int) -> list[tuple[int, bytes]]:
        """List at most `at_most` groups with numbers above `after`: number, sealed reports."""
        return await self._database.run(submission_table.groups, batch_id, after, at_most)

    async def add_refusals(self, refused: Mapping[BatchId, Counter[Outcome]]) -> None:
        """Add to the stored counts of refused submissions."""
        await self._database.run(submission_table.add_refusals, refused)

    async def refusals(self, batch_id: BatchId) -> Counter[Outcome]:
        """Return a batch's stored counts of refused submissions."""
        return await self._database.run(submission_table.refusals_of, batch_id)

    async def set_state(self, batch: StoredBatch, state: BatchState) -> None:
        """Store a batch's next state."""
        await self._database.run(_set_state, batch, state)
        self._notify(batch, state)

    async def record_permuted(
        self, batch: StoredBatch, state: BatchState, n_reports: int, seconds: float
    ) -> None:
        """
        Store that the permuted batch is saved, then delete the submissions.

        A crash in between leaves submissions that are not read again; `sweep` deletes them.
        """
        await self._database.run(_record_permuted, batch, state, n_reports, seconds)
        self._notify(batch, state)
        await self._drop_submissions(batch.batch_id)

    async def drop(self, batch: StoredBatch, state: BatchState) -> None:
        """
        Store a batch's final state, and delete its submissions and files.

        Raises:
            BatchStateError: State or number of users changed since the batch was read: a submission
                was committed meanwhile, and the decision may no longer hold.
        """
        await self._database.run(_set_last_state, batch, state)
        self._notify(batch, state)
        await self._drop_submissions(batch.batch_id)
        await asyncio.to_thread(remove_folder, self._folders / batch.batch_id.hex())

    def _notify(self, batch: StoredBatch, state: BatchState) -> None:
        if self._observer is not None:
            self._observer.moved(batch.batch_id, batch.state, state, batch.n_users)

    async def _drop_submissions(self, batch_id: BatchId) -> None:
        self._deduplications.pop(batch_id, None)
        while await self._database.run(submission_table.drop_some, batch_id):
            pass

    async def sweep(self) -> None:
        """
        Delete the remains of a crash: buckets, unrecorded permuted batches, and submissions of
        batches already permuted. Run once, at start.
        """
        states = await self.states()
        for batch_id, state in states.items():
            if state not in submission_table.OPEN_STATES:
                await self._drop_submissions(batch_id)
        kept = {batch_id.hex() for batch_id, state in states.items() if state in _PERMUTED_STATES}
        await asyncio.to_thread(sweep_folders, self._folders, kept)

    def close(self) -> None:
        """Close the file."""
        self._database.close()


_COLUMNS: Final = (
    "batch_id, task_digest, task, signature, state, n_users, n_reports, shuffle_seconds"
)


def _stored(row: tuple[bytes, bytes, bytes, bytes, str, int, int, float]) -> StoredBatch:
    batch_id, digest, task, signature, state, n_users, n_reports, seconds = row
    signed = SignedTask(task_bytes=task, signature=signature)
    if signed.digest() != digest:
        raise DamagedStorageError("a task in the shuffler's database is damaged")
    return StoredBatch(
        batch_id=BatchId(batch_id),
        signed=signed,
        state=BatchState(state),
        n_users=n_users,
        n_reports=n_reports,
        shuffle_seconds=seconds,
    )


def _open_batch(
    connection: sqlite3.Connection, batch_id: BatchId, signed: SignedTask
) -> StoredBatch:
    connection.execute(
        "INSERT OR IGNORE INTO batches (batch_id, task_digest, task, signature, state) "
        "VALUES (?, ?, ?, ?, ?)",
        (
            batch_id,
            signed.digest(),
            signed.task_bytes,
            signed.signature,
            BatchState.COLLECTING.value,
        ),
    )
    return _get(connection, signed.digest())


def _get(connection: sqlite3.Connection, digest: TaskDigest) -> StoredBatch:
    query = f"SELECT {_COLUMNS} FROM batches WHERE task_digest = ?"  # noqa: S608
    row = connection.execute(query, (digest,)).fetchone()
    if row is None:
        raise UnknownTaskError("this shuffler has no batch for this task")
    return _stored(row)


def _kept(connection: sqlite3.Connection) -> list[StoredBatch]:
    held = submission_table.OPEN_STATES | _PERMUTED_STATES
    query = f"SELECT {_COLUMNS} FROM batches WHERE state IN ({', '.join('?' * len(held))})"  # noqa: S608
    return [_stored(row) for row in connection.execute(query, [state.value for state in held])]


def _states(connection: sqlite3.Connection) -> dict[BatchId, BatchState]:
    rows = connection.execute("SELECT batch_id, state FROM batches")
    return {BatchId(batch_id): BatchState(state) for batch_id, state in rows}


def _set_state(connection: sqlite3.Connection, batch: StoredBatch, state: BatchState) -> None:
    changed = connection.execute(
        "UPDATE batches SET state = ? WHERE batch_id = ? AND state = ?",
        (state.value, batch.batch_id, batch.state.value),
    )
    if changed.rowcount != 1:
        raise BatchStateError(f"the batch is no longer {batch.state.value}")


def _record_permuted(
    connection: sqlite3.Connection,
    batch: StoredBatch,
    state: BatchState,
    n_reports: int,
    seconds: float,
) -> None:
    _set_state(connection, batch, state)
    connection.execute(
        "UPDATE batches SET n_reports = ?, shuffle_seconds = ? WHERE batch_id = ?",
        (n_reports, seconds, batch.batch_id),
    )


def _set_last_state(connection: sqlite3.Connection, batch: StoredBatch, state: BatchState) -> None:
    [n_users] = connection.execute(
        "SELECT n_users FROM batches WHERE batch_id = ?", (batch.batch_id,)
    ).fetchone()
    if n_users != batch.n_users:
        raise BatchStateError(
            f"the batch had {batch.n_users} users when it was read; it has {n_users}"
        )
    _set_state(connection, batch, state)
