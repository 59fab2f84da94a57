"""Batches are shuffled on an engine as on one machine, whatever dies meanwhile."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, Literal

import numpy as np
import pytest
import pytest_asyncio

from common.crypto.batch_key import BatchKey
from common.crypto.hpke_pool import HpkePool
from common.errors import EngineAwayError
from common.messages.batch import BatchId
from common.messages.inclusion_proof import bits_for
from common.runtime.blocks import FolderBlocks
from common.runtime.clock import SystemClock
from common.runtime.executor import Executor, LocalExecutor, PartMetrics
from common.runtime.jobs import OfferedJobs
from common.runtime.metrics import ProcessMetrics
from common.task.task import SUBMISSION_ID_BYTES
from shuffler.proof_job import ProofJob
from shuffler.shuffle import shuffle
from shuffler.shuffle_job import PERMUTED, ShuffleJob
from shuffler.storage.group import form_group
from shuffler.storage.sqlite_store import SqliteStore
from shuffler.storage.submission_store import Arrival
from tests.support.scrapes import series_of
from tests.support.tasks import published

pytest.importorskip("distributed")
from common.runtime.engine import EngineExecutor
from tests.support.dying_workers import MARKS, run_and_die_once
from tests.support.engines import Engine, coordinator

_KEY: Final = BatchKey(bytes(32))
_BATCH: Final = BatchId(bytes(range(16)))
_CASE: Final = published()
_USERS: Final = 300
_AWAY: Final[tuple[tuple[Literal["scheduler", "workers"], str], ...]] = (
    ("workers", "no workers"),
    ("scheduler", "does not answer"),
)
_STAGES: Final = ("throw", "permute", "split", "merge", "hash_buckets")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Party:
    """A shuffler with a stored batch, and its engine."""

    folder: Path
    engine: Engine
    jobs: OfferedJobs
    coordinator: str
    metrics: ProcessMetrics
    executor: EngineExecutor

    @property
    def marks(self) -> Path:
        return self.folder / "marks"

    def job(self, blocks: str, store: SqliteStore) -> ShuffleJob:
        job = ShuffleJob.plan(
            batch_id=_BATCH,
            task_bytes=_CASE.signed.task_bytes,
            n_users=_USERS,
            key=_KEY,
            seed=bytes(range(32)),
            source=store.group_source(),
            blocks=FolderBlocks(self.folder / blocks),
        )
        return dataclasses.replace(job, n_parts=3, n_buckets=4)


async def _store(folder: Path) -> SqliteStore:
    """Store a batch's submissions, ten to a group."""
    store, rng = SqliteStore(folder / "spool.sqlite", SystemClock()), np.random.default_rng(1)
    await store.open_batch(_BATCH, _CASE.signed)
    size = SUBMISSION_ID_BYTES + _CASE.task.reports_per_user * _CASE.task.sealed_report_bytes
    groups = [
        form_group([rng.bytes(size) for _ in range(10)], _KEY)[0] for _ in range(_USERS // 10)
    ]
    arrival = Arrival(batch_id=_BATCH, key=_KEY, groups=groups, deadline=2**40)
    await store.append(arrival)
    return store


@pytest_asyncio.fixture(loop_scope="session")
async def party(tmp_path: Path) -> AsyncIterator[_Party]:
    """A coordinator with an engine of two workers."""
    (tmp_path / "marks").mkdir()
    jobs, environment = OfferedJobs(), dict[str, str]()
    engine = Engine(tmp_path, environment)
    metrics = ProcessMetrics("shuffler", SystemClock())
    parts = PartMetrics(metrics.metrics, SystemClock())
    files = engine.files("coordinator")
    async with coordinator(files, jobs) as address:
        settings = {
            "role": "worker",
            "coordinator": address,
            "internal_tls_directory": str(engine.certificates),
            "blocks": (tmp_path / "engine").as_uri(),
            "state_directory": str(tmp_path),
            "plaintext": "true",
            "analyzer": "127.0.0.1:1",
            "analyzer_identity": "0" * 64,
        }
        environment |= {f"SHUFFLEDP_SHUFFLER_{name.upper()}": settings[name] for name in settings}
        environment[MARKS] = str(tmp_path / "marks")
        await engine.start_scheduler()
        for _ in range(2):
            engine.start_worker()
        executor = EngineExecutor(engine.address, files, run_and_die_once, jobs, parts, patience=4)
        try:
            yield _Party(
                folder=tmp_path,
                engine=engine,
                jobs=jobs,
                coordinator=address,
                metrics=metrics,
                executor=executor,
            )
        finally:
            await executor.close()
            engine.stop()


async def _run(job: ShuffleJob, executor: Executor) -> list[object]:
    """Run all stages; return their results and blocks."""
    summary = await shuffle(job, _USERS, executor)
    proof = ProofJob(
        batch_id=_BATCH,
        key=job.key,
        blocks=job.blocks,
        proof_folder="proof",
        report_bytes=_CASE.task.sealed_report_bytes,
        salt=bytes(32),
        n_parts=job.n_buckets,
        n_ranges=2,
    )
    await executor.run(ProofJob.split, proof, range(proof.n_parts))
    leaves = await executor.run(ProofJob.merge, proof, range(proof.n_ranges))
    proof = dataclasses.replace(proof, bits=bits_for(sum(leaves)))
    hashes = await executor.run(ProofJob.hash_buckets, proof, range(proof.n_subtrees))
    blocks = job.sealed_blocks()
    permuted = [blocks.get(f"{PERMUTED}/{bucket}") for bucket in range(job.n_buckets)]
    return [summary.n_reports, permuted, leaves, hashes]


async def test_an_engine_computes_what_one_machine_computes(party: _Party) -> None:
    """A worker dies in each stage, and the scheduler with all workers in one."""
    store, pool = await _store(party.folder), HpkePool(1)
    own = PartMetrics(ProcessMetrics("shuffler", SystemClock()).metrics, SystemClock())
    expected = await _run(party.job("pool", store), LocalExecutor(pool=pool, metrics=own))
    waits = party.marks / "permute.wait"
    waits.touch()
    running = asyncio.create_task(_run(party.job("engine", store), party.executor))
    async with asyncio.timeout(120):
        while not (party.marks / "permute").exists():
            await asyncio.sleep(0.05)
        party.engine.kill("scheduler")
        waits.unlink()
        await party.engine.start_scheduler()
        for _ in range(2):
            party.engine.start_worker()
        found = await running
        while series_of(party.metrics.metrics).get(("shuffledp_engine_workers", ())) != 2:
            await asyncio.sleep(0.05)
    pool.close()
    store.close()

    assert expected == found
    assert {*_STAGES} == {path.name for path in party.marks.iterdir()}
    retried = ("shuffledp_parts_retried_total", (("stage", "permute"),))
    assert series_of(party.metrics.metrics)[retried] > 0


async def test_an_engine_that_is_away_or_without_workers_is_an_error(party: _Party) -> None:
    """It is raised after a while, so that the batch is tried again and its operator told."""
    store = await _store(party.folder)
    job = party.job("engine", store)
    store.close()
    for away, message in _AWAY:
        party.engine.kill(away)
        with pytest.raises(EngineAwayError, match=message):
            await party.executor.run(ShuffleJob.throw, job, range(3))
