"""
CPU time of running services: the shuffler's for one submission, the analyzer's for one batch.

A submission is compared with an empty call to a bare gRPC server without TLS, a batch with the
bare decryption of its reports.
"""

import asyncio
import multiprocessing
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import grpc
import psutil
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from common.runtime.rpc import open_channel
from deploy.clients.local_cluster import Cluster
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from tests.benchmarks.conftest import Best, Line
from tests.support.clients import envelopes, publish

_CALLS: Final = 6000
_IN_FLIGHT: Final = 16
_BULK: Final = 1000
"""Submissions in one bulk call."""
_BATCHES: Final = 3
_DECRYPTIONS: Final = 20_000


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time so far of a process and its children."""
    process = psutil.Process(pid)
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(time.user + time.system for time in times)


async def _answer(_request: bytes, _context: object) -> bytes:
    return bytes(300)


async def _serve_bare(address: Connection) -> None:
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(
        _answer, request_deserializer=bytes, response_serializer=bytes
    )
    service = grpc.method_handlers_generic_handler("bare.Service", {"Call": handler})
    server.add_generic_rpc_handlers((service,))
    address.send(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    await server.start()
    await server.wait_for_termination()


def _run_bare(address: Connection) -> None:
    asyncio.run(_serve_bare(address))


async def _cost_of_a_call(
    pid: int, call: Callable[[bytes], Awaitable[object]], payloads: list[bytes]
) -> float:
    """Return the server's CPU seconds for each call, with some calls in flight."""
    remaining = iter(payloads)

    async def caller() -> None:
        for payload in remaining:
            await call(payload)

    before = _cpu_seconds(pid)
    await asyncio.gather(*(caller() for _ in range(_IN_FLIGHT)))
    return (_cpu_seconds(pid) - before) / len(payloads)


@asynccontextmanager
async def _cluster(
    folder: Path,
) -> AsyncIterator[tuple[Cluster, "shuffler_pb2_grpc.ShufflerAsyncStub"]]:
    """Yield started services, and a stub of their shuffler."""
    async with Cluster(folder) as cluster:
        authority = cluster.authority.read_bytes()
        async with open_channel(cluster.shuffler.address, "shuffler", authority) as channel:
            yield cluster, shuffler_pb2_grpc.ShufflerStub(channel)


async def _measure_submissions(folder: Path, line: Line) -> None:
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    bare = spawn.Process(target=_run_bare, args=(there,), daemon=True)
    bare.start()
    async with _cluster(folder) as (cluster, stub), grpc.aio.insecure_channel(here.recv()) as plain:
        signed = await publish(cluster, 10**6, domain_size=915, buckets=53)

        async def submit(envelope: bytes) -> None:
            digest = signed.digest()
            await stub.Submit(shuffler_pb2.SubmitRequest(task_digest=digest, envelope=envelope))

        sealed, pid = envelopes(signed, _CALLS), cluster.shuffler.process.pid
        await _cost_of_a_call(pid, submit, sealed[:1000])  # opens the connection, fetches the task
        ours = await _cost_of_a_call(pid, submit, sealed[1000:])
        empty = plain.unary_unary(
            "/bare.Service/Call", request_serializer=bytes, response_deserializer=bytes
        )
        least = await _cost_of_a_call(bare.pid or 0, empty, sealed[1000:])
    bare.kill()
    line("submission", shuffler_ms=1e3 * ours, bare_call_ms=1e3 * least, over_bare=ours / least)


def _bare_decryption() -> float:
    """Return the CPU seconds of one decryption."""
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
    key, info = X25519PrivateKey.generate(), bytes(64)
    sealed = suite.encrypt(bytes(8), key.public_key(), info)
    before = time.process_time()
    for _ in range(_DECRYPTIONS):
        suite.decrypt(sealed, key, info)
    return (time.process_time() - before) / _DECRYPTIONS


async def _measure_batches(folder: Path, n_users: int, line: Line) -> None:
    ratios = []
    async with _cluster(folder) as (cluster, stub):
        for _ in range(_BATCHES):
            signed = await publish(cluster, n_users, domain_size=915, buckets=53)
            sealed, digest = envelopes(signed, n_users), signed.digest()
            before = _cpu_seconds(cluster.analyzer.process.pid)
            for at in range(0, n_users, _BULK):
                part = sealed[at : at + _BULK]
                request = shuffler_pb2.SubmitBulkRequest(task_digest=digest, envelopes=part)
                await stub.SubmitBulk(request)
            async with cluster.operator() as operator:
                result = await operator.wait_for_result(digest)
            used = _cpu_seconds(cluster.analyzer.process.pid) - before
            ratios.append(used / (result.n_reports * _bare_decryption()))
    line("batch", n_users=n_users, first_over_bare=ratios[0], later_over_bare=min(ratios[1:]))


def test_a_submission(tmp_path: Path, best: Best, line: Line) -> None:
    """The server's CPU time of a unary call."""
    best(1, lambda: asyncio.run(_measure_submissions(tmp_path, line)))


def test_a_batch(tmp_path: Path, best: Best, line: Line) -> None:
    """The first batch also starts the pool's processes."""
    best(1, lambda: asyncio.run(_measure_batches(tmp_path, 30_000, line)))
