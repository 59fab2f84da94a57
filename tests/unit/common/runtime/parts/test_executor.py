import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shuffledp.analyzer.count_job import CountJob
from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.crypto.hpke_pool import HpkePool
from shuffledp.common.errors import StorageError
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.runtime.blocks import FolderBlocks
from shuffledp.common.runtime.metrics import Metrics
from shuffledp.common.runtime.parts.executor import Job, LocalExecutor, PartMetrics, gather
from shuffledp.shuffler.inclusion import ProofJob
from shuffledp.shuffler.metrics import METRICS
from shuffledp.shuffler.relay.layer_jobs import LayerJob
from shuffledp.shuffler.shuffle_job import ShuffleJob
from tests.support.scrapes import series_of


@dataclass(frozen=True, kw_only=True)
class _Job(Job):
    """Parts that fail in each way."""

    path: Path

    def scatter(self, part: int) -> int:
        """Square a number."""
        return part * part

    def permute(self, part: int) -> int:
        """End the worker at the first two attempts."""
        for attempt in ("first", "second"):
            mark = self.path / f"{part}-{attempt}"
            if not mark.exists():
                mark.touch()
                os._exit(1)
        return part

    def split(self, part: int) -> int:
        """End the worker."""
        os._exit(part)

    def merge(self, part: int) -> int:
        """Fail for the second part."""
        if part == 1:
            raise StorageError("the disk is full")
        return part


def _job(path: Path) -> _Job:
    return _Job(batch_id=BatchId(bytes(16)), key=bytes(32), blocks=FolderBlocks(path), path=path)


@pytest.fixture
def metrics() -> Metrics:
    """A shuffler's metrics."""
    return Metrics(METRICS)


@pytest.fixture
async def executor(metrics: Metrics) -> AsyncIterator[LocalExecutor]:
    """An executor with two workers."""
    pool = HpkePool(2)
    yield LocalExecutor(pool=pool, metrics=PartMetrics(metrics, ManualClock()))
    pool.close()


async def test_results_have_the_order_of_the_parts(executor: LocalExecutor, tmp_path: Path) -> None:
    """More parts than workers."""
    assert [n * n for n in range(20)] == await executor.run(_Job.scatter, _job(tmp_path), range(20))
    assert [] == await executor.run(_Job.scatter, _job(tmp_path), range(0))


async def test_a_part_whose_worker_dies_is_computed_again(
    executor: LocalExecutor, metrics: Metrics, tmp_path: Path
) -> None:
    """Its worker dies twice, which is counted."""
    assert [0] == await executor.run(_Job.permute, _job(tmp_path), range(1))

    retried = ("shuffledp_parts_retried_total", (("stage", "permute"),))
    assert 2 == series_of(metrics)[retried]


def test_retries_are_counted_by_the_stages_of_the_jobs() -> None:
    """Each label is the name of a job's method."""
    [row] = [row for row in METRICS if row.name == "shuffledp_parts_retried_total"]
    methods = {*dir(ShuffleJob), *dir(ProofJob), *dir(CountJob), *dir(LayerJob)}
    assert set() == set(row.labels["stage"]) - methods


def test_a_part_counts_as_stuck_after_ten_minutes(metrics: Metrics) -> None:
    """It counts as running from its start to its end."""
    clock = ManualClock()
    parts = PartMetrics(metrics, clock)

    def counted() -> tuple[float, float]:
        series = series_of(metrics)
        return series["shuffledp_parts_running", ()], series["shuffledp_parts_stuck", ()]

    with parts.running():
        clock.seconds += 600
        with parts.running():
            assert (2, 0) == counted()
            clock.seconds += 1
            assert (2, 1) == counted()
    assert (0, 0) == counted()


@pytest.mark.slow
async def test_a_part_that_always_ends_its_worker_fails(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    """The executor remains usable."""
    with pytest.raises(Exception, match="terminated abruptly"):
        await executor.run(_Job.split, _job(tmp_path), range(1))
    assert [0, 1] == await executor.run(_Job.scatter, _job(tmp_path), range(2))


async def test_the_error_of_a_part_is_raised_as_it_is(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    """It is not computed again: the caller decides."""
    with pytest.raises(StorageError, match="the disk is full"):
        await executor.run(_Job.merge, _job(tmp_path), range(3))


async def test_the_first_error_cancels_the_others() -> None:
    """Nothing runs on after the caller has its error."""
    ended = []

    async def waits() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    async def fails() -> None:
        await asyncio.sleep(0)
        raise StorageError("the disk is full")

    with pytest.raises(StorageError):
        await gather([waits(), fails()])
    assert ["cancelled"] == ended
