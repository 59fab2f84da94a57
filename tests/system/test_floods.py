"""Many clients at once, and ones that want everything: memory is bounded, others are served."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import numpy as np
import pytest

from common.crypto.signing import SignedTask
from common.task.task import Task
from deploy.clients.local_cluster import Cluster
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from tests.support.children import publish
from tests.support.connections import connect, resident_bytes, shuffler_stub
from user_agent.contribution import Contributor

_MEBIBYTE = 2**20
_ROOM = 400 * _MEBIBYTE
"""What a flood may make the shuffler's process take, beyond what it takes idle."""
_PATIENCE = 60.0


def _submissions(signed: SignedTask, count: int) -> list[shuffler_pb2.SubmitRequest]:
    contributor = Contributor(Task.from_bytes(signed.task_bytes), signed.digest())
    rng = np.random.default_rng(1)
    return [
        shuffler_pb2.SubmitRequest(
            task_digest=signed.digest(), envelope=contributor.prepare(0, rng)
        )
        for _ in range(count)
    ]


async def _submit_from(cluster: Cluster, n_clients: int) -> Counter[str]:
    """Let so many clients submit at once, each on a connection of its own."""
    signed = await publish(cluster, 100_000)
    authority = cluster.authority.read_bytes()
    outcomes: Counter[str] = Counter()

    async def one(request: shuffler_pb2.SubmitRequest) -> None:
        async with shuffler_stub(cluster.shuffler.address, authority) as stub:
            try:
                await stub.Submit(request, timeout=_PATIENCE)
            except grpc.aio.AioRpcError as error:
                outcomes[f"{error.code().name}: {error.details()}"] += 1
            else:
                outcomes["OK"] += 1

    await asyncio.gather(*(one(request) for request in _submissions(signed, n_clients)))
    return outcomes


async def test_250_clients_at_once_are_all_served(cluster: Cluster) -> None:
    """Without an error."""
    assert {"OK": 250} == await _submit_from(cluster, 250)


@pytest.mark.slow
async def test_2000_clients_at_once_are_all_served(cluster: Cluster) -> None:
    """Without an error, in bounded memory."""
    idle = resident_bytes(cluster.shuffler.process.pid)

    assert {"OK": 2000} == await _submit_from(cluster, 2000)
    assert resident_bytes(cluster.shuffler.process.pid) < idle + _ROOM


@asynccontextmanager
async def _flood(
    cluster: Cluster, method: str, request: object, calls: int
) -> AsyncIterator[Counter[str]]:
    """Keep so many calls under way on one connection, without ever waiting."""
    outcomes: Counter[str] = Counter()
    async with connect(cluster.shuffler.address, cluster.authority.read_bytes()) as channel:
        call = getattr(shuffler_pb2_grpc.ShufflerStub(channel), method)

        async def repeat() -> None:
            while True:
                try:
                    await call(request, timeout=_PATIENCE)
                except grpc.aio.AioRpcError as error:
                    outcomes[error.code().name] += 1
                else:
                    outcomes["OK"] += 1

        flooding = [asyncio.create_task(repeat()) for _ in range(calls)]
        try:
            yield outcomes
        finally:
            for one in flooding:
                one.cancel()
            await asyncio.gather(*flooding, return_exceptions=True)


@pytest.mark.parametrize(
    "kind", ["bulk", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("long", "short"))]
)
async def test_another_client_is_served_while_one_floods(cluster: Cluster, kind: str) -> None:
    """
    Bulk calls of 4 MB, single ones of 4 MB, or thousands of short ones: the process stays within
    its bound, and five submissions of somebody else all arrive.
    """
    signed = await publish(cluster, 100_000)
    digest = signed.digest()
    method, request, calls = {
        "bulk": (
            "SubmitBulk",
            shuffler_pb2.SubmitBulkRequest(task_digest=digest, envelopes=[bytes(2000)] * 2000),
            64,
        ),
        "long": (
            "Submit",
            shuffler_pb2.SubmitRequest(task_digest=digest, envelope=bytes(4 * _MEBIBYTE - 100)),
            64,
        ),
        "short": (
            "Submit",
            shuffler_pb2.SubmitRequest(task_digest=digest, envelope=b"none"),
            1000,
        ),
    }[kind]
    idle = resident_bytes(cluster.shuffler.process.pid)
    most = idle
    async with (
        _flood(cluster, method, request, calls) as outcomes,
        shuffler_stub(cluster.shuffler.address, cluster.authority.read_bytes()) as other,
    ):
        await asyncio.sleep(1)
        for submission in _submissions(signed, 5):
            await other.Submit(submission, timeout=_PATIENCE)
            most = max(most, resident_bytes(cluster.shuffler.process.pid))

    assert most < idle + _ROOM
    assert outcomes.total() > 0
    if kind == "bulk":  # short calls wait in line
        assert outcomes["RESOURCE_EXHAUSTED"] > 0
