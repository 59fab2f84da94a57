"""
The shuffler's processor time for one submission, over gRPC and over HTTP, with TLS on both.

Figures are medians of rounds that take turns. All limits are on. Behind a proxy, TLS is the
proxy's work, whose time stands beside it; gRPC has no such proxy here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.runtime.rpc import open_channel
from shuffledp.deploy.clients.local_cluster import Cluster
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from tests.benchmarks.conftest import Best, Line
from tests.support.clients import envelopes, publish
from tests.support.haproxy import proxy
from tests.support.http_calls import HttpConnection

_SUBMISSIONS: Final = 2_000
_EACH: Final = 600
"""Submissions of a round with a connection each."""
_AT_ONCE: Final = 32
_ROUNDS: Final = 5
_SUBMIT: Final = "/shuffledp.v1.Shuffler/Submit"
_MANY: Final = 10**6

Send = Callable[[int, Any], Awaitable[None]]
"""Sends a request, as the worker of a number."""


class _Way:
    """One way to a shuffler, and what its rounds cost."""

    def __init__(self, cluster: Cluster, signed: SignedTask, count: int) -> None:
        self.cluster = cluster
        self.count = count
        self.spent: list[float] = []
        self.beside: list[float] = []
        self._signed = signed
        self._seed = iter(range(1_000_000))

    async def round(self, send: Send, beside: int | None = None) -> None:
        """Send new submissions, and note milliseconds of the shuffler and of a process beside."""
        digest = self._signed.digest()
        made = envelopes(self._signed, self.count, seed=hash((id(self), next(self._seed))) % 2**32)
        waiting: Iterable[Any] = iter(
            [shuffler_pb2.SubmitRequest(task_digest=digest, envelope=each) for each in made]
        )

        async def worker(number: int) -> None:
            for request in waiting:
                await send(number, request)

        pids = [self.cluster.shuffler.process.pid, *([beside] if beside else [])]
        before = [_seconds(pid) for pid in pids]
        await asyncio.gather(*map(worker, range(_AT_ONCE)))
        after = [_seconds(pid) for pid in pids]
        each = [1000 * (b - a) / self.count for a, b in zip(before, after, strict=True)]
        self.spent.append(each[0])
        self.beside += each[1:]


def _seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


async def _measure(folder: Path) -> dict[str, _Way]:
    async with AsyncExitStack() as held:
        clusters = []
        for name, changes in (
            ("tls", {}),
            ("plain", {"http_plain": True, "http_proxies": ["127.0.0.1/32"]}),
        ):
            (folder / name).mkdir()
            cluster = Cluster(folder / name, log_level="WARNING")
            held.push_async_callback(cluster.stop)
            await cluster.start_analyzer()
            await cluster.start_shuffler(
                http_listen="127.0.0.1:0", submissions_per_connection=_MANY, **changes
            )
            clusters.append((cluster, await publish(cluster, _MANY)))
        tls, authority = clusters[0][0], clusters[0][0].authority.read_bytes()
        ways = {
            "grpc_kept": _Way(*clusters[0], _SUBMISSIONS),
            "http_kept": _Way(*clusters[0], _SUBMISSIONS),
            "grpc_each": _Way(*clusters[0], _EACH),
            "http_each": _Way(*clusters[0], _EACH),
            "proxied_each": _Way(*clusters[1], _EACH),
        }
        channel = open_channel(tls.shuffler.address, "shuffler", authority)
        held.push_async_callback(channel.close)
        stub = shuffler_pb2_grpc.ShufflerStub(channel)
        address = tls.published("shuffler", "http_address")
        kept = [await HttpConnection.open(address, authority) for _ in range(_AT_ONCE)]
        plain = clusters[1][0]
        before = await held.enter_async_context(
            proxy(folder, plain.directory / "tls", plain.published("shuffler", "http_address"))
        )

        async def over_grpc(_number: int, request: Any) -> None:
            await stub.Submit(request)

        async def over_grpc_each(_number: int, request: Any) -> None:
            options = (("grpc.use_local_subchannel_pool", 1),)
            async with open_channel(
                tls.shuffler.address, "shuffler", authority, options=options
            ) as own:
                await shuffler_pb2_grpc.ShufflerStub(own).Submit(request)

        async def over_http(number: int, request: Any) -> None:
            answer = await kept[number].post(_SUBMIT, request.SerializeToString())
            assert answer.status == 200, answer

        async def over_http_each(where: str, trusted: bytes, request: Any) -> None:
            connection = await HttpConnection.open(where, trusted)
            answer = await connection.post(_SUBMIT, request.SerializeToString())
            connection.close()
            assert answer.status == 200, answer

        behind = plain.authority.read_bytes()
        for _ in range(_ROUNDS):
            await ways["grpc_kept"].round(over_grpc)
            await ways["http_kept"].round(over_http)
            await ways["grpc_each"].round(over_grpc_each)
            await ways["http_each"].round(lambda _, one: over_http_each(address, authority, one))
            await ways["proxied_each"].round(
                lambda _, one: over_http_each(before.address, behind, one), before.pid
            )
        for connection in kept:
            connection.close()
    return ways


def test_a_submission_over_http_costs_less(tmp_path: Path, best: Best, line: Line) -> None:
    """At most half of gRPC's time on kept connections; .35 with a connection each, by a proxy."""
    found: dict[str, _Way] = {}
    best(1, lambda: found.update(asyncio.run(_measure(tmp_path))))
    spent = {name: median(way.spent) for name, way in found.items()}
    kept = spent["http_kept"] / spent["grpc_kept"]
    each = spent["proxied_each"] / spent["grpc_each"]
    line(
        "submission over HTTP",
        **{f"{name}_ms": figure for name, figure in spent.items()},
        proxy_ms=median(found["proxied_each"].beside),
        kept_ratio=kept,
        each_ratio=each,
    )
    assert kept <= 0.5
    assert each <= 0.35
