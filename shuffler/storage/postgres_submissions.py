"""
Submissions in PostgreSQL: stored once, whichever front-end they reach.

Unique keys of the database find repeats. A transaction that stores holds the batch's lock shared
while it reads the batch's state; one that changes the state holds it alone. So the number of users
at the closing is the number of stored submissions, and tables are dropped only while unused.
Tags are inserted in ascending order, so that transactions never wait for each other in a circle.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, LiteralString
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from psycopg import Connection, Cursor

from common.crypto.batch_key import TAG_BYTES
from common.crypto.hpke import split_every
from common.errors import StorageError
from common.messages.batch import BatchId, BatchState
from common.messages.submission import Outcome
from shuffler.batch_states import UNPERMUTED_STATES
from shuffler.storage.group import TAGS, Arrival, Group, judge_group, merge_small
from shuffler.storage.postgres_connection import Uuids, check_unchanged, with_tables

_VALUE: Final = np.dtype(f"V{TAG_BYTES}")
_PAIR: Final = np.dtype([("tag", _VALUE), ("content", _VALUE)])
"""TAGS, with a tag in one piece."""


def lock_key(batch_id: BatchId) -> int:
    """Return the number of a batch's advisory lock. Batches with equal ones only wait longer."""
    return int.from_bytes(batch_id[:8], signed=True)


def append(connection: Connection, writer: UUID, arrival: Arrival) -> list[list[Outcome]]:
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
                with_tables("INSERT INTO {groups} VALUES (%b, %b)", batch_id),
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
        connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", (lock_key(batch_id),))
        row = connection.execute(
            "SELECT state, extract(epoch FROM clock_timestamp())::float8, readable_from "
            "FROM batches, schema_version WHERE batch_id = %s",
            (UUID(bytes=batch_id),),
        ).fetchone()
    if row is None:
        raise StorageError("the batch is not in this store: it is another database, or an old copy")
    state, now, readable_from = row
    check_unchanged(readable_from)
    return BatchState(state), now


def _judge(
    keys: "_BatchKeys",
    groups: Sequence[Group],
    tokens: Sequence[Sequence[bytes]],
    *,
    new: bool,
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
        composed = with_tables(statement, self._batch_id)
        return self._connection.execute(composed, parameters, binary=True)
