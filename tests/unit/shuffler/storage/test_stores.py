"""Tests that the shuffler's stores in SQLite and in PostgreSQL pass alike."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from shuffledp.common.errors import BatchStateError, UnknownTaskError
from shuffledp.common.messages.batch import BatchId, BatchState
from shuffledp.common.messages.submission import Outcome
from shuffledp.common.task_digest import TaskDigest
from shuffledp.shuffler.storage.group import Arrival, form_group, open_group
from shuffledp.shuffler.storage.submission_store import SubmissionStore
from tests.support.postgres import PostgresServer
from tests.support.stores import (
    BATCH,
    DEADLINE,
    KEY,
    PAST,
    SIGNED,
    append,
    postgres_store,
    sqlite_store,
    stored,
    submission,
    users,
)
from tests.support.tasks import published

Kind = Callable[[], SubmissionStore]
"""Opens one database, as often as it is called."""


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    """One of the two kinds of store, with a new database."""
    if request.param == "sqlite":
        return lambda: sqlite_store(tmp_path / "spool.sqlite")
    server: PostgresServer = request.getfixturevalue("postgres")
    uri = server.database()
    return lambda: postgres_store(uri)


@pytest.fixture
async def store(kind: Kind) -> AsyncIterator[SubmissionStore]:
    """A store with an empty batch."""
    opened = kind()
    await opened.open_batch(BATCH, SIGNED)
    yield opened
    opened.close()


async def test_repeats_and_conflicts_are_distinguished(kind: Kind) -> None:
    """This holds within one call, and for a process that knows only the database."""
    store = kind()
    await store.open_batch(BATCH, SIGNED)
    for restarted in (False, True):
        await append(store, submission(0), submission(1), submission(5))
        if restarted:
            store.close()
            store = kind()
        sent = [submission(1), submission(0, b"x"), *[submission(2 + 10 * restarted)] * 2]
        outcomes = await append(store, *sent)

        new, repeated, conflict = Outcome.STORED, Outcome.REPEATED, Outcome.CONFLICT
        assert [repeated, conflict, new, repeated] == outcomes
        assert [repeated] * 3 == await append(store, *map(submission, (0, 1, 5)))
        assert 4 + restarted == await users(store)
        assert 60 * await users(store) == sum(map(len, stored(store)))
    store.close()


async def test_a_token_is_used_by_the_first_submission_that_is_stored(
    store: SubmissionStore,
) -> None:
    """Repeats and refused submissions use none; a refused id can be stored with another token."""
    stored_, used, closed = Outcome.STORED, Outcome.TOKEN_USED, Outcome.CLOSED
    assert [closed] == await append(store, submission(9), tokens=[b"a"], deadline=PAST)
    sent = [submission(1), submission(2), submission(3), submission(3, b"x")]
    first = await append(store, *sent, tokens=[b"a", b"a", b"b", b"c"])
    assert {(stored_, used), (used, stored_)} >= {tuple(first[:2])}
    assert {stored_, Outcome.CONFLICT} == set(first[2:])
    assert [Outcome.REPEATED] == await append(
        store, submission(1 if first[0] is stored_ else 2), tokens=[b"d"]
    )
    again = submission(2 if first[0] is stored_ else 1)
    assert [used] == await append(store, again, tokens=[b"a"])
    assert [stored_] == await append(store, again, tokens=[b"d"])

    assert 3 == await users(store)
    assert 3 * 60 == sum(map(len, stored(store)))


async def test_a_refused_id_is_free_for_other_bytes(store: SubmissionStore) -> None:
    """The first of two with one id has a used token, so that the second is stored."""
    await append(store, submission(1), tokens=[b"a"])
    groups = [
        form_group([submission(2, content)], KEY.private_bytes())[0] for content in (b"x", b"y")
    ]
    arrival = Arrival(
        batch_id=BATCH,
        key=KEY,
        groups=groups,
        deadline=DEADLINE,
        token_tags=[[KEY.tag(token)] for token in (b"a", b"b")],
    )
    assert [[Outcome.TOKEN_USED], [Outcome.STORED]] == await store.append(arrival)
    assert [Outcome.REPEATED] == await append(store, submission(2, b"y"), tokens=[b"c"])
    assert [Outcome.CONFLICT] == await append(store, submission(2, b"x"), tokens=[b"c"])


async def test_a_batch_is_read_moved_and_cleaned_up(store: SubmissionStore) -> None:
    """The users stay; groups are gone once the batch is permuted, and nobody can submit."""
    await append(store, *map(submission, range(5)))
    collecting = await store.get(SIGNED.digest())
    await append(store, submission(5))
    with pytest.raises(BatchStateError, match="had 5 users when it was read; it now has 6"):
        await store.set_state(collecting, BatchState.EXPIRED)
    await store.set_state(collecting, BatchState.CLOSED)
    assert 360 == sum(map(len, stored(store)))
    closed = await store.read(BATCH)
    shuffled = replace(closed, n_reports=12, by_length=(4, 2), part_hashes=bytes(64))
    await store.set_state(shuffled, BatchState.PERMUTED)
    await store.sweep()
    again = await store.open_batch(BatchId(b"o" * 16), SIGNED)

    assert (BATCH, BatchState.PERMUTED, 6, 12, (4, 2), bytes(64)) == (
        *(again.batch_id, again.state, again.n_users, again.n_reports, again.by_length),
        again.part_hashes,
    )
    assert {BATCH: BatchState.PERMUTED} == await store.states()
    assert [Outcome.CLOSED] == await append(store, submission(0))
    with pytest.raises(UnknownTaskError):
        await store.get(TaskDigest(bytes(32)))


async def test_counts_of_refusals_add_up(store: SubmissionStore) -> None:
    """A later process adds to them."""
    for n in (1, 2):
        await store.add_refusals({BATCH: Counter({Outcome.CONFLICT: n, Outcome.MALFORMED: 1})})

    assert {BATCH: Counter({Outcome.CONFLICT: 3, Outcome.MALFORMED: 2})} == await store.refusals()


async def test_concurrent_calls_with_one_id_store_it_once(store: SubmissionStore) -> None:
    """The first is stored, the others are repeats."""
    outcomes = await asyncio.gather(*(append(store, submission(n % 10)) for n in range(30)))

    assert [[Outcome.STORED]] * 10 + [[Outcome.REPEATED]] * 20 == outcomes
    assert 10 == await users(store)


@pytest.mark.parametrize("closed", [False, True])
async def test_a_late_submission_is_only_compared(store: SubmissionStore, *, closed: bool) -> None:
    """After the deadline or the closing, a retry is recognized and a new submission refused."""
    await append(store, submission(1))
    if closed:
        await store.set_state(await store.get(SIGNED.digest()), BatchState.CLOSED)
    late = await append(store, submission(1), submission(2), deadline=DEADLINE if closed else PAST)

    assert [Outcome.REPEATED, Outcome.CLOSED] == late
    assert 1 == await users(store)


async def test_submissions_do_not_keep_the_order_of_arrival(store: SubmissionStore) -> None:
    """Keyed hashes sort a group, random numbers the groups; 40 stay in order with chance 1/40!."""
    for number in range(40):
        await append(store, submission(number, bytes([number])))
    alone = [reports[0] for reports in stored(store)]
    group, places = form_group([submission(n, bytes([n])) for n in range(40)], KEY.private_bytes())
    together = list(open_group(group.number, group.sealed, KEY).reports[::60])

    assert list(range(40)) == sorted(alone) == sorted(together)
    assert list(range(40)) != alone
    assert list(range(40)) != together
    assert places == together


async def test_the_observer_gets_the_stored_number_of_users(kind: Kind) -> None:
    """The number may have grown since the batch was read; another state cannot change."""
    seen: list[object] = []
    store = kind()
    store.observer = lambda *moved: seen.append(moved)
    batch = await store.open_batch(BATCH, SIGNED)
    await append(store, submission(1))
    await store.set_state(batch, BatchState.CLOSED)
    with pytest.raises(BatchStateError, match="no longer collecting"):
        await store.set_state(batch, BatchState.EXPIRED)
    store.close()

    assert [(BATCH, BatchState.COLLECTING, BatchState.CLOSED, 1, 0)] == seen


async def test_batches_in_one_commit_are_separate(store: SubmissionStore) -> None:
    """The same id and bytes in two batches are two submissions."""
    other = BatchId(b"o" * 16)
    batch = await store.open_batch(other, published().signed)
    arrivals = [
        Arrival(
            batch_id=batch_id,
            key=KEY,
            groups=[form_group([submission(n)], KEY.private_bytes())[0]],
            deadline=DEADLINE,
        )
        for n in (1, 2)
        for batch_id in (BATCH, other)
    ]
    outcomes = await asyncio.gather(*(store.append(arrival) for arrival in arrivals))

    assert [[[Outcome.STORED]]] * 4 == outcomes
    assert (2, 2) == (await users(store), (await store.get(batch.signed.digest())).n_users)
