"""The shuffler's store in SQLite: what it does beyond the tests that both stores pass."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from shuffledp.common.errors import DamagedStorageError
from shuffledp.common.messages.submission import Outcome
from shuffledp.shuffler.storage.group import open_tags
from shuffledp.shuffler.storage.sqlite_store import SqliteStore
from tests.support.stores import BATCH, KEY, SIGNED, append, sqlite_store, stored, submission, users


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """A store with an empty batch."""
    opened = sqlite_store(tmp_path / "spool.sqlite")
    await opened.open_batch(BATCH, SIGNED)
    yield opened
    opened.close()


async def test_a_failed_commit_stores_nothing(store: SqliteStore) -> None:
    """The call fails, and a retry of its submission is new."""
    await append(store, submission(0))

    def forbid(connection: sqlite3.Connection) -> None:
        refusal = "BEGIN SELECT RAISE(ABORT, 'no'); END"
        connection.execute(f"CREATE TRIGGER no BEFORE UPDATE ON batches {refusal}")

    await store._database.run(forbid)
    with pytest.raises(sqlite3.IntegrityError, match=r"^no$"):
        await append(store, submission(1))
    await store._database.run(lambda connection: connection.execute("DROP TRIGGER no"))

    assert 1 == await users(store)
    assert [Outcome.STORED] == await append(store, submission(1))


async def test_stored_groups_are_sorted_by_tag(store: SqliteStore, tmp_path: Path) -> None:
    """Calls may be new, partly new or merged; there is no row number."""
    await append(store, *map(submission, range(20)))
    await append(store, *map(submission, range(10, 40)))
    await asyncio.gather(*(append(store, submission(number)) for number in range(40, 60)))
    with closing(sqlite3.connect(tmp_path / "spool.sqlite")) as connection:
        rows = connection.execute("SELECT number, sealed_tags FROM submission_groups").fetchall()
        with pytest.raises(sqlite3.OperationalError, match="no such column: rowid"):
            connection.execute("SELECT rowid FROM submission_groups")
    tags = [np.frombuffer(open_tags(number, sealed, KEY), dtype="S32") for number, sealed in rows]

    assert 60 == sum(map(len, tags))
    assert len(tags) < 30
    for one in tags:
        assert (one[1:] > one[:-1]).all()


async def test_the_database_has_no_other_columns(store: SqliteStore) -> None:
    """Submissions leave only sealed data, random numbers of groups, and tags of tokens."""
    query = "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_xinfo(t.name) c"
    found = await store._database.run(lambda connection: connection.execute(query).fetchall())

    assert {
        "batches": "batch_id task_digest task signature state n_users n_reports shuffle_seconds "
        "by_length part_hashes",
        "submission_groups": "batch_id number sealed_tags sealed",
        "used_tokens": "batch_id token_tag",
        "refusals": "batch_id outcome n",
        "schema_version": "version readable_from",
    } == {table: " ".join(name for owner, name in found if owner == table) for table, _ in found}


async def test_a_damaged_page_loses_no_submission_unnoticed(tmp_path: Path) -> None:
    """Reading fails, or returns every group unchanged, or the number of users shows the loss."""
    path = tmp_path / "spool.sqlite"
    store = sqlite_store(path)
    await store.open_batch(BATCH, SIGNED)
    for number in range(60):
        await append(store, *(submission(1000 * number + n, bytes([number])) for n in range(9)))
    whole = stored(store)
    store.close()
    intact = path.read_bytes()
    rng, refusals = np.random.default_rng(1), 0
    for _ in range(60):
        damaged = bytearray(intact)
        start = int(rng.integers(2 * 4096, len(intact) - 2048))
        damaged[start : start + 2048] = rng.bytes(2048)
        path.write_bytes(damaged)
        again = sqlite_store(path)
        try:
            found, n_users = stored(again), await users(again)
        except DamagedStorageError:
            refusals += 1
        else:
            assert whole == found or sum(map(len, found)) < 60 * n_users
        again.close()

    assert refusals > 30
