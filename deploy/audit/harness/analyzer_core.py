"""The analyzer's core in this process: the deployed classes, without server or workers."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from analyzer.budgets import ReleaseBudgets
from analyzer.metrics import ReleaseMetrics
from analyzer.registry import AnalyzerKeys, Registry
from analyzer.release import Releases
from analyzer.staging import Staging
from analyzer.storage import task_table
from analyzer.storage.store import Store
from common.crypto.hpke import HpkePrivateKey, SealContext
from common.crypto.hpke_pool import HpkePool, Opened, open_each
from common.crypto.key_ring import DAY, Schedule
from common.crypto.signing import SignedTask
from common.runtime.metrics import ProcessMetrics
from common.runtime.state_directory import StateDirectory
from common.task.draft import TaskDraft
from common.task.task import Task
from deploy.audit.harness.clock import ManualClock

T = TypeVar("T")

SCHEDULE: Final = Schedule(lifetime=90 * DAY, overlap=2 * DAY, retention=30 * DAY)
_TIMEOUT: Final = 60.0
"""Timeout of a release, in seconds."""


def finished(result: T) -> Future[T]:
    """Return a completed future."""
    future: Future[T] = Future()
    future.set_result(result)
    return future


class InlinePool(HpkePool):
    """A pool that opens and seals in the caller's thread."""

    def __init__(self) -> None:
        self.processes = 2
        """Number of workers for which callers split their work."""
        self.opened = 0
        """Chunks opened so far."""

    def open(
        self, key: HpkePrivateKey, sealed: bytes, sealed_bytes: int, context: SealContext
    ) -> Future[Opened]:
        """Open one chunk."""
        self.opened += 1
        return finished(open_each(key, sealed, sealed_bytes, context))

    def open_and(
        self,
        key: HpkePrivateKey,
        work: Callable[[Opened], T],
        sealed: bytes,
        sealed_bytes: int,
        context: SealContext,
    ) -> Future[T]:
        """Open one chunk, then run `work` on it."""
        return finished(work(self.open(key, sealed, sealed_bytes, context).result()))


@dataclass
class AnalyzerCore:
    """The analyzer's core; `signed` and `task` hold the last published task."""

    path: Path
    most_refused_share: float = 0.05
    seeds: Iterator[int] = field(default_factory=lambda: itertools.count(1, 2))
    """Seeds of the generators; a restart uses new ones, so that no task repeats a nonce."""

    def open_files(self) -> None:
        """Open the keys and the database."""
        self.clock = ManualClock()
        self.keys = AnalyzerKeys.load(StateDirectory.open(self.path), SCHEDULE, self.clock.now())
        self.store = Store(self.path / "analyzer.sqlite")

    async def start(self) -> None:
        """Start the core, or restart it after a crash."""
        self.open_files()
        head = await self.store.check_ledger()
        self.budgets = ReleaseBudgets(self.store)
        self.process_metrics = ProcessMetrics("analyzer", self.clock)
        self.metrics = ReleaseMetrics(self.process_metrics)
        self.registry = Registry(
            store=self.store,
            budgets=self.budgets,
            keys=self.keys,
            clock=self.clock,
            rng=np.random.default_rng(next(self.seeds)),
            metrics=self.metrics,
        )
        self.metrics.resume(
            await self.store.batch_states(), await self.store.run(task_table.deadlines), head.entry
        )
        self.pool = InlinePool()
        self.staging = Staging(
            store=self.store,
            registry=self.registry,
            budgets=self.budgets,
            identity=self.keys.identity,
            rng=np.random.default_rng(next(self.seeds)),
            metrics=self.metrics,
        )
        self.releases = Releases(
            store=self.store,
            registry=self.registry,
            budgets=self.budgets,
            keys=self.keys,
            pool=self.pool,
            most_refused_share=self.most_refused_share,
            staging=self.staging,
            metrics=self.metrics,
        )

    async def publish(self, draft: TaskDraft) -> SignedTask:
        """Publish a draft, and return the signed task."""
        self.signed = await self.registry.publish(draft)
        self.task = Task.from_bytes(self.signed.task_bytes)
        return self.signed

    async def settle(self) -> None:
        """Wait until no release is in progress."""
        async with asyncio.timeout(_TIMEOUT):
            await self.releases.settled()

    async def stop(self) -> None:
        """Stop, and close the database."""
        await self.releases.stop()
        self.store.close()


async def chunks_of(sealed: list[bytes], size: int = 3) -> AsyncIterator[bytes]:
    """Yield chunks of `size` sealed reports, concatenated."""
    for start in range(0, len(sealed), size):
        yield b"".join(sealed[start : start + size])
