"""A real shuffler whose disk fails in an unforeseen way."""

import asyncio
import sqlite3
from contextlib import closing

import grpc
import pytest

from tests.support.clients import envelopes, submit
from tests.support.services import Services

_LONGER_THAN_SAVING = 1.5


@pytest.mark.own_services
async def test_a_shuffler_serves_and_stops_though_its_counts_cannot_be_saved(
    services: Services,
) -> None:
    """
    The table of refusals is gone. Submissions are taken all the same, and what stops stops in
    order: the database is closed, its log with it, and a shuffler starts on it again.
    """
    signed = await services.publish(n_min=10, target_size=100)
    [good] = envelopes(signed, 1)
    spool = services.directory / "shuffler" / "spool.sqlite"
    for _ in range(2):
        with pytest.raises(grpc.aio.AioRpcError, match="the envelope has 4 bytes"):
            await submit(services, signed, b"none")
        with closing(sqlite3.connect(spool)) as connection:
            connection.execute("DROP TABLE IF EXISTS refusals")
        await asyncio.sleep(_LONGER_THAN_SAVING)
        await submit(services, signed, good)
    await services.shuffler.stop()
    assert not spool.with_name("spool.sqlite-wal").exists()

    await services.start_shuffler()
    [again] = await submit(services, signed, good)
    assert again.receipt
