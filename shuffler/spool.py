"""
Submissions that outlive a crash: durable before they are acknowledged, unreadable after the batch.

Rows are sealed under the batch's key and named by a keyed hash, which is also their order in the
table. SQLite's log keeps the order of commits for a while; without the key that is an order of
random bytes, and nothing on the disk relates a submission to a place in the permuted batch.
"""

import asyncio
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.batch import BatchId, BatchState
from common.errors import BatchStateError, UnknownTaskError
from common.runtime.database import Database
from common.signing import SignedTask
from common.submission import Outcome
from common.task_digest import TaskDigest

_SCHEMA: Final = """
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
CREATE TABLE IF NOT EXISTS submissions (
    batch_id BLOB NOT NULL REFERENCES batches,
    tag BLOB NOT NULL,
    content_tag BLOB NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (batch_id, tag)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS used_tokens (
    batch_id BLOB NOT NULL REFERENCES batches,
    token_tag BLOB NOT NULL,
    PRIMARY KEY (batch_id, token_tag)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS permuted (
    batch_id BLOB NOT NULL REFERENCES batches,
    position INTEGER NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (batch_id, position)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """One row of the table of batches."""

    batch_id: BatchId
    signed: SignedTask
    state: BatchState
    n_users: int
    n_reports: int
    """In the permuted batch; 0 before."""
    shuffle_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Permuted:
    """A batch in its final order, the shuffler's dummies included."""

    chunks: Sequence[bytes]
    """Under the batch's key."""
    n_reports: int
    seconds: float
    """How long the permutation alone took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One submission as it is stored."""

    batch_id: BatchId
    tag: bytes
    """Keyed hash of the submission id."""
    content_tag: bytes
    """Keyed hash of its sealed reports: tells a retry from a conflict."""
    sealed: bytes
    in_time: bool
    """Came before the deadline. A late one is only compared with what is stored."""
    token_tag: bytes | None = None
    """Keyed hash of the user's token, where tokens are asked for: each counts once a batch."""


class Spool:
    """The shuffler's file."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, _SCHEMA)
        self._waiting: list[tuple[Sequence[Row], asyncio.Future[list[Outcome]]]] = []
        self._committing: asyncio.Task[None] | None = None

    async def open_batch(self, batch_id: BatchId, signed: SignedTask) -> StoredBatch:
        """Begin to collect for a task, or give the batch that was begun."""
        return await self._database.run(_open_batch, batch_id, signed)

    async def get(self, digest: TaskDigest) -> StoredBatch:
        """
        Look up the batch of a task.

        Raises:
            UnknownTaskError: There is none.
        """
        return await self._database.run(_get, digest)

    async def all(self) -> list[StoredBatch]:
        """List every batch, also those that are over."""
        return await self._database.run(_all)

    async def append(self, rows: Sequence[Row]) -> list[Outcome]:
        """
        Store submissions; when this returns they are on the disk.

        Calls that come while a commit is under way are committed together (group commit).
        """
        future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        self._waiting.append((rows, future))
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit_waiting())
        return await future

    async def _commit_waiting(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            try:
                outcomes = await self._database.run(_append, [rows for rows, _ in group])
            except Exception as error:  # noqa: BLE001  # whoever waits is told
                for _, future in group:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), outcome in zip(group, outcomes, strict=True):
                if not future.done():
                    future.set_result(outcome)

    async def set_state(self, batch: StoredBatch, state: BatchState) -> None:
        """Record a batch's next state."""
        await self._database.run(_set_state, batch, state)

    async def submissions(self, batch_id: BatchId) -> list[bytes]:
        """Give every sealed row of a batch, in the order of the keyed hash."""
        return await self._database.run(_submissions, batch_id)

    async def replace_by_permuted(
        self, batch: StoredBatch, state: BatchState, permuted: Permuted
    ) -> None:
        """Store the permuted batch, drop the submissions, record the state: at once."""
        await self._database.run(_replace_by_permuted, batch, state, permuted)

    async def permuted_chunk(self, batch_id: BatchId, position: int) -> bytes | None:
        """Give one sealed chunk of a permuted batch; None past the last."""
        return await self._database.run(_permuted_chunk, batch_id, position)

    async def drop(self, batch: StoredBatch, state: BatchState) -> None:
        """
        Delete a batch's rows and record its last state.

        Raises:
            BatchStateError: State or number of users are not those that were read: a submission
                was committed meanwhile, and what was decided without it may not hold.
        """
        await self._database.run(_drop, batch, state)

    def close(self) -> None:
        """Close the file."""
        self._database.close()


_COLUMNS: Final = "batch_id, task, signature, state, n_users, n_reports, shuffle_seconds"


def _stored(row: tuple[bytes, bytes, bytes, str, int, int, float]) -> StoredBatch:
    batch_id, task, signature, state, n_users, n_reports, seconds = row
    return StoredBatch(
        batch_id=BatchId(batch_id),
        signed=SignedTask(task_bytes=task, signature=signature),
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


def _all(connection: sqlite3.Connection) -> list[StoredBatch]:
    return [_stored(row) for row in connection.execute(f"SELECT {_COLUMNS} FROM batches")]  # noqa: S608


def _append(connection: sqlite3.Connection, groups: list[Sequence[Row]]) -> list[list[Outcome]]:
    return [[_append_row(connection, row) for row in rows] for rows in groups]


def _append_row(connection: sqlite3.Connection, row: Row) -> Outcome:
    known = connection.execute(
        "SELECT content_tag FROM submissions WHERE batch_id = ? AND tag = ?",
        (row.batch_id, row.tag),
    ).fetchone()
    if known is not None:
        return Outcome.REPEATED if known[0] == row.content_tag else Outcome.CONFLICT
    if not row.in_time:
        return Outcome.CLOSED
    if row.token_tag is not None and _token_used(connection, row):
        return Outcome.TOKEN_USED
    counted = connection.execute(
        "UPDATE batches SET n_users = n_users + 1 WHERE batch_id = ? AND state = ?",
        (row.batch_id, BatchState.COLLECTING.value),
    )
    if counted.rowcount == 0:
        return Outcome.CLOSED
    connection.execute(
        "INSERT INTO submissions VALUES (?, ?, ?, ?)",
        (row.batch_id, row.tag, row.content_tag, row.sealed),
    )
    if row.token_tag is not None:
        connection.execute("INSERT INTO used_tokens VALUES (?, ?)", (row.batch_id, row.token_tag))
    return Outcome.STORED


def _token_used(connection: sqlite3.Connection, row: Row) -> bool:
    query = "SELECT 1 FROM used_tokens WHERE batch_id = ? AND token_tag = ?"
    return connection.execute(query, (row.batch_id, row.token_tag)).fetchone() is not None


def _set_state(connection: sqlite3.Connection, batch: StoredBatch, state: BatchState) -> None:
    changed = connection.execute(
        "UPDATE batches SET state = ? WHERE batch_id = ? AND state = ?",
        (state.value, batch.batch_id, batch.state.value),
    )
    if changed.rowcount != 1:
        raise BatchStateError(f"the batch is not {batch.state.value} any more")


def _submissions(connection: sqlite3.Connection, batch_id: BatchId) -> list[bytes]:
    query = "SELECT sealed FROM submissions WHERE batch_id = ?"
    return [row[0] for row in connection.execute(query, (batch_id,))]


def _replace_by_permuted(
    connection: sqlite3.Connection,
    batch: StoredBatch,
    state: BatchState,
    permuted: Permuted,
) -> None:
    _set_state(connection, batch, state)
    connection.executemany(
        "INSERT INTO permuted VALUES (?, ?, ?)",
        [(batch.batch_id, position, chunk) for position, chunk in enumerate(permuted.chunks)],
    )
    connection.execute("DELETE FROM submissions WHERE batch_id = ?", (batch.batch_id,))
    connection.execute("DELETE FROM used_tokens WHERE batch_id = ?", (batch.batch_id,))
    connection.execute(
        "UPDATE batches SET n_reports = ?, shuffle_seconds = ? WHERE batch_id = ?",
        (permuted.n_reports, permuted.seconds, batch.batch_id),
    )


def _permuted_chunk(
    connection: sqlite3.Connection, batch_id: BatchId, position: int
) -> bytes | None:
    row = connection.execute(
        "SELECT sealed FROM permuted WHERE batch_id = ? AND position = ?", (batch_id, position)
    ).fetchone()
    return None if row is None else bytes(row[0])


def _drop(connection: sqlite3.Connection, batch: StoredBatch, state: BatchState) -> None:
    [n_users] = connection.execute(
        "SELECT n_users FROM batches WHERE batch_id = ?", (batch.batch_id,)
    ).fetchone()
    if n_users != batch.n_users:
        raise BatchStateError(
            f"the batch had {batch.n_users} users when this was decided; it has {n_users}"
        )
    _set_state(connection, batch, state)
    connection.execute("DELETE FROM submissions WHERE batch_id = ?", (batch.batch_id,))
    connection.execute("DELETE FROM used_tokens WHERE batch_id = ?", (batch.batch_id,))
    connection.execute("DELETE FROM permuted WHERE batch_id = ?", (batch.batch_id,))
