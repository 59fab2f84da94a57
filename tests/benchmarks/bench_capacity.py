"""
The costs behind `shuffledp capacity`, and its prediction beside a batch on two workers.

Runs real services over TLS, with two workers each, and attributes processor time by process: a
party's own process is a front-end or a coordinator, its children are workers. Each cost is the
difference of a large and a small batch, so that starting workers counts as part of a batch's fixed
time. `SHUFFLEDP_BENCH_REPORTS=1000000` measures a larger batch.
"""

import asyncio
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, Final

import numpy as np
import psutil
import pytest

from common.crypto.signing import SignedTask
from common.errors import BatchStateError
from common.messages.batch import BatchState
from common.runtime.service import GRPC_SILENCE
from deploy.clients.local_cluster import Child, Cluster
from deploy.clients.shuffler import ShufflerClient
from deploy.load.sender import Destination
from deploy.load.users import seal_values
from deploy.planning.capacity import batch_seconds
from deploy.planning.measured_costs import COSTS
from deploy.planning.opening_time import measure_opening_seconds
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from tests.benchmarks.conftest import Best, Line
from tests.support.clients import publish

_REPORTS: Final = int(os.environ.get("SHUFFLEDP_BENCH_REPORTS", "200000"))
_SMALL: Final = 4_000
_REPORTS_PER_USER: Final = 2
_DEVICES: Final = 400
_DEVICES_AT_ONCE: Final = 8
_CALL: Final = 1_000
"""Submissions of a bulk call."""
_CALLS_AT_ONCE: Final = 4
_WORKERS: Final = 2
_POLL_SECONDS: Final = 0.05
_TASK: Final[dict[str, Any]] = {"domain_size": 915, "buckets": 53}

Figures = dict[str, float]


def _usage(party: Child) -> Figures:
    """Return the processor seconds of a party's own process and of its workers, and its memory."""
    process = psutil.Process(party.process.pid)
    own, ended = process.cpu_times(), 0.0
    ended = own.children_user + own.children_system
    running = sum(sum(child.cpu_times()[:2]) for child in process.children(recursive=True))
    return {"own": own.user + own.system, "workers": ended + running}


def _block_bytes(party: Child) -> int:
    """Return the bytes of a party's blocks; files may vanish meanwhile."""
    total = 0
    for folder, _, names in os.walk(party.state / "blocks"):
        for name in names:
            try:
                total += (Path(folder) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def _loopback_bytes() -> int:
    return psutil.net_io_counters(pernic=True)["lo"].bytes_recv


async def _each(work: Callable[[Any], Any], items: Iterable[Any], at_once: int) -> None:
    waiting = iter(items)

    async def caller() -> None:
        for item in waiting:
            await work(item)

    await asyncio.gather(*(caller() for _ in range(at_once)))


@dataclass
class _Run:
    """One batch's processor seconds by process and phase, peak bytes of blocks, and duration."""

    cluster: Cluster
    seconds: Figures = field(default_factory=dict)
    blocks: dict[str, int] = field(default_factory=lambda: {"shuffler": 0, "analyzer": 0})
    duration: float = 0.0
    phases: Figures = field(default_factory=dict)

    async def batch(self, n_reports: int) -> None:
        """Submit a batch in bulk, and wait for its result."""
        cluster, n_users = self.cluster, n_reports // _REPORTS_PER_USER
        signed = await publish(cluster, n_users, **_TASK)
        digest = signed.digest()
        users = await asyncio.to_thread(
            seal_values, signed, np.zeros(n_users, dtype=np.uint8), [0] * n_users
        )
        shuffler, analyzer = cluster.shuffler, cluster.analyzer
        destination = Destination(shuffler.address, cluster.authority.read_bytes())
        client = ShufflerClient.connect(shuffler.address, cluster.authority)
        async with destination.open() as channel, client, cluster.operator() as operator:
            stub = shuffler_pb2_grpc.ShufflerStub(channel)
            await stub.FetchTask(shuffler_pb2.FetchTaskRequest(task_digest=digest))

            async def send(at: int) -> None:
                rows = users.envelopes[at : at + _CALL]
                envelopes = [row.tobytes() for row in rows]
                await stub.SubmitBulk(
                    shuffler_pb2.SubmitBulkRequest(task_digest=digest, envelopes=envelopes)
                )

            started, before, sent = time.perf_counter(), self._usages(), _loopback_bytes()
            await _each(send, range(0, n_users, _CALL), _CALLS_AT_ONCE)
            submitted, ingested = self._usages(), time.perf_counter()
            self.seconds["bulk bytes"] = _loopback_bytes() - sent
            permuted, shuffled = submitted, 0.0
            while True:
                usages, now = self._usages(), time.perf_counter()
                for party in (shuffler, analyzer):
                    self.blocks[party.party] = max(self.blocks[party.party], _block_bytes(party))
                status = await client.status_or_none(digest)
                assert status is not None
                if not shuffled and status.state not in {BatchState.COLLECTING, BatchState.CLOSED}:
                    permuted, shuffled = usages, now
                if status.state is BatchState.ERASED and await _is_released(operator, digest):
                    break
                await asyncio.sleep(_POLL_SECONDS)
            ended, finished = self._usages(), time.perf_counter()
        self.duration = finished - started
        self.phases = {
            "ingest": ingested - started,
            "shuffle": shuffled - ingested,
            "deliver and count": finished - shuffled,
        }
        self.seconds |= {
            "bulk": submitted["shuffler", "own"] - before["shuffler", "own"],
            "bulk opening": submitted["shuffler", "workers"] - before["shuffler", "workers"],
            "shuffle": permuted["shuffler", "workers"] - submitted["shuffler", "workers"],
            "prove": ended["shuffler", "workers"] - permuted["shuffler", "workers"],
            "send": ended["shuffler", "own"] - submitted["shuffler", "own"],
            "receive": ended["analyzer", "own"] - before["analyzer", "own"],
            "count": ended["analyzer", "workers"] - before["analyzer", "workers"],
        }

    def _usages(self) -> dict[tuple[str, str], float]:
        parties = (self.cluster.shuffler, self.cluster.analyzer)
        return {(p.party, kind): used for p in parties for kind, used in _usage(p).items()}


async def _is_released(operator: Any, digest: bytes) -> bool:
    try:
        await operator.result(digest)
    except BatchStateError:
        return False
    return True


async def _devices(cluster: Cluster) -> tuple[float, float]:
    """Return seconds and bytes per device that opens a connection of its own."""
    signed: SignedTask = await publish(cluster, 10**6, **_TASK)
    users = seal_values(signed, np.zeros(2 * _DEVICES, dtype=np.uint8), [0] * (2 * _DEVICES))
    destination = Destination(cluster.shuffler.address, cluster.authority.read_bytes())
    digest = signed.digest()

    async def submit(envelope: Any) -> None:
        async with destination.open() as channel:
            stub = shuffler_pb2_grpc.ShufflerStub(channel)
            await stub.FetchTask(shuffler_pb2.FetchTaskRequest(task_digest=digest))
            await stub.Submit(
                shuffler_pb2.SubmitRequest(task_digest=digest, envelope=envelope.tobytes())
            )

    await _each(submit, users.envelopes[:_DEVICES], _DEVICES_AT_ONCE)
    before, sent = _usage(cluster.shuffler), _loopback_bytes()
    await _each(submit, users.envelopes[_DEVICES:], _DEVICES_AT_ONCE)
    own = _usage(cluster.shuffler)["own"] - before["own"]
    return own / _DEVICES, (_loopback_bytes() - sent) / _DEVICES


def _opening_seconds() -> tuple[float, float]:
    """Return the seconds of one opening while every worker opens: of a processor, and elapsed."""
    with ProcessPoolExecutor(_WORKERS, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(measure_opening_seconds, [0.1] * _WORKERS))
        started = time.perf_counter()
        processor = mean(pool.map(measure_opening_seconds, [1.0] * _WORKERS))
        elapsed = time.perf_counter() - started
    return processor, processor * elapsed


async def _measure(folder: Path) -> tuple[Figures, Figures]:
    """Return the costs in the units of COSTS, and durations predicted and measured."""
    workers = {
        f"SHUFFLEDP_{party}_OPENING_PROCESSES": str(_WORKERS) for party in ("SHUFFLER", "ANALYZER")
    }
    async with AsyncExitStack() as stack:
        cluster = Cluster(folder, {**GRPC_SILENCE, **workers})
        stack.push_async_callback(cluster.stop)
        await cluster.start_analyzer()
        await cluster.start_shuffler()
        openings = [_opening_seconds()]
        device, device_bytes = await _devices(cluster)
        small, large = _Run(cluster), _Run(cluster)
        await small.batch(_SMALL)
        openings.append(_opening_seconds())
        await large.batch(_REPORTS)
        openings.append(_opening_seconds())
        parties = (cluster.shuffler, cluster.analyzer)
        memory = max(psutil.Process(p.process.pid).memory_info().rss for p in parties)
    opening, elapsed = (mean(values) for values in zip(*openings, strict=True))
    each = {
        name: (spent - small.seconds[name]) / (_REPORTS - _SMALL)
        for name, spent in large.seconds.items()
    }
    costs = {name: spent / opening for name, spent in each.items()}
    for name in ("bulk", "bulk opening"):
        costs[name] *= _REPORTS_PER_USER
    costs |= {
        "device": device / opening,
        "device bytes": device_bytes,
        "bulk bytes": each["bulk bytes"] * _REPORTS_PER_USER,
        "process memory": memory,
        "batch": small.duration / elapsed,
        **{f"{party} blocks": size / _REPORTS for party, size in large.blocks.items()},
    }
    predicted = batch_seconds(_REPORTS, _REPORTS_PER_USER, elapsed, _WORKERS)
    durations = {
        "reports": _REPORTS,
        "opening_us": 1e6 * opening,
        "elapsed_per_opening_us": 1e6 * elapsed,
        "predicted_s": predicted,
        "measured_s": large.duration,
        "predicted_over_measured": predicted / large.duration,
        **{f"{phase}_s": seconds for phase, seconds in large.phases.items()},
    }
    return costs, durations


def test_capacity(tmp_path: Path, best: Best, line: Line) -> None:
    """The shipped costs predict the duration of a batch on two workers within a quarter."""
    found: list[tuple[Figures, Figures]] = []
    best(1, lambda: found.append(asyncio.run(_measure(tmp_path))))
    costs, durations = found[0]
    for name, measured in costs.items():
        line(f"capacity: {name}", measured=measured, shipped=COSTS[name].value)
    line("capacity: two workers", **durations)
    assert 1 == pytest.approx(durations["predicted_over_measured"], abs=0.25)
