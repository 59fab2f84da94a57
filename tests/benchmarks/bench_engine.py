"""
A shuffle on an engine of two workers, beside one in a pool of two: seconds without the starts.

They alternate, since machines are noisy.
"""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from common.crypto.hpke_pool import HpkePool
from common.runtime.blocks import FolderBlocks
from common.runtime.clock import SystemClock
from common.runtime.executor import Executor, LocalExecutor, PartMetrics
from common.runtime.metrics import ProcessMetrics
from shuffler.shuffle import shuffle
from shuffler.shuffle_job import ShuffleJob
from shuffler.worker import run_part
from tests.benchmarks.conftest import Best, Line
from tests.support.tasks import published

pytest.importorskip("distributed")
from tests.support.engines import engine_party, stored_job

_USERS: Final = 1_000_000
_ROUNDS: Final = 5
_CASE: Final = published(domain_size=915, buckets=53, dummies_per_user=0, delta=1e-8)


async def _seconds(job: ShuffleJob, executor: Executor) -> float:
    started = time.perf_counter()
    await shuffle(job, _USERS, executor)
    return time.perf_counter() - started


async def _compared(folder: Path) -> dict[str, float]:
    job, pool = await stored_job(folder, _CASE, _USERS, 1000), HpkePool(2)
    own = PartMetrics(ProcessMetrics("shuffler", SystemClock()).metrics, SystemClock())
    local = LocalExecutor(pool=pool, metrics=own)
    on_engine = replace(job, blocks=FolderBlocks(folder / "engine"))
    async with engine_party(folder, run_part, {}) as party:
        first = [await _seconds(job, local), await _seconds(on_engine, party.executor)]
        rounds = [
            (await _seconds(job, local), await _seconds(on_engine, party.executor))
            for _ in range(_ROUNDS)
        ]
    pool.close()
    best = [min(seconds) for seconds in zip(*rounds, strict=True)]
    return {
        "reports": _USERS * _CASE.task.lengths[-1],
        "parts": job.n_parts,
        "pool_s": best[0],
        "engine_s": best[1],
        "share_of_pools_rate": best[0] / best[1],
        "pool_first_s": first[0],
        "engine_first_s": first[1],
    }


def test_engine(best: Best, line: Line, tmp_path: Path) -> None:
    """A million reports."""
    figures: list[dict[str, float]] = []
    best(1, lambda: figures.append(asyncio.run(_compared(tmp_path))))
    line("a shuffle on an engine", **figures[0])
