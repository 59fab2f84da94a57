"""
Run the parts of a batch in this machine's worker processes.

A job holds all that a batch's parts are computed from; its methods are the stages, each a pure
function of a part's number. Parts exchange data through blocks and return only small
results, which stay within the party, so a part can be computed again anywhere, any number of times.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator, Iterable
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from shuffledp.common.crypto.batch_key import BatchKey
from shuffledp.common.crypto.hpke_pool import HpkePool
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.runtime.blocks import Blocks, SealedBlocks
from shuffledp.common.runtime.clock import Clock
from shuffledp.common.runtime.metrics import MetricRow, Metrics

J = TypeVar("J", bound="Job")
T = TypeVar("T")

ATTEMPTS: Final = 5
"""Attempts at one part; a part that ends its worker each time fails."""
_STUCK_SECONDS: Final = 600.0
"""Seconds after which a part counts as stuck."""
PARTS_AHEAD: Final = 2
"""Parts submitted per worker, so that none waits for the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a batch's parts are computed from. Picklable; hides secrets in repr."""

    batch_id: BatchId
    key: bytes = field(repr=False)
    """Key that the batch's blocks are sealed under."""
    blocks: Blocks

    @property
    def folder(self) -> str:
        """The batch's folder of blocks."""
        return self.batch_id.hex()

    def sealed_blocks(self) -> SealedBlocks:
        """Open the batch's blocks."""
        return SealedBlocks(self.blocks, self.folder, BatchKey(self.key))


class Executor(ABC):
    """Runs parts."""

    @abstractmethod
    async def run(self, stage: Callable[[J, int], T], job: J, parts: Iterable[int]) -> list[T]:
        """
        Run a stage, a method of the job's class, for each part; return the results in order.

        Raises the first error of a part; a part whose worker dies is computed again.
        """

    async def forget_keys(self) -> None:  # noqa: B027  # only an engine needs it
        """Replace workers that may hold a destroyed key in memory, as soon as possible."""


_STAGES: Final = (
    *("seal_dummies", "scatter", "permute"),
    *("split", "merge", "hash_buckets"),
    *("match", "count", "open"),
)
"""Names of the methods that are stages, of both parties' jobs."""
OF_PARTS: Final = (
    MetricRow("shuffledp_parts_running", "Parts of batches that are being computed."),
    MetricRow("shuffledp_parts_stuck", "Parts that have been computed for over ten minutes."),
    MetricRow(
        "shuffledp_parts_retried_total",
        "Parts computed again, after their worker died.",
        {"stage": _STAGES},
    ),
    MetricRow(
        "shuffledp_engine_workers",
        "Workers of the engine; 0 while it does not answer.",
        absent=True,
    ),
)


class PartMetrics:
    """Counts the parts that run, and those that are computed again."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._started: list[float] = []
        metrics.on_collect(self._measure)

    @contextmanager
    def running(self) -> Generator[None]:
        """Count a part while it runs."""
        started = self._clock.elapsed()
        self._started.append(started)
        try:
            yield
        finally:
            self._started.remove(started)

    def record_retry(self, stage: str) -> None:
        """Record that a part is computed again, after its worker died."""
        self._metrics.add("shuffledp_parts_retried_total", 1, {"stage": stage})

    def watch_workers(self, workers: Callable[[], int | None]) -> None:
        """Measure the number of an engine's workers; None before the first connection."""

        def measure() -> None:
            if (found := workers()) is not None:
                self._metrics.set("shuffledp_engine_workers", found)

        self._metrics.on_collect(measure)

    def _measure(self) -> None:
        """Count on a copy, since this runs in the metrics server's thread."""
        started, now = list(self._started), self._clock.elapsed()
        self._metrics.set("shuffledp_parts_running", len(started))
        stuck = sum(now - since > _STUCK_SECONDS for since in started)
        self._metrics.set("shuffledp_parts_stuck", stuck)


async def gather(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines together; return their results, or cancel the rest and raise one's error."""
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as errors:
        first = errors.exceptions[0]
        raise first from first.__cause__
    return [task.result() for task in running]


class LocalExecutor(Executor):
    """
    Runs parts in worker processes of this machine.

    The pool replaces its workers itself when a key is destroyed, and its owner closes it.
    """

    def __init__(self, pool: HpkePool, metrics: PartMetrics) -> None:
        self._pool = pool
        self._metrics = metrics
        self._slots = asyncio.Semaphore(PARTS_AHEAD * pool.processes)

    async def run(self, stage: Callable[[J, int], T], job: J, parts: Iterable[int]) -> list[T]:
        return await gather(self._run_part(stage, job, part) for part in parts)

    async def _run_part(self, stage: Callable[[J, int], T], job: J, part: int) -> T:
        async with self._slots:
            with self._metrics.running():
                for _ in range(ATTEMPTS - 1):
                    try:
                        return await asyncio.wrap_future(self._pool.submit(stage, job, part))
                    except BrokenProcessPool:
                        self._metrics.record_retry(stage.__name__)
                return await asyncio.wrap_future(self._pool.submit(stage, job, part))
