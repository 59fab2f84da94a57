"""
The shuffler's store in PostgreSQL, which the coordinator and all front-ends share.

A batch's submissions are rows of its own tables, which are dropped when it is permuted. They are
stored once, whichever front-end they reach: unique keys of the database find repeats. A transaction
that stores holds the batch's lock shared while it reads the batch's state; one that changes the
state holds it alone. So the number of users at the closing is the number of stored submissions, and
tables are dropped only while unused. Tags are inserted in ascending order, so that transactions
never wait for each other in a circle.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, LiteralString
from uuid import UUID, uuid4

import numpy as np
from numpy.typing import NDArray
from psycopg import Connection, Cursor, sql

from shuffledp.common.crypto.batch_key import TAG_BYTES
from shuffledp.common.crypto.hpke import split_every
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import StorageError
from shuffledp.common.messages.batch import BatchId, BatchState
from shuffledp.common.messages.submission import Outcome
from shuffledp.common.runtime.clock import Clock
from shuffledp.shuffler.batch_states import UNPERMUTED_STATES
from shuffledp.shuffler.metrics import StoreMetrics
from shuffledp.shuffler.storage import postgres_connection
from shuffledp.shuffler.storage.group import TAGS, Arrival, Group, judge_group, merge_small
from shuffledp.shuffler.storage.postgres_connection import SCHEMA, PostgresConnection, Uuids
from shuffledp.shuffler.storage.submission_store import GroupSource, StoredBatch, SubmissionStore

_ROWS_AT_ONCE: Final = 16
"""Groups fetched together; a group of a bulk call may have a megabyte."""
_VALUE: Final = np.dtype(f"V{TAG_BYTES}")
_PAIR: Final = np.dtype([("tag", _VALUE), ("content", _VALUE)])
"""TAGS, with a tag in one piece."""

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS {tags} (tag uuid PRIMARY KEY, content uuid NOT NULL);
CREATE TABLE IF NOT EXISTS {groups} (number bigint PRIMARY KEY, sealed bytea NOT NULL);
CREATE TABLE IF NOT EXISTS {tokens} (token uuid PRIMARY KEY);
ALTER TABLE {groups} ALTER COLUMN sealed SET STORAGE EXTERNAL;
"""
"""Tables of a batch. Sealed groups cannot be compressed."""
_KINDS: Final = ("tags", "groups", "tokens")


def _with_tables(statement: LiteralString, batch_id: BatchId) -> sql.Composed:
    """Return a statement with the names of a batch's tables for {tags}, {groups} and {tokens}."""
    names = {kind: sql.Identifier(f"{kind}_{batch_id.hex()}") for kind in _KINDS}
    return sql.SQL(statement).format(**names)


@dataclass(frozen=True, slots=True)
class PostgresGroups(GroupSource):
    """The groups in the shuffler's PostgreSQL database."""

    uri: str = field(repr=False)

    def read(self, batch_id: BatchId, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        query = "SELECT number, sealed FROM {groups} WHERE number BETWEEN %s AND %s ORDER BY number"
        with (
            postgres_connection.postgres_failures(),
            postgres_connection.connect(self.uri) as connection,
            connection.transaction(),
            connection.cursor("groups", binary=True) as cursor,
        ):
            cursor.itersize = _ROWS_AT_ONCE
            cursor.execute(_with_tables(query, batch_id), (first, last - 1))
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

    def __init__(self, uri: str, clock: Clock, metrics: StoreMetrics, *, coordinator: bool) -> None:
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
            return [_append(connection, self._writer, each) for each in arrivals]

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
        drop = _with_tables("DROP TABLE IF EXISTS {tags}, {groups}, {tokens}", batch_id)
        await self._connection.run(lambda connection: connection.execute(drop))


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
        connection.execute(_with_tables(_TABLES, BatchId(found)))


def _set_state(connection: Connection, batch: StoredBatch, state: BatchState) -> int:
    """Store a state once no transaction stores submissions; return the number of users."""
    lock = _lock_key(batch.batch_id)
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


def _lock_key(batch_id: BatchId) -> int:
    """Return the number of a batch's advisory lock. Batches with equal ones only wait longer."""
    return int.from_bytes(batch_id[:8], signed=True)


def _append(connection: Connection, writer: UUID, arrival: Arrival) -> list[list[Outcome]]:
    """Insert a batch's new submissions; return the outcomes."""
    batch_id, key, groups = arrival.batch_id, arrival.key, arrival.groups
    state, now = _locked_state(connection, batch_id)
    if state not in UNPERMUTED_STATES:
        return [[Outcome.CLOSED] * len(group) for group in groups]
    new = state is BatchState.COLLECTING and now < arrival.deadline
    keys = _BatchKeys(connection, batch_id)
    entries = np.concatenate([group.entries() for group in groups])
    if new and keys.insert_tags(entries) and not arrival.token_tags:
        outcomes = [[Outcome.STORED] * len(group) for group in groups]
    else:
        outcomes = _judge(keys, groups, arrival.token_tags, new=new)
    parts = [group.stored(found, key) for group, found in zip(groups, outcomes, strict=True)]
    stored = merge_small([part for part in parts if len(part)], key)
    if stored:
        with connection.cursor() as cursor:
            cursor.executemany(
                _with_tables("INSERT INTO {groups} VALUES (%b, %b)", batch_id),
                [(group.number, group.sealed) for group in stored],
            )
            cursor.execute(
                "INSERT INTO users VALUES (%s, %s, %s) "
                "ON CONFLICT (batch_id, writer) DO UPDATE SET n = users.n + excluded.n",
                (UUID(bytes=batch_id), writer, sum(map(len, stored))),
            )
    return outcomes


def _locked_state(connection: Connection, batch_id: BatchId) -> tuple[BatchState, float]:
    """
    Share the batch's lock; return the batch's state and the database's time.

    Two statements, since one reads what was committed when it began to wait for the lock.
    """
    with connection.pipeline():
        connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", (_lock_key(batch_id),))
        row = connection.execute(
            "SELECT state, extract(epoch FROM clock_timestamp())::float8, version, readable_from "
            "FROM batches, schema_version WHERE batch_id = %s",
            (UUID(bytes=batch_id),),
        ).fetchone()
    if row is None:
        raise StorageError("the batch is not in this store: it is another database, or an old copy")
    state, now, *versions = row
    SCHEMA.check(*versions)
    return BatchState(state), now


def _judge(
    keys: "_BatchKeys", groups: Sequence[Group], tokens: Sequence[Sequence[bytes]], *, new: bool
) -> list[list[Outcome]]:
    """Judge submissions whose tags were inserted; take back those that are not stored."""
    tags = {entry[:TAG_BYTES] for g in groups for entry in split_every(g.tags, TAGS.itemsize)}
    known = keys.stored_before(tags)
    unused: set[bytes] = set()
    if tokens and new:
        wanted = {
            token
            for group, of_group in zip(groups, tokens, strict=True)
            for entry, token in zip(split_every(group.tags, TAGS.itemsize), of_group, strict=True)
            if entry[:TAG_BYTES] not in known
        }
        unused = keys.insert_tokens(wanted)

    def use_token(group: int, index: int) -> bool:
        token = tokens[group][index]
        if token not in unused:
            return False
        unused.remove(token)
        return True

    outcomes = [
        judge_group(group.tags, known, partial(use_token, n) if tokens else None, new=new)
        for n, group in enumerate(groups)
    ]
    keys.keep_only(known)
    keys.free_tokens(unused)
    return outcomes


class _BatchKeys:
    """The unique keys of one batch in one transaction: tags of submissions, and of tokens."""

    def __init__(self, connection: Connection, batch_id: BatchId) -> None:
        self._connection = connection
        self._batch_id = batch_id
        self._given: tuple[bytes, bytes] = (b"", b"")
        """Tags and contents that were to be inserted, in ascending order of the tags."""
        self._inserted: bytes | None = b""
        """Tags that were inserted; None for all."""

    def insert_tags(self, entries: NDArray[np.void]) -> bool:
        """
        Insert the tags of submissions, shape (n,), dtype TAGS; return whether all are new.

        Of several with one id, the first is inserted.
        """
        pairs = entries.view(_PAIR)
        tags = pairs["tag"].tolist()
        pairs = pairs[sorted(range(len(tags)), key=tags.__getitem__)]
        self._given = (pairs["tag"].tobytes(), pairs["content"].tobytes())
        [(n_inserted, tags_inserted)] = self._execute(
            "WITH inserted AS (INSERT INTO {tags} SELECT * FROM unnest(%b, %b) "
            "ON CONFLICT DO NOTHING RETURNING tag) SELECT count(*), "
            "CASE WHEN count(*) < %b THEN string_agg(uuid_send(tag), '') END FROM inserted",
            *(*map(Uuids, self._given), len(pairs)),
        )
        self._inserted = None if n_inserted == len(pairs) else tags_inserted or b""
        return self._inserted is None

    def stored_before(self, tags: set[bytes]) -> dict[bytes, bytes]:
        """Return the contents of those tags that were stored before this transaction."""
        others = sorted(tags - self._contents().keys())
        if not others:
            return {}
        query = "SELECT uuid_send(tag), uuid_send(content) FROM {tags} WHERE tag = ANY(%b)"
        return dict(self._execute(query, Uuids(b"".join(others))))

    def insert_tokens(self, tokens: set[bytes]) -> set[bytes]:
        """Insert the tags of tokens; return those that were not used before."""
        statement = (
            "INSERT INTO {tokens} SELECT * FROM unnest(%b) ON CONFLICT DO NOTHING "
            "RETURNING uuid_send(token)"
        )
        given = Uuids(b"".join(sorted(tokens)))
        return {token for (token,) in self._execute(statement, given)}

    def keep_only(self, stored: Mapping[bytes, bytes]) -> None:
        """Take back inserted tags that are not stored, or store their contents instead."""
        inserted = self._contents()
        wrong = sorted(tag for tag, content in inserted.items() if stored.get(tag) != content)
        if not wrong:
            return
        self._execute("DELETE FROM {tags} WHERE tag = ANY(%b)", Uuids(b"".join(wrong)))
        kept = [tag for tag in wrong if tag in stored]
        self._execute(
            "INSERT INTO {tags} SELECT * FROM unnest(%b, %b)",
            Uuids(b"".join(kept)),
            Uuids(b"".join([stored[tag] for tag in kept])),
        )

    def free_tokens(self, tokens: set[bytes]) -> None:
        """Take back inserted tokens that no stored submission used."""
        if tokens:
            given = Uuids(b"".join(sorted(tokens)))
            self._execute("DELETE FROM {tokens} WHERE token = ANY(%b)", given)

    def _contents(self) -> dict[bytes, bytes]:
        given: dict[bytes, bytes] = {}
        tags, contents = (split_every(each, TAG_BYTES) for each in self._given)
        for tag, content in zip(tags, contents, strict=True):
            given.setdefault(tag, content)
        if self._inserted is None:
            return given
        return {tag: given[tag] for tag in split_every(self._inserted, TAG_BYTES)}

    def _execute(self, statement: LiteralString, *parameters: object) -> "Cursor[Any]":
        composed = _with_tables(statement, self._batch_id)
        return self._connection.execute(composed, parameters, binary=True)
