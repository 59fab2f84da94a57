"""
The memory of the shuffler and analyzer does not grow from batch to batch.

Once caches and pools are filled, peak resident memory with workers in the second half of the run is
compared with that in the first half.
"""

import asyncio
import time
from contextlib import suppress
from typing import Final

import pytest

from shuffledp.common.messages.submission import Outcome
from shuffledp.common.runtime.rpc import open_channel
from shuffledp.common.wire.submissions import outcomes_from_wire
from shuffledp.deploy.clients.local_cluster import Cluster
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from tests.support.clients import envelopes, publish
from tests.support.connections import tree_resident_bytes

_TO_WARM_UP: Final = 2
"""Number of batches."""
_SECONDS: Final = 600
_USERS: Final = 2000
_CALL: Final = 200
_GROWTH: Final = 8 * 2**20
"""Bytes by which a party with its workers may grow: allocators fluctuate."""


@pytest.mark.slow
async def test_batch_after_batch_takes_no_more_memory(cluster: Cluster) -> None:
    """For ten minutes, batches of 2,000 users are taken, permuted, delivered and released."""
    for _ in range(_TO_WARM_UP):
        await _whole_batch(cluster)
    first = await _most_held(cluster, _SECONDS / 2)
    second = await _most_held(cluster, _SECONDS / 2)

    for party in first:
        grown = second[party] - first[party]
        assert grown < _GROWTH, f"{party} grew by {grown} bytes within {_SECONDS} s"


async def _most_held(cluster: Cluster, seconds: float) -> dict[str, int]:
    """Collect batches for some seconds, and return each party's peak resident bytes."""
    processes = {one.party: one.process.pid for one in (cluster.shuffler, cluster.analyzer)}
    most = dict.fromkeys(processes, 0)

    async def watch() -> None:
        while True:
            for party, pid in processes.items():
                most[party] = max(most[party], tree_resident_bytes(pid))
            await asyncio.sleep(0.1)

    watching = asyncio.create_task(watch())
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await _whole_batch(cluster)
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    return most


async def _whole_batch(cluster: Cluster) -> None:
    """Publish a task, submit for every user, and wait for the result."""
    signed = await publish(cluster, _USERS)
    authority = cluster.authority.read_bytes()
    async with open_channel(cluster.shuffler.address, "shuffler", authority) as channel:
        stub = shuffler_pb2_grpc.ShufflerStub(channel)
        for call in range(_USERS // _CALL):
            request = shuffler_pb2.SubmitBulkRequest(
                task_digest=signed.digest(),
                envelopes=await asyncio.to_thread(envelopes, signed, _CALL, seed=call),
            )
            outcomes = outcomes_from_wire(await stub.SubmitBulk(request, timeout=60))
            assert [Outcome.STORED] * _CALL == outcomes
    async with cluster.operator() as operator, asyncio.timeout(60):
        result = await operator.wait_for_result(signed.digest())
    assert result.n_users == _USERS
