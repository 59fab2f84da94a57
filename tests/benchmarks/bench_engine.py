"""
A batch on an engine of two workers, beside one in a pool of two: seconds without the starts.

A shuffle alone takes a third of a second for a million reports, and the engine adds about 0.05 s to
each stage; counting, which is nearly all of the work on a batch, shows little of it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from shuffledp.analyzer.worker import run_part as run_analyzer_part
from shuffledp.common.crypto.hpke import split_every
from shuffledp.common.crypto.hpke_pool import HpkePool
from shuffledp.common.runtime.blocks import FolderBlocks
from shuffledp.common.runtime.parts.executor import Executor, LocalExecutor
from shuffledp.shuffler.shuffle_job import shuffle
from shuffledp.shuffler.worker import run_part as run_shuffler_part
from tests.benchmarks.conftest import Best, Line
from tests.support.count_jobs import count, job_over
from tests.support.part_metrics import part_metrics
from tests.support.tasks import published

pytest.importorskip("distributed")
from tests.support.engines import engine_party, stored_job

_REPORTS: Final = 1_000_000
_ROUNDS: Final = 5
_CASE: Final = published(domain_size=915, buckets=53, dummies_per_user=0, delta=1e-8)


async def _seconds(work: Awaitable[object]) -> float:
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


async def _compare(
    rounds: int, run: Callable[[Executor, str], Awaitable[object]], engine: Executor
) -> dict[str, float]:
    """Return the shortest of alternating rounds, and the first, which starts workers."""
    pool = HpkePool(2)
    local = LocalExecutor(pool=pool, metrics=part_metrics())
    found = np.array(
        [
            [await _seconds(run(local, "pool")), await _seconds(run(engine, "engine"))]
            for _ in range(1 + rounds)
        ]
    )
    pool.close()
    first, (on_pool, on_engine) = found[0], found[1:].min(axis=0)
    return {
        "reports": _REPORTS,
        "pool_s": on_pool,
        "engine_s": on_engine,
        "share_of_pools_rate": on_pool / on_engine,
        "pool_first_s": first[0],
        "engine_first_s": first[1],
    }


async def _shuffles(folder: Path) -> dict[str, float]:
    job = await stored_job(folder, _CASE, _REPORTS, 1000)
    async with engine_party(folder, run_shuffler_part, {}) as party:
        return await _compare(
            _ROUNDS,
            lambda executor, blocks: shuffle(
                replace(job, blocks=FolderBlocks(folder / blocks)), _REPORTS, executor
            ),
            party.executor,
        )


async def _counts(folder: Path) -> dict[str, float]:
    """Count random bytes, which are opened in vain at the same cost."""
    size, rng = _CASE.task.sealed_report_bytes, np.random.default_rng(1)
    sealed = split_every(rng.bytes(size * _REPORTS), size)
    jobs = {name: job_over(folder / name, _CASE, sealed, 4) for name in ("pool", "engine")}
    async with engine_party(folder, run_analyzer_part, {}, party="analyzer") as party:
        return await _compare(
            1, lambda executor, blocks: count(jobs[blocks], executor), party.executor
        )


@pytest.mark.parametrize("work", [_shuffles, _counts])
def test_engine(
    work: Callable[[Path], Coroutine[None, None, dict[str, float]]],
    best: Best,
    line: Line,
    tmp_path: Path,
) -> None:
    """A million reports."""
    figures: list[dict[str, float]] = []
    best(1, lambda: figures.append(asyncio.run(work(tmp_path))))
    line(f"{work.__name__.strip('_')} on an engine", **figures[0])
