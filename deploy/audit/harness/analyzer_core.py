"""The analyzer's core in this process: the deployed classes over files, without a server."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from analyzer.budgets import ReleaseBudgets
from analyzer.metrics import ReleaseMetrics
from analyzer.registry import AnalyzerKeys, Registry
from analyzer.release import Releases
from analyzer.staging import Staging
from analyzer.storage import task_table
from analyzer.storage.store import Store
from common.crypto.key_ring import DAY, Schedule
from common.crypto.signing import SignedTask
from common.runtime.metrics import ProcessMetrics
from common.runtime.state_directory import StateDirectory
from common.task.draft import TaskDraft
from common.task.task import Task
from deploy.audit.harness.clock import ManualClock
from deploy.audit.harness.pools import InlinePool

SCHEDULE: Final = Schedule(lifetime=90 * DAY, overlap=2 * DAY, retention=30 * DAY)
_PATIENCE: Final = 60.0
"""Timeout in seconds."""


@dataclass
class AnalyzerCore:
    """The analyzer's core; `signed` and `task` hold the last published task."""

    path: Path
    most_refused_share: float = 0.05

    def open_files(self) -> None:
        """Open the keys and the database."""
        self.clock = ManualClock()
        self.keys = AnalyzerKeys.load(StateDirectory.open(self.path), SCHEDULE, self.clock.now())
        self.store = Store(self.path / "analyzer.sqlite")

    async def start(self) -> None:
        """Start, or restart after a crash."""
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
            rng=np.random.default_rng(1),
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
            rng=np.random.default_rng(3),
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

    async def publish(self, wanted: TaskDraft) -> SignedTask:
        """Publish a draft, and return the signed task."""
        self.signed = await self.registry.publish(wanted)
        self.task = Task.from_bytes(self.signed.task_bytes)
        return self.signed

    async def settle(self) -> None:
        """Wait until no release is in progress."""
        async with asyncio.timeout(_PATIENCE):
            await self.releases.settled()

    async def stop(self) -> None:
        """Stop, and close the database."""
        await self.releases.stop()
        self.store.close()


async def chunks_of(sealed: list[bytes], size: int = 3) -> AsyncIterator[bytes]:
    """Yield sealed reports a few at a time."""
    for start in range(0, len(sealed), size):
        yield b"".join(sealed[start : start + size])
