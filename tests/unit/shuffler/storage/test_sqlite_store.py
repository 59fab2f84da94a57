import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from common.crypto.batch_key import BatchKey
from common.errors import BatchStateError, DamagedStorageError
from common.messages.batch import BatchId, BatchState
from common.messages.submission import Outcome
from deploy.audit.harness.clock import ManualClock
from shuffler.storage.group import NUMBER_BITS, form_group, open_group, open_tags
from shuffler.storage.sqlite_store import SqliteStore
from shuffler.storage.submission_store import Arrival
from tests.support.tasks import published

_ID = BatchId(b"b" * 16)
_SIGNED = published().signed
_KEY = BatchKey(bytes(32))
_PAST = int(ManualClock().now())
_DEADLINE = _PAST + 1


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """A store with an empty batch."""
    opened = SqliteStore(tmp_path / "spool.sqlite", ManualClock())
    await opened.open_batch(_ID, _SIGNED)
    yield opened
    opened.close()


def _submission(number: int, content: bytes = b"c") -> bytes:
    return number.to_bytes(16, "big") + content * 60


async def _append(store: SqliteStore, *submissions: bytes, in_time: bool = True) -> list[Outcome]:
    """Store submissions in one call; return the outcomes in their order."""
    group, places = form_group(submissions, _KEY)
    arrival = Arrival(
        batch_id=_ID, key=_KEY, groups=[group], deadline=_DEADLINE if in_time else _PAST
    )
    [outcomes] = await store.append(arrival)
    return [outcomes[places.index(place)] for place in range(len(submissions))]


async def _users(store: SqliteStore) -> int:
    return (await store.get(_SIGNED.digest())).n_users


async def _stored(store: SqliteStore) -> list[bytes]:
    """Return the sealed reports of every submission, group by group."""
    found = store.group_source().read(_ID, 0, 1 << NUMBER_BITS)
    return [open_group(number, sealed, _KEY) for number, sealed in found]


@pytest.mark.parametrize("restarted", [False, True])
async def test_repeats_and_conflicts_are_distinguished(
    store: SqliteStore, tmp_path: Path, *, restarted: bool
) -> None:
    """This holds within one call, and for a process that knows only the file, after a crash."""
    await _append(store, _submission(0), _submission(1), _submission(5))
    used = SqliteStore(tmp_path / "spool.sqlite", ManualClock()) if restarted else store
    sent = [_submission(1), _submission(0, b"x"), _submission(2), _submission(2), _submission(3)]
    outcomes = await _append(used, *sent)

    new, repeated, conflict = Outcome.STORED, Outcome.REPEATED, Outcome.CONFLICT
    assert [repeated, conflict, new, repeated, new] == outcomes
    assert [repeated] * 5 == await _append(used, *map(_submission, (0, 1, 2, 3, 5)))
    assert 5 == await _users(used)
    assert sorted([b"c" * 180, b"c" * 120]) == sorted(await _stored(used))
    if restarted:
        used.close()


async def test_concurrent_calls_with_one_id_store_it_once(store: SqliteStore) -> None:
    """The first is stored, the others are repeats."""
    outcomes = await asyncio.gather(*(_append(store, _submission(n % 10)) for n in range(30)))

    assert [[Outcome.STORED]] * 10 + [[Outcome.REPEATED]] * 20 == outcomes
    assert 10 == await _users(store)


@pytest.mark.parametrize("closed", [False, True])
async def test_a_late_submission_is_only_compared(store: SqliteStore, *, closed: bool) -> None:
    """After the deadline or the closing, a retry is recognised and a new submission refused."""
    await _append(store, _submission(1))
    if closed:
        await store.set_state(await store.get(_SIGNED.digest()), BatchState.CLOSED)
    late = await _append(store, _submission(1), _submission(2), in_time=closed)

    assert [Outcome.REPEATED, Outcome.CLOSED] == late
    assert 1 == await _users(store)


async def test_a_failed_commit_stores_nothing(store: SqliteStore) -> None:
    """The call fails, and a retry of its submission is new."""
    await _append(store, _submission(0))

    def forbid(connection: sqlite3.Connection) -> None:
        refusal = "BEGIN SELECT RAISE(ABORT, 'no'); END"
        connection.execute(f"CREATE TRIGGER no BEFORE UPDATE ON batches {refusal}")

    await store._database.run(forbid)
    with pytest.raises(sqlite3.IntegrityError, match=r"^no$"):
        await _append(store, _submission(1))
    await store._database.run(lambda connection: connection.execute("DROP TRIGGER no"))

    assert 1 == await _users(store)
    assert [Outcome.STORED] == await _append(store, _submission(1))


async def test_submissions_do_not_keep_the_order_of_arrival(store: SqliteStore) -> None:
    """Keyed hashes sort a group, random numbers the groups; 40 stay in order with chance 1/40!."""
    for number in range(40):
        await _append(store, _submission(number, bytes([number])))
    alone = [reports[0] for reports in await _stored(store)]
    group, places = form_group([_submission(n, bytes([n])) for n in range(40)], _KEY)
    together = list(open_group(group.number, group.sealed, _KEY)[::60])

    assert list(range(40)) == sorted(alone) == sorted(together)
    assert list(range(40)) != alone
    assert list(range(40)) != together
    assert places == together


async def test_stored_groups_are_sorted_by_tag(store: SqliteStore, tmp_path: Path) -> None:
    """Calls may be new, partly new or merged; there is no row number."""
    await _append(store, *map(_submission, range(20)))
    await _append(store, *map(_submission, range(10, 40)))
    await asyncio.gather(*(_append(store, _submission(number)) for number in range(40, 60)))
    with closing(sqlite3.connect(tmp_path / "spool.sqlite")) as connection:
        rows = connection.execute("SELECT number, sealed_tags FROM submission_groups").fetchall()
        with pytest.raises(sqlite3.OperationalError, match="no such column: rowid"):
            connection.execute("SELECT rowid FROM submission_groups")
    tags = [np.frombuffer(open_tags(number, sealed, _KEY), dtype="S32") for number, sealed in rows]

    assert 60 == sum(map(len, tags))
    assert len(tags) < 30
    for one in tags:
        assert (one[1:] > one[:-1]).all()


async def test_the_database_has_no_other_columns(store: SqliteStore) -> None:
    """Submissions leave only sealed data, random numbers of groups, and tags of tokens."""
    query = "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_xinfo(t.name) c"
    found = await store._database.run(lambda connection: connection.execute(query).fetchall())

    assert {
        "batches": "batch_id task_digest task signature state n_users n_reports shuffle_seconds",
        "submission_groups": "batch_id number sealed_tags sealed",
        "used_tokens": "batch_id token_tag",
        "refusals": "batch_id outcome n",
        "schema_version": "version readable_from",
    } == {table: " ".join(name for owner, name in found if owner == table) for table, _ in found}


async def test_the_observer_gets_the_stored_number_of_users(tmp_path: Path) -> None:
    """The number may have grown since the batch was read; another state cannot change."""
    seen: list[object] = []
    store = SqliteStore(tmp_path / "spool.sqlite", ManualClock(), lambda *moved: seen.append(moved))
    batch = await store.open_batch(_ID, _SIGNED)
    await _append(store, _submission(1))
    await store.set_state(batch, BatchState.CLOSED)
    with pytest.raises(BatchStateError, match="no longer collecting"):
        await store.set_state(batch, BatchState.EXPIRED)
    store.close()

    assert [(_ID, BatchState.COLLECTING, BatchState.CLOSED, 1)] == seen


async def test_batches_in_one_commit_are_separate(store: SqliteStore) -> None:
    """The same id and bytes in two batches are two submissions."""
    other = BatchId(b"o" * 16)
    batch = await store.open_batch(other, published().signed)
    arrivals = [
        Arrival(
            batch_id=batch_id,
            key=_KEY,
            groups=[form_group([_submission(n)], _KEY)[0]],
            deadline=_DEADLINE,
        )
        for n in (1, 2)
        for batch_id in (_ID, other)
    ]
    outcomes = await asyncio.gather(*(store.append(arrival) for arrival in arrivals))

    assert [[[Outcome.STORED]]] * 4 == outcomes
    assert (2, 2) == (await _users(store), (await store.get(batch.signed.digest())).n_users)


async def test_a_damaged_page_loses_no_submission_unnoticed(tmp_path: Path) -> None:
    """Reading fails, or returns every group unchanged, or the number of users shows the loss."""
    path = tmp_path / "spool.sqlite"
    store = SqliteStore(path, ManualClock())
    await store.open_batch(_ID, _SIGNED)
    for number in range(60):
        await _append(store, *(_submission(1000 * number + n, bytes([number])) for n in range(9)))
    whole = await _stored(store)
    store.close()
    intact = path.read_bytes()
    rng, refusals = np.random.default_rng(1), 0
    for _ in range(60):
        damaged = bytearray(intact)
        start = int(rng.integers(2 * 4096, len(intact) - 2048))
        damaged[start : start + 2048] = rng.bytes(2048)
        path.write_bytes(damaged)
        again = SqliteStore(path, ManualClock())
        try:
            stored, users = await _stored(again), await _users(again)
        except DamagedStorageError:
            refusals += 1
        else:
            assert whole == stored or sum(map(len, stored)) < 60 * users
        again.close()

    assert refusals > 30
