"""A real shuffler whose disk fails in a way that nobody foresaw."""

import asyncio
import sqlite3
from contextlib import closing

import grpc
import numpy as np
import pytest

from common.task.task import Task
from protos.shuffledp.v1 import shuffler_pb2
from tests.support.services import Services
from user_agent.contribution import Contributor

_DEADLINE = 20.0
_LONGER_THAN_SAVING = 1.5


async def test_a_shuffler_serves_and_stops_though_its_counts_cannot_be_saved(
    services: Services,
) -> None:
    """
    The table of refusals is gone. Submissions are taken all the same, and what stops stops in
    order: the database is closed, its log with it, and a shuffler starts on it again.
    """
    signed = await services.publish(n_min=10, target_size=100)
    envelope = Contributor(Task.from_bytes(signed.task_bytes), signed.digest()).prepare(
        0, np.random.default_rng(1)
    )
    spool = services.directory / "shuffler" / "spool.sqlite"
    async with services.stubs() as (_, shuffler, _analyzer):
        good = shuffler_pb2.SubmitRequest(task_digest=signed.digest(), envelope=envelope)
        bad = shuffler_pb2.SubmitRequest(task_digest=signed.digest(), envelope=b"none")
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError, match="the envelope has 4 bytes"):
                await shuffler.Submit(bad, timeout=_DEADLINE)
            with closing(sqlite3.connect(spool)) as connection:
                connection.execute("DROP TABLE IF EXISTS refusals")
            await asyncio.sleep(_LONGER_THAN_SAVING)
            await shuffler.Submit(good, timeout=_DEADLINE)
    await services.shuffler.stop()
    assert not spool.with_name("spool.sqlite-wal").exists()

    await services.start_shuffler()
    async with services.stubs() as (_, shuffler, _analyzer):
        again = await shuffler.Submit(good, timeout=_DEADLINE)
    assert again.receipt
