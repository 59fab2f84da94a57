"""An analyzer's core, with an opening pool that counts what it is asked to open."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from analyzer.budgets import Spending
from analyzer.metrics import ReleaseMetrics
from analyzer.registry import AnalyzerKeys, Registry, Sentinels
from analyzer.release import Releases
from analyzer.staging import Staging
from analyzer.storage.store import Store
from common.crypto.hpke import HpkePrivateKey, SealContext, report_context
from common.crypto.hpke_pool import Opened
from common.crypto.signing import SignedTask
from common.mechanisms.registry import mechanism_of
from common.messages.batch import BatchId, BatchManifest
from common.runtime.process_metrics import ProcessMetrics
from common.runtime.state_directory import StateDirectory
from common.task.task import Task
from tests.support.clocks import ManualClock
from tests.support.keys import SCHEDULE
from tests.support.pools import InlinePool
from tests.support.tasks import draft

BATCH: Final = BatchId(b"b" * 16)
_PATIENCE: Final = 30.0


class CountingPool(InlinePool):
    """Counts the chunks that it opens."""

    opened = 0

    def open(
        self, key: HpkePrivateKey, sealed: bytes, sealed_bytes: int, context: SealContext
    ) -> Future[Opened]:
        """Open one chunk; see HpkePool."""
        self.opened += 1
        return super().open(key, sealed, sealed_bytes, context)


@dataclass
class AnalyzerCore:
    """An analyzer's core; `signed` and `task` are the last task that was published."""

    path: Path
    most_refused_share: float = 0.05

    async def start(self) -> None:
        """Start, or start again after a crash."""
        self.clock = ManualClock()
        self.keys = AnalyzerKeys.load(StateDirectory.open(self.path), SCHEDULE, self.clock.now())
        self.store = Store(self.path / "analyzer.sqlite")
        head = await self.store.check_ledger()
        self.spending = Spending(self.store)
        self.process_metrics = ProcessMetrics("analyzer", self.clock)
        self.metrics = ReleaseMetrics(self.process_metrics)
        self.registry = Registry(
            store=self.store,
            spending=self.spending,
            keys=self.keys,
            clock=self.clock,
            rng=np.random.default_rng(1),
            metrics=self.metrics,
        )
        self.metrics.resume(
            await self.store.batch_states(), await self.store.deadlines(), head.entry
        )
        self.pool = CountingPool()
        self.staging = Staging(
            store=self.store,
            registry=self.registry,
            spending=self.spending,
            identity=self.keys.identity,
            rng=np.random.default_rng(3),
            metrics=self.metrics,
        )
        self.releases = Releases(
            store=self.store,
            registry=self.registry,
            spending=self.spending,
            keys=self.keys,
            pool=self.pool,
            most_refused_share=self.most_refused_share,
            staging=self.staging,
            metrics=self.metrics,
        )
        self.sentinels = Sentinels(self.store, self.registry)

    async def publish(self, **changes: Any) -> SignedTask:
        """Publish a small task."""
        fields = {"n_min": 3, "target_size": 3} | changes
        self.signed = await self.registry.publish(draft(**fields))
        self.task = Task.from_bytes(self.signed.task_bytes)
        return self.signed

    def sealed(self, users: int, signed: SignedTask | None = None) -> list[bytes]:
        """Reports of some users who all hold item 0, and their dummies."""
        signed = signed or self.signed
        task = Task.from_bytes(signed.task_bytes)
        mechanism, rng = mechanism_of(task), np.random.default_rng(2)
        own = mechanism.randomize(np.zeros(users, np.int64), rng)
        reports = np.concatenate([own, mechanism.dummies(users, rng)])
        seal = self.keys.reports.public_key(task.suite).sealer(report_context(signed.digest()))
        return [seal(report.tobytes()) for report in reports]

    def manifest(
        self, users: int, *, batch: BatchId = BATCH, signed: SignedTask | None = None
    ) -> BatchManifest:
        """What the shuffler says of a batch."""
        digest = (signed or self.signed).digest()
        return BatchManifest(task_digest=digest, batch_id=batch, n_users=users, n_reports=2 * users)

    async def release(self, users: int, signed: SignedTask, *, spoiled: int = 0) -> None:
        """Deliver a batch of its own id, some of its reports unreadable, and wait."""
        sealed = self.sealed(users, signed)
        sealed[:spoiled] = [number.to_bytes(4) * 15 for number in range(spoiled)]
        manifest = self.manifest(users, batch=BatchId(signed.digest()[:16]), signed=signed)
        await self.releases.deliver(manifest, chunks_of(sealed))
        await self.settle()

    async def settle(self) -> None:
        """Wait until nothing is being released."""
        async with asyncio.timeout(_PATIENCE):
            while self.releases._releasing:
                await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Leave off, and close the file."""
        await self.releases.stop()
        self.store.close()


async def chunks_of(sealed: list[bytes], size: int = 3) -> AsyncIterator[bytes]:
    """Deliver sealed reports a few at a time."""
    for start in range(0, len(sealed), size):
        yield b"".join(sealed[start : start + size])
