"""Floods over HTTP: honest devices are served, and nothing about anybody is logged."""

import asyncio
import json
from collections.abc import AsyncIterator
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from shuffledp.deploy.clients.local_cluster import Cluster
from shuffledp.protos.shuffledp.v1 import shuffler_pb2
from tests.support.clients import envelopes, publish
from tests.support.connections import resident_bytes, shuffler_stub
from tests.support.http_attacks import attack
from tests.support.http_calls import HttpConnection

_MEBIBYTE: Final = 2**20
_ROOM: Final = 400 * _MEBIBYTE
_HONEST: Final = "127.0.2.1"
_PATIENCE: Final = 20.0
_MOST_SECONDS: Final = 10.0
"""Of an honest call; 64 requests of a million lists each once held all calls up for longer."""


@pytest_asyncio.fixture
async def reached(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Analyzer and shuffler as processes, the latter over HTTP too."""
    cluster = Cluster(tmp_path, log_level="DEBUG")
    try:
        await cluster.start_analyzer()
        await cluster.start_shuffler(http_listen="127.0.0.1:0", submissions_per_connection=100)
        yield cluster
    finally:
        await cluster.stop()


@pytest.mark.slow
async def test_honest_devices_are_served_during_attacks(reached: Cluster) -> None:
    """Two thousand connections are held, and 10^5 requests refused. No honest call fails."""
    signed = await publish(reached, 10**6)
    address, authority = (
        reached.published("shuffler", "http_address"),
        reached.authority.read_bytes(),
    )
    idle = resident_bytes(reached.shuffler.process.pid)
    attacker = get_context("spawn").Process(
        target=attack, args=(address, authority, 2000, 100_000), daemon=True
    )
    attacker.start()
    made = iter(envelopes(signed, 20_000))
    served, most, slowest, loop = 0, idle, 0.0, asyncio.get_running_loop()
    while attacker.is_alive():
        begun = loop.time()
        body = shuffler_pb2.SubmitRequest(task_digest=signed.digest(), envelope=next(made))
        async with asyncio.timeout(_PATIENCE):
            if served % 4:
                connection = await HttpConnection.open(address, authority, source=_HONEST)
                answer = await connection.post(
                    "/shuffledp.v1.Shuffler/Submit", body.SerializeToString()
                )
                connection.close()
                assert 200 == answer.status, answer
            else:
                async with shuffler_stub(reached.shuffler.address, authority) as stub:
                    await stub.Submit(body)
        served, slowest = served + 1, max(slowest, loop.time() - begun)
        most = max(most, resident_bytes(reached.shuffler.process.pid))
        await asyncio.sleep(0.1)
    assert 0 == attacker.exitcode

    assert served > 50
    assert slowest < _MOST_SECONDS
    assert most < idle + _ROOM
    lines = reached.shuffler.log.read_text(encoding="utf-8").splitlines()
    logged = [json.loads(line) for line in lines]
    assert {"serving", "serving over HTTP"} >= {
        each["event"] for each in logged if "address" in each
    }
    assert not [each for each in logged if each["level"] in {"WARNING", "ERROR"}]
    assert not [line for line in lines if "127.0.1." in line or _HONEST in line]
