"""
The shuffler's store in PostgreSQL, which the coordinator and all front-ends share.

A batch's submissions are rows of its own tables, which are dropped when it is permuted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID, uuid4

from psycopg import Connection

from common.crypto.signing import SignedTask
from common.messages.batch import BatchId, BatchState
from common.messages.submission import Outcome
from common.runtime.clock import Clock
from shuffler.batch_states import UNPERMUTED_STATES
from shuffler.metrics import StoreMetrics
from shuffler.storage import postgres_submissions as submission_tables
from shuffler.storage.group import Arrival
from shuffler.storage.postgres_connection import (
    PostgresConnection,
    connect,
    create_tables,
    drop_tables,
    postgres_failures,
    with_tables,
)
from shuffler.storage.submission_store import (
    StoredBatch,
    SubmissionStore,
)

_ROWS_AT_ONCE: Final = 16
"""Groups fetched together; a group of a bulk call may have a megabyte."""


@dataclass(frozen=True, slots=True)
class PostgresGroups:
    """The groups in the shuffler's PostgreSQL database."""

    uri: str = field(repr=False)

    def read(self, batch_id: BatchId, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Yield a batch's groups; see `GroupSource.read`."""
        query = "SELECT number, sealed FROM {groups} WHERE number BETWEEN %s AND %s ORDER BY number"
        with (
            postgres_failures(),
            connect(self.uri) as connection,
            connection.transaction(),
            connection.cursor("groups", binary=True) as cursor,
        ):
            cursor.itersize = _ROWS_AT_ONCE
            cursor.execute(with_tables(query, batch_id), (first, last - 1))
            yield from cursor


_N_USERS: Final = (
    "(SELECT coalesce(sum(n), 0)::bigint FROM users WHERE users.batch_id = batches.batch_id)"
)


class PostgresStore(SubmissionStore):
    """The shuffler's store in PostgreSQL; see SubmissionStore."""

    BATCHES = (
        f"SELECT uuid_send(batch_id), task_digest, task, signature, state, {_N_USERS}, n_reports, "  # noqa: S608  # fixed text
        "array_to_string(by_length, ' '), shuffle_seconds, 0, part_hashes, 0 FROM batches"
    )
    ID = "encode(?, 'hex')::uuid"
    STATES = "SELECT uuid_send(batch_id), state FROM batches"
    REFUSALS = (
        "SELECT uuid_send(batch_id), outcome, sum(n)::bigint FROM refusals "
        "GROUP BY batch_id, outcome"
    )

    def __init__(
        self,
        uri: str,
        clock: Clock,
        metrics: StoreMetrics,
        *,
        coordinator: bool,
    ) -> None:
        """
        Connect. Only one coordinator can be connected, which alone begins and moves batches.

        Deadlines are judged by the database's clock; `clock` measures durations.

        Raises SettingsError if the server cannot be used; see PostgresConnection.
        """
        self._uri = uri
        self._writer = uuid4()
        self._connection = PostgresConnection(uri, clock, metrics, coordinator=coordinator)
        super().__init__(self._connection)
        self._refused: dict[BatchId, Counter[Outcome]] = {}
        """Counts that this process has stored."""

    async def open_batch(self, batch_id: BatchId, signed: SignedTask) -> StoredBatch:
        await self._connection.run(_open_batch, batch_id, signed)
        return await self.get(signed.digest())

    def group_source(self) -> PostgresGroups:
        return PostgresGroups(self._uri)

    async def _append(self, arrivals: Sequence[Arrival]) -> list[list[list[Outcome]]]:
        def append(connection: Connection) -> list[list[list[Outcome]]]:
            return [submission_tables.append(connection, self._writer, each) for each in arrivals]

        return await self._connection.run(append)

    async def add_refusals(self, counts: Mapping[BatchId, Counter[Outcome]]) -> None:
        """Add to the counts; repeated after a lost answer, they are still counted once."""
        totals = {
            batch_id: self._refused.get(batch_id, Counter()) + counted
            for batch_id, counted in counts.items()
        }
        await self._connection.run(_save_refusals, self._writer, totals)
        self._refused |= totals

    async def _store_state(self, batch: StoredBatch, state: BatchState) -> int:
        return await self._connection.run(_set_state, batch, state)

    async def clean_up(self, batch_id: BatchId) -> None:
        await self._connection.run(drop_tables, batch_id)


def _open_batch(connection: Connection, batch_id: BatchId, signed: SignedTask) -> None:
    connection.execute(
        "INSERT INTO batches (batch_id, task_digest, task, signature, state) "
        "VALUES (%s, %s, %s, %s, %s) ON CONFLICT (task_digest) DO NOTHING",
        (
            *(UUID(bytes=batch_id), signed.digest(), signed.task_bytes, signed.signature),
            BatchState.COLLECTING.value,
        ),
    )
    query = "SELECT uuid_send(batch_id), state FROM batches WHERE task_digest = %s"
    [(found, state)] = connection.execute(query, (signed.digest(),), binary=True)
    if state in UNPERMUTED_STATES:
        create_tables(connection, BatchId(found))


def _set_state(connection: Connection, batch: StoredBatch, state: BatchState) -> int:
    """Store a state once no transaction stores submissions; return the number of users."""
    lock = submission_tables.lock_key(batch.batch_id)
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
    changed = connection.execute(
        "UPDATE batches SET state = %s, n_reports = %s, by_length = %s, shuffle_seconds = %s, "  # noqa: S608  # fixed text
        f"part_hashes = %s WHERE batch_id = %s AND state = %s RETURNING {_N_USERS}",
        (
            *(state.value, batch.n_reports, list(batch.by_length), batch.shuffle_seconds),
            *(batch.part_hashes, UUID(bytes=batch.batch_id), batch.state.value),
        ),
    ).fetchone()
    return batch.check_moved(changed, state)


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
