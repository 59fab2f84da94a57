"""The shuffler's store in PostgreSQL: what it does beyond the tests that both stores pass."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from common.messages.submission import Outcome
from shuffler.storage.postgres_store import PostgresStore
from tests.support.postgres import PostgresServer
from tests.support.stores import BATCH, SIGNED, append, postgres_store, submission, users


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
