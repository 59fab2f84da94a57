"""Batches are shuffled on an engine as on one machine, whatever dies meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import pytest
import pytest_asyncio

from shuffledp.common.crypto.hpke_pool import HpkePool
from shuffledp.common.errors import EngineAwayError
from shuffledp.common.messages.batch import BatchState
from shuffledp.common.messages.inclusion_proof import bits_for
from shuffledp.common.runtime.blocks import FolderBlocks
from shuffledp.common.runtime.metrics import Metrics
from shuffledp.common.runtime.parts.executor import Executor, LocalExecutor
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from shuffledp.shuffler.inclusion import ProofJob
from shuffledp.shuffler.shuffle_job import PERMUTED, ShuffleJob, shuffle
from tests.support.clients import DEADLINE, envelopes, final_state, result_of
from tests.support.part_metrics import part_metrics
from tests.support.scrapes import series_of
from tests.support.services import Services
from tests.support.tasks import published

pytest.importorskip("distributed")
from tests.support.dying_parts import MARKS, run_and_die_once
from tests.support.engines import Engine, EngineParty, engine_party, stored_job

_CASE: Final = published()
_USERS: Final = 300
_STAGES: Final = ("scatter", "permute", "split", "merge", "hash_buckets")
_AWAY: Final[tuple[tuple[Literal["scheduler", "workers"], str], ...]] = (
    ("workers", "no workers"),
    ("scheduler", "does not answer"),
)


@pytest_asyncio.fixture(loop_scope="session")
async def party(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EngineParty]:
    """A coordinator with an engine of two workers, which die once in each stage."""
    marks = tmp_path / "marks"
    marks.mkdir()
    patience = getattr(request, "param", 60)
    async with engine_party(tmp_path, run_and_die_once, {MARKS: str(marks)}, patience) as started:
        yield started


async def _job(party: EngineParty) -> ShuffleJob:
    return replace(await stored_job(party.folder, _CASE, _USERS, 10), n_parts=3, n_buckets=4)


async def _run(job: ShuffleJob, executor: Executor) -> list[object]:
    """Run all stages; return their results and blocks."""
    summary = await shuffle(job, _USERS, executor)
    proof = ProofJob(
        batch_id=job.batch_id,
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
    proof = replace(proof, bits=bits_for(sum(leaves)))
    hashes = await executor.run(ProofJob.hash_buckets, proof, range(proof.n_subtrees))
    blocks = job.sealed_blocks()
    permuted = [blocks.get(f"{PERMUTED}/{bucket}") for bucket in range(job.n_buckets)]
    return [summary.n_reports, permuted, leaves, hashes]


async def _see_both_workers(metrics: Metrics) -> None:
    while series_of(metrics).get(("shuffledp_engine_workers", ())) != 2:
        await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_an_engine_computes_what_one_machine_computes(party: EngineParty) -> None:
    """
    A worker dies in each stage, and the scheduler with all workers in one.

    The workers are counted before the first part. When a key is destroyed, both are replaced.
    """
    job, pool = await _job(party), HpkePool(1)
    expected = await _run(job, LocalExecutor(pool=pool, metrics=part_metrics()))
    pool.close()
    marks, metrics = party.folder / "marks", party.metrics.metrics
    waits = marks / "permute.wait"
    waits.touch()
    upkeep = asyncio.create_task(party.executor.keep_connected())
    on_engine = replace(job, blocks=FolderBlocks(party.folder / "engine"))
    async with asyncio.timeout(120):
        await _see_both_workers(metrics)
        running = asyncio.create_task(_run(on_engine, party.executor))
        while not (marks / "permute").exists():
            await asyncio.sleep(0.05)
        party.engine.kill("scheduler")
        waits.unlink()
        await party.engine.start_scheduler()
        party.engine.start_workers()
        found = await running
        await _see_both_workers(metrics)
        before = party.engine.worker_processes()
        after = before
        while len(before - after) < 2:  # one that has only just registered is not restarted
            await party.executor.forget_keys()
            after = party.engine.worker_processes()

    upkeep.cancel()
    assert len(after - before) >= 2
    assert expected == found
    assert {*_STAGES} == {path.name for path in marks.iterdir()}
    assert series_of(metrics)["shuffledp_parts_retried_total", (("stage", "permute"),)] > 0


@pytest.mark.slow
@pytest.mark.parametrize("party", [4], indirect=True)
async def test_an_engine_that_is_away_or_without_workers_is_an_error(party: EngineParty) -> None:
    """It is raised after a while, so that the batch is tried again and its operator told."""
    job = await _job(party)
    for away, message in _AWAY:
        party.engine.kill(away)
        with pytest.raises(EngineAwayError, match=message):
            await party.executor.run(ShuffleJob.scatter, job, range(3))


@pytest.mark.parametrize("party", ["shuffler", pytest.param("analyzer", marks=pytest.mark.slow)])
async def test_a_party_with_an_engine_shuffles_or_counts(tmp_path: Path, party: str) -> None:
    """Its worker fetches the jobs from the coordinator's internal service."""
    environment = dict[str, str]()
    services, engine = Services(tmp_path), Engine(tmp_path, environment)
    blocks, state = tmp_path / "blocks", tmp_path / party
    settings: dict[str, Any] = {
        "role": "coordinator",
        "coordinator_listen": "127.0.0.1:0",
        "internal_tls_directory": engine.certificates,
        "blocks": blocks.as_uri(),
        "executor": engine.address,
    }
    await engine.start_scheduler()
    try:
        await services.start_analyzer(**settings if party == "analyzer" else {})
        await services.start_shuffler(**settings if party == "shuffler" else {})
        address = (state / "coordinator_address").read_text(encoding="ascii")
        environment |= engine.settings(address, state, blocks, party)
        engine.start_workers(1)
        await services.start_user_agent()
        signed = await services.publish(n_min=30, target_size=30, local_epsilon=4.0)
        async with services.channel("shuffler", services.shuffler.address) as channel:
            stub = shuffler_pb2_grpc.ShufflerStub(channel)
            request = shuffler_pb2.SubmitBulkRequest(
                task_digest=signed.digest(), envelopes=envelopes(signed, 30)
            )
            await stub.SubmitBulk(request, timeout=DEADLINE)
        result = await result_of(services, signed)
        assert BatchState.ERASED is await final_state(services, signed)
        await services.stop()
    finally:
        engine.stop()

    assert (30, 60) == (result.n_users, result.n_reports)
    left = [f"proof-{signed.digest().hex()}"] if party == "shuffler" else []
    assert left == [path.name for path in blocks.iterdir()]
