"""
The shuffler's store in PostgreSQL, which the coordinator and all front-ends share.

A batch's submissions are rows of its own tables, which are dropped when it is permuted.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID, uuid4

from psycopg import Connection

from common.crypto.signing import SignedTask
from common.errors import BatchStateError, DamagedStorageError, UnknownTaskError
from common.messages.batch import BatchId, BatchState
from common.messages.submission import Outcome
from common.runtime.clock import Clock
from common.task_digest import TaskDigest
from shuffler.metrics import StoreMetrics
from shuffler.storage import postgres_submissions as submission_tables
from shuffler.storage.group_commit import GroupCommit
from shuffler.storage.postgres_connection import PostgresConnection
from shuffler.storage.postgres_groups import PostgresGroups
from shuffler.storage.postgres_schema import create_tables, drop_tables
from shuffler.storage.submission_store import (
    OPEN_STATES,
    Arrival,
    Observer,
    StoredBatch,
    SubmissionStore,
)

_STATES: Final = {state.value: state for state in BatchState}
_OUTCOMES: Final = {outcome.value: outcome for outcome in Outcome}


class PostgresStore(SubmissionStore):
    """The shuffler's store in PostgreSQL; see SubmissionStore."""

    def __init__(
        self,
        uri: str,
        clock: Clock,
        metrics: StoreMetrics,
        observer: Observer = lambda *_: None,
        *,
        coordinator: bool,
    ) -> None:
        """
        Connect. Only one coordinator can be connected, which alone begins and moves batches.

        Deadlines are judged by the database's clock; `clock` measures durations.

        Raises SettingsError if the server cannot be used; see PostgresConnection.
        """
        self._uri = uri
        super().__init__(observer)
        self._writer = uuid4()
        self._connection = PostgresConnection(uri, clock, metrics, coordinator=coordinator)
        self._commits = GroupCommit(self._commit)
        self._refused: dict[BatchId, Counter[Outcome]] = {}
        """Counts that this process has stored."""

    async def open_batch(self, batch_id: BatchId, signed: SignedTask) -> StoredBatch:
        """Begin the batch of a task; see `SubmissionStore.open_batch`."""
        return await self._connection.run(_open_batch, batch_id, signed)

    async def get(self, digest: TaskDigest) -> StoredBatch:
        """Look up the batch of a task; see `SubmissionStore.get`."""
        return await self._connection.run(_get, digest)

    async def read(self, batch_id: BatchId) -> StoredBatch:
        """Read one batch's row; see `SubmissionStore.read`."""
        return await self._connection.run(_read, batch_id)

    async def states(self) -> dict[BatchId, BatchState | None]:
        """Return the state of every batch; see `SubmissionStore.states`."""
        return await self._connection.run(_states)

    def group_source(self) -> PostgresGroups:
        """Return a reader of the groups for worker processes."""
        return PostgresGroups(self._uri)

    async def append(self, arrival: Arrival) -> list[list[Outcome]]:
        """Store new submissions durably; see `SubmissionStore.append`."""
        return await self._commits.append(arrival)

    async def _commit(self, arrivals: Sequence[Arrival]) -> list[list[list[Outcome]]]:
        return await self._connection.run(submission_tables.append, self._writer, arrivals)

    async def add_refusals(self, counts: Mapping[BatchId, Counter[Outcome]]) -> None:
        """Add to the counts; repeated after a lost answer, they are still counted once."""
        totals = {
            batch_id: self._refused.get(batch_id, Counter()) + counted
            for batch_id, counted in counts.items()
        }
        await self._connection.run(_save_refusals, self._writer, totals)
        self._refused |= totals

    async def refusals(self) -> dict[BatchId, Counter[Outcome]]:
        """Return every batch's counts, of all processes."""
        return await self._connection.run(_refusals)

    async def _store_state(self, batch: StoredBatch, state: BatchState, *, same_users: bool) -> int:
        return await self._connection.run(_set_state, batch, state, same_users=same_users)

    async def clean_up(self, batch_id: BatchId) -> None:
        """Drop a finished batch's tables."""
        await self._connection.run(drop_tables, batch_id)

    def close(self) -> None:
        """Finish all queued transactions, and disconnect."""
        self._connection.close()


def _open_batch(connection: Connection, batch_id: BatchId, signed: SignedTask) -> StoredBatch:
    connection.execute(
        "INSERT INTO batches (batch_id, task_digest, task, signature, state) "
        "VALUES (%s, %s, %s, %s, %s) ON CONFLICT (task_digest) DO NOTHING",
        (
            UUID(bytes=batch_id),
            signed.digest(),
            signed.task_bytes,
            signed.signature,
            BatchState.COLLECTING.value,
        ),
    )
    batch = _get(connection, signed.digest())
    if batch.state in OPEN_STATES:
        create_tables(connection, batch.batch_id)
    return batch


_SELECT: Final = (
    "SELECT batch_id, task_digest, task, signature, state, n_reports, by_length, "
    "shuffle_seconds, "
    "(SELECT coalesce(sum(n), 0)::bigint FROM users WHERE users.batch_id = batches.batch_id) "
    "FROM batches "
)


def _get(connection: Connection, digest: TaskDigest) -> StoredBatch:
    query = _SELECT + "WHERE task_digest = %s"
    return _stored(connection.execute(query, (digest,), binary=True).fetchone())


def _read(connection: Connection, batch_id: BatchId) -> StoredBatch:
    query = _SELECT + "WHERE batch_id = %s"
    return _stored(connection.execute(query, (UUID(bytes=batch_id),), binary=True).fetchone())


def _stored(row: tuple[Any, ...] | None) -> StoredBatch:
    if row is None:
        raise UnknownTaskError("this shuffler has no batch for this task")
    batch_id, digest, task, signature, state, n_reports, by_length, seconds, n_users = row
    signed = SignedTask(task_bytes=task, signature=signature)
    if signed.digest() != digest:
        raise DamagedStorageError("a task in the shuffler's store is damaged")
    if state not in _STATES:
        raise DamagedStorageError("the state of a batch in the store is of a later version")
    return StoredBatch(
        batch_id=BatchId(batch_id.bytes),
        signed=signed,
        state=_STATES[state],
        n_users=n_users,
        n_reports=n_reports,
        by_length=tuple(by_length),
        shuffle_seconds=seconds,
    )


def _states(connection: Connection) -> dict[BatchId, BatchState | None]:
    rows = connection.execute("SELECT batch_id, state FROM batches")
    return {BatchId(batch_id.bytes): _STATES.get(state) for batch_id, state in rows}


def _set_state(
    connection: Connection, batch: StoredBatch, state: BatchState, *, same_users: bool
) -> int:
    """Store a state once no transaction stores submissions; return the number of users."""
    lock = submission_tables.lock_key(batch.batch_id)
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
    key = UUID(bytes=batch.batch_id)
    changed = connection.execute(
        "UPDATE batches SET state = %s, n_reports = %s, by_length = %s, shuffle_seconds = %s "
        "WHERE batch_id = %s AND state = %s",
        (
            state.value,
            batch.n_reports,
            list(batch.by_length),
            batch.shuffle_seconds,
            key,
            batch.state.value,
        ),
    )
    if changed.rowcount != 1:
        raise BatchStateError(f"the batch is no longer {batch.state.value}")
    n_users = _read(connection, batch.batch_id).n_users
    if same_users and n_users != batch.n_users:
        raise BatchStateError(
            f"the batch had {batch.n_users} users when it was read; it now has {n_users}"
        )
    return n_users


def _save_refusals(
    connection: Connection, writer: UUID, totals: Mapping[BatchId, Counter[Outcome]]
) -> None:
    """Store one process's counts in place of its earlier ones."""
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO refusals VALUES (%s, %s, %s, %s) "
            "ON CONFLICT (batch_id, writer, outcome) DO UPDATE SET n = excluded.n",
            [
                (UUID(bytes=batch_id), writer, outcome.value, n)
                for batch_id, counted in totals.items()
                for outcome, n in counted.items()
            ],
        )


def _refusals(connection: Connection) -> dict[BatchId, Counter[Outcome]]:
    counts: dict[BatchId, Counter[Outcome]] = {}
    query = "SELECT batch_id, outcome, sum(n)::bigint FROM refusals GROUP BY batch_id, outcome"
    for batch_id, outcome, n in connection.execute(query):
        if outcome in _OUTCOMES:
            counts.setdefault(BatchId(batch_id.bytes), Counter())[_OUTCOMES[outcome]] = n
    return counts
