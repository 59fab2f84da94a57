"""
The costs behind `shuffledp capacity`, and its prediction beside a whole batch on two workers.

Each cost is measured in openings, at the opening rate of the same moment, and printed beside the
shipped one. `python -m tests.benchmarks.bench_capacity REPORTS` predicts and measures a batch.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any, Final

import numpy as np
import psutil
import pytest

from common.crypto.batch_key import BatchKey
from common.crypto.hpke import report_context, split_every
from common.crypto.hpke_pool import HpkePool
from common.mechanisms.registry import mechanism_of
from common.messages.batch import BatchId
from common.messages.inclusion_proof import (
    SALT_BYTES,
    bits_for,
    range_count,
)
from common.runtime.executor import Executor, LocalExecutor
from common.task.task import SUBMISSION_ID_BYTES, Task
from deploy.clients.local_cluster import Cluster
from deploy.load.sender import Destination
from deploy.load.users import GroupContributor
from deploy.planning.capacity import Workload, batch_seconds
from deploy.planning.measured_costs import COSTS
from deploy.planning.opening_rate import measure_opening_rate
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from shuffler.proof_job import ProofJob
from shuffler.shuffle_job import ShuffleJob
from shuffler.storage.group import form_group
from shuffler.storage.sqlite_store import SqliteStore
from shuffler.storage.submissions import Arrival
from tests.benchmarks.conftest import Best, Line
from tests.support.analyzer_parts import AnalyzerParts
from tests.support.executors import InlineExecutor
from tests.support.tasks import PublishedTask, draft, published

_DEVICES: Final = 600
_RELAYED: Final = 20_000
_CALL: Final = 1_000
"""Submissions of one bulk call, and of one stored group."""
_DEVICES_AT_ONCE: Final = 8
_CALLS_AT_ONCE: Final = 3
_REPORTS: Final = 200_000
_WORKERS: Final = 2
_KEY: Final = BatchKey(bytes(32))
_ID: Final = BatchId(bytes(16))
_TASK: Final[dict[str, Any]] = {"domain_size": 915, "buckets": 53}


@contextmanager
def _opening_rate() -> Iterator[list[float]]:
    """Yield a list that holds the opening rate before the block and, at the end, the one after."""
    rates = [measure_opening_rate()]
    yield rates
    rates.append(measure_opening_rate())


# --- submissions, at a running shuffler --------------------------------------


def _cpu_seconds(process: psutil.Process) -> tuple[float, float]:
    """Return the CPU time so far of a process, and of its children."""
    own, *others = (each.cpu_times() for each in (process, *process.children(recursive=True)))
    return own.user + own.system, sum(times.user + times.system for times in others)


def _loopback_bytes() -> int:
    return psutil.net_io_counters(pernic=True)["lo"].bytes_recv


async def _at_once(count: int, calls: Iterator[Coroutine[Any, Any, object]]) -> None:
    async def caller() -> None:
        for call in calls:
            await call

    await asyncio.gather(*(caller() for _ in range(count)))


async def _submissions(folder: Path) -> dict[str, float]:
    """Return the costs of devices with a connection each, and of relays."""
    async with Cluster(folder) as cluster:
        fields = {"n_min": 10**6, "target_size": 10**6}
        async with cluster.operator() as operator:
            signed = await operator.create_task(draft(cluster.shuffler_key, **fields | _TASK))
        digest, rng, count = signed.digest(), np.random.default_rng(1), 2 * (_DEVICES + _RELAYED)
        ids = [rng.bytes(SUBMISSION_ID_BYTES) for _ in range(count)]
        group = GroupContributor(Task.from_bytes(signed.task_bytes), digest)
        envelopes = iter(group.prepare_group([0] * count, ids, rng))
        shuffler = Destination(cluster.shuffler.address, cluster.authority.read_bytes())
        process = psutil.Process(cluster.shuffler.process.pid)

        async def submit(envelope: bytes) -> None:
            async with shuffler.open() as channel:
                stub = shuffler_pb2_grpc.ShufflerStub(channel)
                await stub.FetchTask(shuffler_pb2.FetchTaskRequest(task_digest=digest))
                request = shuffler_pb2.SubmitRequest(task_digest=digest, envelope=envelope)
                await stub.Submit(request)

        async def devices() -> None:
            await _at_once(_DEVICES_AT_ONCE, map(submit, islice(envelopes, _DEVICES)))

        async def relays() -> None:
            async with shuffler.open() as channel:
                bulk = shuffler_pb2_grpc.ShufflerStub(channel).SubmitBulk

                async def relay(sent: list[bytes]) -> None:
                    await bulk(shuffler_pb2.SubmitBulkRequest(task_digest=digest, envelopes=sent))

                calls = (list(islice(envelopes, _CALL)) for _ in range(_RELAYED // _CALL))
                await _at_once(_CALLS_AT_ONCE, map(relay, calls))

        async def measure(
            work: Callable[[], Coroutine[Any, Any, None]], submissions: int
        ) -> tuple[float, float, float]:
            """
            Return the costs per submission of a second run.

            These are openings of the service's own process, openings of its workers, and bytes.
            """
            await work()
            with _opening_rate() as rates:
                before = (*_cpu_seconds(process), _loopback_bytes())
                await work()
                after = (*_cpu_seconds(process), _loopback_bytes())
            own, workers, sent = ((b - a) / submissions for a, b in zip(before, after, strict=True))
            return mean(rates) * own, mean(rates) * workers, sent

        device, _, sent = await measure(devices, _DEVICES)
        relay, workers, relayed = await measure(relays, _RELAYED)
        memory = process.memory_info().rss
    return {
        "device": device,
        "connection": sent - relayed,
        "relay": relay,
        "relay envelope": workers,
        "process memory": memory,
    }


# --- a batch, part by part ----------------------------------------------------


async def _store(case: PublishedTask, folder: Path, n_users: int, pool: HpkePool) -> ShuffleJob:
    """Store a batch of sealed random reports, and plan its shuffle."""
    task, rng, store = case.task, np.random.default_rng(1), SqliteStore(folder / "spool.sqlite")
    await store.open_batch(_ID, case.signed)
    key, context = case.analyzer_key.public_key(), report_context(case.signed.digest())
    plain = mechanism_of(task).dummies(n_users * task.reports_per_user, rng).tobytes()
    step = _CALL * task.reports_per_user * task.mechanism.report_bytes
    chunks = (plain[at : at + step] for at in range(0, len(plain), step))
    sealing = (pool.seal(key, chunk, task.mechanism.report_bytes, context) for chunk in chunks)
    for sealed in pool.in_order(sealing):
        users = split_every(sealed, task.reports_per_user * task.sealed_report_bytes)
        group, _ = form_group([rng.bytes(SUBMISSION_ID_BYTES) + user for user in users], _KEY)
        await store.append(Arrival(batch_id=_ID, key=_KEY, groups=[group], in_time=True))
    source = store.group_source()
    store.close()
    return ShuffleJob.plan(
        batch_id=_ID,
        signed=case.signed,
        n_users=n_users,
        key=_KEY,
        seed=bytes(32),
        source=source,
        blocks=(folder / "blocks").as_uri(),
    )


async def _run(
    case: PublishedTask,
    shuffle: ShuffleJob,
    n_reports: int,
    executor: Executor,
    clock: Callable[[], float],
) -> dict[str, float]:
    """Run all parts of a batch; return the seconds of each cost on `clock`."""
    n_buckets, n_ranges = shuffle.n_buckets, range_count(n_reports)
    proofs = ProofJob(
        batch_id=_ID,
        key=shuffle.key,
        blocks=shuffle.blocks,
        proof_folder="proof",
        report_bytes=case.task.sealed_report_bytes,
        salt=bytes(SALT_BYTES),
        n_parts=n_buckets,
        n_ranges=n_ranges,
    )
    analyzer = AnalyzerParts(
        batch_id=_ID,
        signed=case.signed,
        batch_key=shuffle.key,
        private_key=case.analyzer_key.private_bytes(),
        blocks=shuffle.blocks,
        n_parts=n_buckets,
        n_ranges=n_ranges,
    )
    seconds: dict[str, float] = {}

    async def stage(cost: str, work: Any, job: Any, n_parts: int) -> list[Any]:
        started = clock()
        found = await executor.run(work, job, range(n_parts))
        seconds[cost] = seconds.get(cost, 0.0) + clock() - started
        return found

    thrown = await stage("throw", ShuffleJob.throw, shuffle, shuffle.n_parts)
    await stage("permute", ShuffleJob.permute, shuffle, n_buckets)
    await stage("prove", ProofJob.split, proofs, n_buckets)
    n_leaves = sum(await stage("prove", ProofJob.merge, proofs, n_ranges))
    proofs = replace(proofs, bits=bits_for(n_leaves))
    await stage("prove", ProofJob.hash_buckets, proofs, proofs.n_subtrees)
    await stage("split", AnalyzerParts.split, analyzer, n_buckets)
    await stage("merge", AnalyzerParts.merge, analyzer, n_ranges)
    opened = await stage("open", AnalyzerParts.open, analyzer, n_ranges)
    assert sum(arrived for arrived, _, _ in thrown) == n_leaves == sum(opened) == n_reports
    return seconds


async def _parts(n_reports: int, folder: Path) -> dict[str, float]:
    """Return the costs of a batch's parts, which run one after the other on one core."""
    case, pool = published(**_TASK), HpkePool(_WORKERS)
    job = await _store(case, folder, n_reports // case.task.reports_per_user, pool)
    pool.close()
    with _opening_rate() as rates:
        seconds = await _run(case, job, n_reports, InlineExecutor(), time.process_time)
    return {cost: mean(rates) * spent / n_reports for cost, spent in seconds.items()}


async def _two_workers(n_reports: int, folder: Path) -> dict[str, float]:
    """Predict the duration of a batch's parts on two workers, and measure it."""
    case, pool = published(**_TASK), HpkePool(_WORKERS)  # sealing starts the workers
    job = await _store(case, folder, n_reports // case.task.reports_per_user, pool)
    with _opening_rate() as rates:
        executor = LocalExecutor(pool)
        stages = await _run(case, job, n_reports, executor, time.perf_counter)
    pool.close()
    rate, measured = mean(rates), sum(stages.values())
    workload = Workload(reports_per_day=n_reports, deadline_hours=24, opening_rate=rate)
    predicted = replace(batch_seconds(workload), deliver=0.0).with_workers(_WORKERS)
    return {
        "reports": n_reports,
        "opening_rate": rate,
        "predicted_s": predicted,
        "measured_s": measured,
        "prediction_over_measured": predicted / measured,
        **{f"{cost}_s": seconds for cost, seconds in stages.items()},
    }


def _print_costs(costs: Mapping[str, float], line: Line) -> None:
    """Print each measured cost beside the shipped one."""
    for name, measured in costs.items():
        shipped = COSTS[name]
        line(
            f"capacity: {name}",
            measured=measured,
            shipped=shipped.value,
            measured_over_shipped=measured / shipped.value,
            unit=shipped.unit,
        )


def test_costs_of_submissions(tmp_path: Path, best: Best, line: Line) -> None:
    """At a running shuffler, over TLS."""
    best(1, lambda: _print_costs(asyncio.run(_submissions(tmp_path)), line))


def test_costs_of_parts(tmp_path: Path, best: Best, line: Line) -> None:
    """Every stage of a batch."""
    best(1, lambda: _print_costs(asyncio.run(_parts(_REPORTS, tmp_path)), line))


def test_two_workers(tmp_path: Path, best: Best, line: Line) -> None:
    """The shipped costs predict a batch's duration within a quarter."""
    found: list[dict[str, float]] = []
    best(1, lambda: found.append(asyncio.run(_two_workers(_REPORTS, tmp_path))))
    line("capacity: two workers", **found[0])
    assert 1 == pytest.approx(found[0]["prediction_over_measured"], abs=0.25)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(asyncio.run(_two_workers(int(sys.argv[1]), Path(scratch)))))
