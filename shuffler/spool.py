"""
Submissions that outlive a crash: durable before they are acknowledged, unreadable after the batch.

They lie in groups under the batch's key, numbered at random; beside this file each batch has a
folder for its buckets and its permuted order. SQLite's log keeps the order of commits for a while:
without the key that is an order of random bytes, and nothing on the disk relates a submission to a
place in the permuted batch.
"""

import asyncio
import sqlite3
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from common.batch import BatchId, BatchState
from common.errors import BatchStateError, UnknownTaskError
from common.runtime.database import Database
from common.signing import SignedTask
from common.submission import Outcome
from common.task_digest import TaskDigest
from shuffler.admission import Admission
from shuffler.batch_files import BatchFiles, remove_folder, sweep_folders
from shuffler.batch_key import BatchKey
from shuffler.group import TAGS, Group, merge_small, open_tags

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
CREATE TABLE IF NOT EXISTS submission_groups (
    batch_id BLOB NOT NULL REFERENCES batches,
    number INTEGER NOT NULL,
    sealed_tags BLOB NOT NULL,
    sealed BLOB NOT NULL,
    PRIMARY KEY (batch_id, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS used_tokens (
    batch_id BLOB NOT NULL REFERENCES batches,
    token_tag BLOB NOT NULL,
    PRIMARY KEY (batch_id, token_tag)
) WITHOUT ROWID;
"""

_OPEN_STATES: Final = frozenset({BatchState.COLLECTING, BatchState.CLOSED})
"""States in which submissions are still held."""
_PERMUTED_STATES: Final = frozenset(
    {BatchState.PERMUTED, BatchState.DELIVERED, BatchState.QUARANTINED}
)
"""States in which the permuted order is held."""
_DROPPED_AT_ONCE: Final = 64
"""Groups deleted in one transaction, so that nothing waits long for it."""
_LOADED_AT_ONCE: Final = 2**18
"""Submissions whose tags are held at once when all are read."""


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
class Arrival:
    """Groups of one call, to be stored together."""

    batch_id: BatchId
    key: BatchKey
    groups: Sequence[Group]
    in_time: bool
    """Came before the deadline. A late one is only compared with what is stored."""
    token_tags: Sequence[Sequence[bytes]] = ()
    """
    Of each group, the keyed hash of each submission's token, where tokens are asked for: each
    counts once a batch. Nothing where they are not.
    """


class Spool:
    """The shuffler's files."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, _SCHEMA)
        self._folders = path.with_name("batches")
        self._waiting: list[tuple[Arrival, asyncio.Future[list[list[Outcome]]]]] = []
        self._committing: asyncio.Task[None] | None = None
        self._admissions: dict[BatchId, Admission] = {}

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

    def files(self, batch_id: BatchId, key: BatchKey) -> BatchFiles:
        """Give the folder of a batch's buckets and permuted order."""
        return BatchFiles(self._folders / batch_id.hex(), key)

    # --- submissions ------------------------------------------------------------------------------

    async def append(self, arrival: Arrival) -> list[list[Outcome]]:
        """
        Store what is new of some groups; when this returns it is on the disk.

        Calls that come while a commit is under way are committed together (group commit).

        Returns:
            What became of each submission, group by group, in the groups' own order.

        Raises:
            StorageError: Nothing of the call was stored; it may be made again.
        """
        future: asyncio.Future[list[list[Outcome]]] = asyncio.get_running_loop().create_future()
        self._waiting.append((arrival, future))
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit_waiting())
        return await future

    async def _commit_waiting(self) -> None:
        while self._waiting:
            together, self._waiting = self._waiting, []
            arrivals = [arrival for arrival, _ in together]
            try:
                judged, stored = await self._database.run(_append, arrivals, self._admissions)
            except Exception as error:  # noqa: BLE001  # whoever waits is told
                for _, future in together:
                    if not future.done():
                        future.set_exception(error)
                continue
            for batch_id, group in stored:  # committed: only now may a repeat be called one
                self._admissions[batch_id].remember(group)
            for (_, future), outcomes in zip(together, judged, strict=True):
                if not future.done():
                    future.set_result(outcomes)

    async def groups(self, batch_id: BatchId, after: int, at_most: int) -> list[tuple[int, bytes]]:
        """List stored groups, number and sealed reports, from the number after `after` on."""
        return await self._database.run(_groups, batch_id, after, at_most)

    # --- what becomes of a batch ------------------------------------------------------------------

    async def set_state(self, batch: StoredBatch, state: BatchState) -> None:
        """Record a batch's next state."""
        await self._database.run(_set_state, batch, state)

    async def record_permuted(
        self, batch: StoredBatch, state: BatchState, n_reports: int, seconds: float
    ) -> None:
        """
        Record that the permuted order is on the disk, then drop the submissions.

        A crash in between leaves submissions that nothing reads any more; `sweep` drops them.
        """
        await self._database.run(_record_permuted, batch, state, n_reports, seconds)
        await self._drop_submissions(batch.batch_id)

    async def drop(self, batch: StoredBatch, state: BatchState) -> None:
        """
        Record a batch's last state, and delete whatever is held of it.

        Raises:
            BatchStateError: State or number of users are not those that were read: a submission
                was committed meanwhile, and what was decided without it may not hold.
        """
        await self._database.run(_set_last_state, batch, state)
        await self._drop_submissions(batch.batch_id)
        await asyncio.to_thread(remove_folder, self._folders / batch.batch_id.hex())

    async def _drop_submissions(self, batch_id: BatchId) -> None:
        self._admissions.pop(batch_id, None)
        while await self._database.run(_drop_some, batch_id):
            pass

    async def sweep(self) -> None:
        """
        Remove what a crash left behind: buckets, orders that no state speaks of, submissions of
        batches that are past them. Run once, at start.
        """
        stored = await self.all()
        for batch in stored:
            if batch.state not in _OPEN_STATES:
                await self._drop_submissions(batch.batch_id)
        kept = {batch.batch_id.hex() for batch in stored if batch.state in _PERMUTED_STATES}
        await asyncio.to_thread(sweep_folders, self._folders, kept)

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


def _append(
    connection: sqlite3.Connection,
    arrivals: Sequence[Arrival],
    admissions: dict[BatchId, Admission],
) -> tuple[list[list[list[Outcome]]], list[tuple[BatchId, Group]]]:
    """Judge and insert; give the outcomes of each arrival, and the groups that were stored."""
    judged: list[list[list[Outcome]]] = [[]] * len(arrivals)
    stored: list[tuple[BatchId, Group]] = []
    for batch_id in dict.fromkeys(arrival.batch_id for arrival in arrivals):
        places = [n for n, arrival in enumerate(arrivals) if arrival.batch_id == batch_id]
        ours = [arrivals[place] for place in places]
        outcomes, groups = _append_to(connection, ours, admissions)
        for place, became in zip(places, outcomes, strict=True):
            judged[place] = became
        stored += [(batch_id, group) for group in groups]
    return judged, stored


def _append_to(
    connection: sqlite3.Connection,
    arrivals: Sequence[Arrival],
    admissions: dict[BatchId, Admission],
) -> tuple[list[list[list[Outcome]]], list[Group]]:
    """Append to one batch."""
    batch_id, key = arrivals[0].batch_id, arrivals[0].key
    state = _state(connection, batch_id)
    if state not in _OPEN_STATES:
        return [[[Outcome.CLOSED] * len(group) for group in one.groups] for one in arrivals], []
    if batch_id not in admissions:
        admissions[batch_id] = _load_admission(connection, batch_id, key)

    def read(number: int) -> bytes:
        query = "SELECT sealed_tags FROM submission_groups WHERE batch_id = ? AND number = ?"
        [sealed_tags] = connection.execute(query, (batch_id, number)).fetchone()
        return open_tags(number, sealed_tags, key)

    collects = state is BatchState.COLLECTING
    groups = [group for arrival in arrivals for group in arrival.groups]
    new_ones = [collects and arrival.in_time for arrival in arrivals for _ in arrival.groups]
    outcomes = admissions[batch_id].judge(groups, new_ones, read)
    _use_tokens(connection, arrivals, outcomes)
    parts = [_new_part(group, became, key) for group, became in zip(groups, outcomes, strict=True)]
    stored = merge_small([part for part in parts if len(part)], key)
    _insert(connection, batch_id, stored, key)
    rest = iter(outcomes)
    return [[next(rest) for _ in arrival.groups] for arrival in arrivals], stored


def _use_tokens(
    connection: sqlite3.Connection, arrivals: Sequence[Arrival], outcomes: list[list[Outcome]]
) -> None:
    """Take note of the tokens of what is new; what comes with a used one is not stored."""
    rest = iter(outcomes)
    for arrival in arrivals:
        became = [next(rest) for _ in arrival.groups]
        for of_group, token_tags in zip(became, arrival.token_tags, strict=False):
            for place, tag in enumerate(token_tags):
                if of_group[place] is Outcome.STORED:
                    used = connection.execute(
                        "INSERT OR IGNORE INTO used_tokens VALUES (?, ?)", (arrival.batch_id, tag)
                    )
                    if used.rowcount == 0:
                        of_group[place] = Outcome.TOKEN_USED


def _new_part(group: Group, outcomes: list[Outcome], key: BatchKey) -> Group:
    if outcomes.count(Outcome.STORED) == len(outcomes):
        return group
    return group.only(np.array([outcome is Outcome.STORED for outcome in outcomes]), key)


def _insert(
    connection: sqlite3.Connection, batch_id: BatchId, groups: Sequence[Group], key: BatchKey
) -> None:
    connection.executemany(
        "INSERT INTO submission_groups VALUES (?, ?, ?, ?)",
        [(batch_id, group.number, group.sealed_tags(key), group.sealed) for group in groups],
    )
    connection.execute(
        "UPDATE batches SET n_users = n_users + ? WHERE batch_id = ?",
        (sum(len(group) for group in groups), batch_id),
    )


def _state(connection: sqlite3.Connection, batch_id: BatchId) -> BatchState:
    query = "SELECT state FROM batches WHERE batch_id = ?"
    return BatchState(connection.execute(query, (batch_id,)).fetchone()[0])


def _load_admission(connection: sqlite3.Connection, batch_id: BatchId, key: BatchKey) -> Admission:
    """Read the tags of every stored group: a second or two for a million submissions."""
    query = "SELECT number, sealed_tags FROM submission_groups WHERE batch_id = ?"
    admission, tags, numbers = Admission(), bytearray(), array("Q")
    for number, sealed_tags in connection.execute(query, (batch_id,)):
        opened = open_tags(number, sealed_tags, key)
        tags += opened
        numbers.extend([number] * (len(opened) // TAGS.itemsize))
        if len(numbers) >= _LOADED_AT_ONCE:
            admission.remember_tags(tags, np.array(numbers, dtype=np.uint64))
            tags, numbers = bytearray(), array("Q")
    admission.remember_tags(tags, np.array(numbers, dtype=np.uint64))
    return admission


def _groups(
    connection: sqlite3.Connection, batch_id: BatchId, after: int, at_most: int
) -> list[tuple[int, bytes]]:
    query = (
        "SELECT number, sealed FROM submission_groups WHERE batch_id = ? AND number > ? "
        "ORDER BY number LIMIT ?"
    )
    return connection.execute(query, (batch_id, after, at_most)).fetchall()


def _set_state(connection: sqlite3.Connection, batch: StoredBatch, state: BatchState) -> None:
    changed = connection.execute(
        "UPDATE batches SET state = ? WHERE batch_id = ? AND state = ?",
        (state.value, batch.batch_id, batch.state.value),
    )
    if changed.rowcount != 1:
        raise BatchStateError(f"the batch is not {batch.state.value} any more")


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
            f"the batch had {batch.n_users} users when this was decided; it has {n_users}"
        )
    _set_state(connection, batch, state)


def _drop_some(connection: sqlite3.Connection, batch_id: BatchId) -> bool:
    """Delete some groups of a batch; say whether there were any."""
    dropped = connection.execute(
        "DELETE FROM submission_groups WHERE batch_id = ? AND number IN "
        "(SELECT number FROM submission_groups WHERE batch_id = ? LIMIT ?)",
        (batch_id, batch_id, _DROPPED_AT_ONCE),
    )
    if dropped.rowcount == 0:
        connection.execute("DELETE FROM used_tokens WHERE batch_id = ?", (batch_id,))
    return dropped.rowcount > 0
