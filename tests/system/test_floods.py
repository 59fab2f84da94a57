"""Floods of calls: the shuffler's memory is bounded, and other clients are served."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing import get_context

import grpc
import pytest

from shuffledp.deploy.clients.local_cluster import Cluster
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from tests.support.clients import envelopes, publish
from tests.support.connections import connect, hold_calls, resident_bytes, shuffler_stub

pytestmark = pytest.mark.asyncio(loop_scope="session")

_MEBIBYTE = 2**20
_ROOM = 400 * _MEBIBYTE
"""Bytes that a flood may add to the shuffler's idle process."""
_PATIENCE = 60.0


async def _submit_from(cluster: Cluster, n_clients: int) -> Counter[str]:
    """Let clients submit at the same time, each on its own connection."""
    signed = await publish(cluster, 100_000)
    authority = cluster.authority.read_bytes()
    outcomes: Counter[str] = Counter()

    async def one(envelope: bytes) -> None:
        request = shuffler_pb2.SubmitRequest(task_digest=signed.digest(), envelope=envelope)
        async with shuffler_stub(cluster.shuffler.address, authority) as stub:
            try:
                await stub.Submit(request, timeout=_PATIENCE)
            except grpc.aio.AioRpcError as error:
                outcomes[f"{error.code().name}: {error.details()}"] += 1
            else:
                outcomes["OK"] += 1

    await asyncio.gather(*map(one, envelopes(signed, n_clients)))
    return outcomes


@pytest.mark.parametrize("clients", [250, pytest.param(2000, marks=pytest.mark.slow)])
async def test_many_clients_at_once_are_all_served(running: Cluster, clients: int) -> None:
    """No call fails, and the memory is bounded."""
    idle = resident_bytes(running.shuffler.process.pid)

    assert {"OK": clients} == await _submit_from(running, clients)
    assert resident_bytes(running.shuffler.process.pid) < idle + _ROOM


@asynccontextmanager
async def _flood(
    cluster: Cluster, method: str, request: object, calls: int
) -> AsyncIterator[Counter[str]]:
    """Repeat a call on one connection, with `calls` in flight."""
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
async def test_another_client_is_served_while_one_floods(running: Cluster, kind: str) -> None:
    """The flood is of bulk or single calls of 4 MB, or of a thousand short calls at a time."""
    signed = await publish(running, 100_000)
    digest = signed.digest()
    Submit, Bulk = shuffler_pb2.SubmitRequest, shuffler_pb2.SubmitBulkRequest  # noqa: N806  # classes
    method, request, calls = {
        "bulk": ("SubmitBulk", Bulk(task_digest=digest, envelopes=[bytes(2000)] * 2000), 64),
        "long": ("Submit", Submit(task_digest=digest, envelope=bytes(4 * _MEBIBYTE - 100)), 64),
        "short": ("Submit", Submit(task_digest=digest, envelope=b"none"), 1000),
    }[kind]
    idle = resident_bytes(running.shuffler.process.pid)
    most = idle
    async with (
        _flood(running, method, request, calls) as outcomes,
        shuffler_stub(running.shuffler.address, running.authority.read_bytes()) as other,
    ):
        await asyncio.sleep(0.3)
        for envelope in envelopes(signed, 5):
            submission = shuffler_pb2.SubmitRequest(task_digest=digest, envelope=envelope)
            await other.Submit(submission, timeout=_PATIENCE)
            most = max(most, resident_bytes(running.shuffler.process.pid))

    assert most < idle + _ROOM
    assert outcomes.total() > 0
    if kind == "bulk":  # short calls wait in line
        assert outcomes["RESOURCE_EXHAUSTED"] > 0


@pytest.mark.slow
async def test_calls_that_are_held_keep_no_device_out(running: Cluster) -> None:
    """An address holds 64 calls without a message on each of 34 connections; others are served."""
    signed, authority = await publish(running, 100_000), running.authority.read_bytes()
    method, sources = "/shuffledp.v1.Shuffler/Submit", ["127.0.0.9"] * 34
    holder = get_context("spawn").Process(
        target=hold_calls, args=(running.shuffler.address, method, sources, 64, authority)
    )
    holder.start()
    served = 0
    try:
        await asyncio.sleep(5)  # until all are held
        for envelope in envelopes(signed, 100):
            request = shuffler_pb2.SubmitRequest(task_digest=signed.digest(), envelope=envelope)
            async with shuffler_stub(running.shuffler.address, authority) as device:
                try:
                    await device.Submit(request, timeout=5)
                    served += 1
                except grpc.aio.AioRpcError:
                    continue
        assert holder.is_alive()
    finally:
        holder.kill()
        holder.join()

    assert served >= 90
