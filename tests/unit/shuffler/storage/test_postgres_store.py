"""The shuffler's store in PostgreSQL: what it does beyond the tests that both stores pass."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from typing import Final

import numpy as np
import psycopg
import pytest

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import SettingsError, StorageError
from shuffledp.common.messages.batch import BatchId, BatchState
from shuffledp.common.messages.submission import Outcome
from shuffledp.shuffler.storage.postgres_store import PostgresStore
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.stores import BATCH, SIGNED, append, postgres_store, stored, submission, users
from tests.support.tasks import published

_SENT: Final = 1000
_LOST: Final = "does not answer, or the connection is lost|is read-only: a standby"


@pytest.fixture
async def stores(postgres: PostgresServer) -> AsyncIterator[list[PostgresStore]]:
    """Yield the stores of a coordinator, with a batch, and of two front-ends."""
    uri = postgres.database()
    opened = [postgres_store(uri)]
    opened += [postgres_store(uri, coordinator=False) for _ in range(2)]
    await opened[0].open_batch(BATCH, SIGNED)
    yield opened
    for store in opened:
        store.close()


async def test_one_id_or_token_is_stored_once_whichever_front_end_it_reaches(
    stores: list[PostgresStore],
) -> None:
    """All at the same time: one is stored, the others are repeats, conflicts or used tokens."""
    for number in range(20):
        same = [append(store, submission(number)) for store in stores]
        other = [append(store, submission(number, b"x")) for store in stores]
        outcomes = Counter(outcome for [outcome] in await asyncio.gather(*same, *other))
        assert {Outcome.STORED: 1, Outcome.REPEATED: 2, Outcome.CONFLICT: 3} == outcomes
        token = [b"token %d" % number]
        uses = [
            append(store, submission(1000 + 10 * number + n), tokens=token)
            for n, store in enumerate(stores)
        ]
        outcomes = Counter(outcome for [outcome] in await asyncio.gather(*uses))
        assert {Outcome.STORED: 1, Outcome.TOKEN_USED: 2} == outcomes

    assert 40 == await users(stores[0])


@pytest.mark.parametrize(("ahead", "told"), [(0, 0), (86_400, 2), (-86_400, 2)])
def test_each_process_tells_that_the_servers_clock_is_another(
    postgres: PostgresServer, caplog: pytest.LogCaptureFixture, ahead: int, told: int
) -> None:
    """It alone decides which submissions are late, so it could refuse all of a collection."""
    uri, clock = postgres.database(), ManualClock(time.time() - ahead)
    for coordinator in (True, False):
        postgres_store(uri, coordinator=coordinator, clock=clock).close()

    events = [event for event in caplog.messages if event.startswith("store's clock disagrees")]
    assert told == len(events)


def test_a_comparison_of_clocks_that_fails_leaves_no_connection(postgres: PostgresServer) -> None:
    """The connection holds the coordinator's lock, and the failure refers to it."""

    class BrokenClock(ManualClock):
        """Fails once the connection is open."""

        def now(self) -> float:
            raise psycopg.OperationalError

    uri = postgres.database()
    with pytest.raises(SettingsError) as failure:
        postgres_store(uri, clock=BrokenClock(0.0))

    postgres_store(uri).close()
    assert isinstance(failure.value.__cause__, StorageError)


@pytest.mark.parametrize(
    ("races", "seed"), [(10, 1), pytest.param(1000, 2, marks=pytest.mark.slow)]
)
async def test_the_users_at_the_closing_are_the_stored_ones(
    postgres: PostgresServer, races: int, seed: int
) -> None:
    """Closing, or expiring, races with three processes that store."""
    rng, seen = np.random.default_rng(seed), list[int]()
    uri = postgres.database()
    closing = postgres_store(uri)
    closing.observer = lambda *moved: seen.append(moved[3])
    front_ends = [postgres_store(uri, coordinator=False) for _ in range(3)]
    for _ in range(races):
        signed = published().signed
        batch_id = BatchId(rng.bytes(16))
        await closing.open_batch(batch_id, signed)

        async def submit(store: PostgresStore, number: int, batch_id: BatchId) -> list[Outcome]:
            await asyncio.sleep(rng.uniform(0, 0.02))
            return await append(store, submission(number), batch_id=batch_id)

        async def close(signed: SignedTask) -> None:
            await asyncio.sleep(rng.uniform(0, 0.02))
            await closing.set_state(await closing.get(signed.digest()), BatchState.CLOSED)

        calls = [
            submit(store, 9 * n + k, batch_id)
            for n, store in enumerate(front_ends)
            for k in range(9)
        ]
        outcomes, _ = await asyncio.gather(asyncio.gather(*calls), close(signed))
        n_stored = outcomes.count([Outcome.STORED])
        assert {Outcome.STORED, Outcome.CLOSED} >= {outcome for [outcome] in outcomes}
        found = await closing.get(signed.digest())
        assert n_stored == seen[-1] == found.n_users
        assert 60 * n_stored == sum(map(len, stored(closing, batch_id)))
    for store in (closing, *front_ends):
        store.close()


@pytest.mark.parametrize("failover", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_a_killed_server_loses_nothing_that_was_acknowledged(*, failover: bool) -> None:
    """
    It starts again, or a synchronous standby replaces it.

    Calls in between fail as safe to retry; the coordinator has its lock again.
    """
    with ExitStack() as servers:
        server = servers.enter_context(postgres_server(""))
        uri, go_on = server.database(), server.start
        if failover:
            standby = servers.enter_context(postgres_server("", server))
            server.wait_for_standbys()
            uri, go_on = f"{uri},{standby.path}", standby.promote
        stores = [postgres_store(uri), postgres_store(uri, coordinator=False)]
        await stores[0].open_batch(BATCH, SIGNED)
        acknowledged, failed = set[int](), set[int]()

        async def submit(number: int) -> None:
            await asyncio.sleep(number / _SENT)
            try:
                assert [Outcome.STORED] == await append(stores[number % 2], submission(number))
                acknowledged.add(number)
            except StorageError:
                failed.add(number)

        sending = [asyncio.create_task(submit(number)) for number in range(_SENT)]
        await asyncio.sleep(0.3)
        await asyncio.to_thread(server.stop)
        await asyncio.gather(*sending)
        with pytest.raises(StorageError, match=_LOST):
            await append(stores[1], submission(_SENT))
        await asyncio.to_thread(go_on)
        for store in stores:
            await _connected(store)
        again = await append(stores[1], *map(submission, range(_SENT)))
        with pytest.raises(SettingsError, match="another coordinator uses this store"):
            postgres_store(uri)
        assert _SENT == await users(stores[0])
        assert _SENT * 60 == sum(map(len, stored(stores[0])))
        for store in stores:
            store.close()

    assert failed
    assert {Outcome.REPEATED} >= {again[number] for number in acknowledged}


async def _connected(store: PostgresStore) -> None:
    async with asyncio.timeout(10):
        while True:
            with suppress(StorageError):
                await store.get(SIGNED.digest())
                return
            await asyncio.sleep(0.1)


async def test_a_read_only_server_is_named_and_left_for_another(postgres: PostgresServer) -> None:
    """As a standby refuses writes after a failover; reading goes on, and later writing."""
    uri = postgres.database()
    store = postgres_store(uri)
    await store.open_batch(BATCH, SIGNED)
    name = uri.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(postgres.uri("postgres"), autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )
        with pytest.raises(StorageError, match="connection is lost"):
            await append(store, submission(1))
        for _ in range(2):
            with pytest.raises(StorageError, match="is read-only: a standby, as after a failover"):
                await append(store, submission(1))
        admin.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    await _connected(store)
    assert [Outcome.STORED] == await append(store, submission(1))
    store.close()


async def test_a_full_disk_is_named(stores: list[PostgresStore]) -> None:
    """The connection, and with it the coordinator's lock, stays."""

    def fail(_: psycopg.Connection) -> None:
        raise psycopg.errors.DiskFull

    before = await stores[0]._connection.run(_pid)
    with pytest.raises(
        StorageError, match="the disk of the PostgreSQL server of the shuffler's store is full"
    ):
        await stores[0]._connection.run(fail)

    assert before == await stores[0]._connection.run(_pid)


def _pid(connection: psycopg.Connection) -> int:
    return connection.info.backend_pid


async def test_schemas_of_other_versions_are_refused_with_the_reason(
    postgres: PostgresServer,
) -> None:
    """A front-end waits for its coordinator; a program that is too old must be upgraded."""
    uri = postgres.database()
    with pytest.raises(SettingsError, match="version 0; this program needs 4: start or upgrade"):
        postgres_store(uri, coordinator=False)
    store = postgres_store(uri)
    front_end = postgres_store(uri, coordinator=False)
    await store.open_batch(BATCH, SIGNED)
    with psycopg.connect(uri, autocommit=True) as admin:
        admin.execute("UPDATE schema_version SET version = 6, readable_from = 5")
    with pytest.raises(StorageError, match="readable from 5; this program has 4: upgrade it"):
        await append(front_end, submission(1))
    for each in (store, front_end):
        each.close()
    for coordinator in (True, False):
        with pytest.raises(SettingsError, match="is version 6, readable from 5; this program has"):
            postgres_store(uri, coordinator=coordinator)


async def test_a_permuted_batch_of_an_earlier_version_may_have_been_sent(
    postgres: PostgresServer,
) -> None:
    """Dropping it does not claim that the analyzer never had it."""
    uri = postgres.database()
    store = postgres_store(uri)
    await store.open_batch(BATCH, SIGNED)
    store.close()
    with psycopg.connect(uri, autocommit=True) as admin:
        admin.execute("UPDATE batches SET state = 'permuted'")
        admin.execute("ALTER TABLE batches DROP COLUMN part_hashes")
        admin.execute("UPDATE schema_version SET version = 2")
    store = postgres_store(uri)

    assert {BATCH: BatchState.SENT} == await store.states()
    store.close()


async def test_a_server_that_cannot_be_reached_is_named_at_the_start(
    postgres: PostgresServer,
) -> None:
    """The operator sees libpq's reason, and no password."""
    with pytest.raises(SettingsError, match=r"does not answer.*does not exist") as caught:
        postgres_store(postgres.uri("nobody").replace("postgres@", "postgres:secret@"))

    assert "secret" not in str(caught.value)


async def test_the_database_has_no_other_columns(stores: list[PostgresStore]) -> None:
    """Submissions leave sealed groups with random numbers, and keyed hashes; then nothing."""

    def columns(connection: psycopg.Connection) -> dict[str, str]:
        query = (
            "SELECT table_name, string_agg(column_name, ' ' ORDER BY ordinal_position) "
            "FROM information_schema.columns WHERE table_schema = 'public' GROUP BY 1"
        )
        return dict(connection.execute(query).fetchall())

    shared = {
        "schema_version": "version readable_from",
        "batches": "batch_id task_digest task signature state n_reports shuffle_seconds by_length "
        "part_hashes",
        "users": "batch_id writer n",
        "refusals": "batch_id writer outcome n",
    }
    own = {"tags": "tag content", "groups": "number sealed", "tokens": "token"}
    found = await stores[0]._connection.run(columns)
    assert shared | {f"{kind}_{BATCH.hex()}": names for kind, names in own.items()} == found
    batch = await stores[0].get(SIGNED.digest())
    await stores[0].set_state(batch, BatchState.EXPIRED)
    await stores[0].sweep()

    assert shared == await stores[0]._connection.run(columns)


async def test_a_malformed_uri_is_refused_without_its_password() -> None:
    """Libpq's own message would quote it."""
    with pytest.raises(SettingsError, match="not a valid postgresql:// URI") as caught:
        postgres_store("postgresql://user:50%off@/database")

    assert caught.value.__cause__ is None
    assert "off" not in str(caught.value)


async def test_a_batch_closes_exactly_whatever_the_databases_default_isolation(
    postgres: PostgresServer,
) -> None:
    """A store that waited for the closing's lock reads the state afterwards."""
    uri = postgres.database()
    with psycopg.connect(uri, autocommit=True) as connection:
        name = uri.partition("?")[0].rpartition("/")[2]
        connection.execute(
            f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'"
        )
    store = postgres_store(uri)
    try:
        shown = await store._connection.run(
            lambda c: c.execute("SHOW transaction_isolation").fetchone()
        )
    finally:
        store.close()

    assert ("read committed",) == shown
