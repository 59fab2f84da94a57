"""An analyzer without its server: the deployed classes over files of their own."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np

from analyzer.budgets import Spending
from analyzer.metrics import ReleaseMetrics
from analyzer.registry import AnalyzerKeys, Registry, Sentinels
from analyzer.release import Releases
from analyzer.staging import Staging
from analyzer.storage.store import Store
from analyzer.storage.task_table import TaskLine
from common.crypto.key_ring import DAY, Schedule
from common.crypto.signing import SignedTask
from common.errors import BatchStateError as NotReleasedError
from common.messages.batch import BatchId, BatchManifest
from common.messages.inclusion_proof import BatchCommitment
from common.messages.result import Result
from common.runtime.process_metrics import ProcessMetrics as Vitals
from common.runtime.state_directory import StateDirectory
from common.task.task import NONCE_BYTES, Task
from common.task_digest import TaskDigest
from deploy.audit.integrity.rehearsed import published_under
from deploy.audit.stand_ins.in_place import InPlace
from deploy.audit.stand_ins.still_clock import StillClock

_SCHEDULE: Final = Schedule(lifetime=90 * DAY, overlap=2 * DAY, keep=30 * DAY)
_MOST_REFUSED_SHARE: Final = 0.05
"""What the service's settings say without being told."""
_LOOK: Final = 0.002
_PATIENCE: Final = 60.0
"""Seconds."""


class CountedFailures(ReleaseMetrics):
    """The analyzer's own metrics, of which one can be read here."""

    failures = 0
    """Releases that failed and are tried again later."""

    def failed(self, error: Exception) -> None:
        """Count a release that is tried again."""
        self.failures += 1
        super().failed(error)


@dataclass(frozen=True, kw_only=True)
class AnalyzerCore:
    """An analyzer's core."""

    path: Path
    """Its state directory."""
    keys: AnalyzerKeys
    store: Store
    registry: Registry
    staging: Staging
    releases: Releases
    sentinels: Sentinels
    metrics: CountedFailures

    @classmethod
    @asynccontextmanager
    async def started(
        cls, path: Path, clock: StillClock, rng: np.random.Generator
    ) -> AsyncIterator[Self]:
        """Start one on empty files, and stop it at the end."""
        keys = AnalyzerKeys.load(StateDirectory.open(path), _SCHEDULE, clock.now())
        store = Store(path / "analyzer.sqlite")
        spending, metrics = Spending(store), CountedFailures(Vitals("analyzer", clock))
        registry = Registry(
            store=store, spending=spending, keys=keys, clock=clock, rng=rng, metrics=metrics
        )
        staging = Staging(
            store=store,
            registry=registry,
            spending=spending,
            identity=keys.identity,
            rng=rng,
            metrics=metrics,
        )
        releases = Releases(
            store=store,
            registry=registry,
            spending=spending,
            keys=keys,
            pool=InPlace(),
            most_refused_share=_MOST_REFUSED_SHARE,
            staging=staging,
            metrics=metrics,
        )
        try:
            yield cls(
                path=path,
                keys=keys,
                store=store,
                registry=registry,
                staging=staging,
                releases=releases,
                sentinels=Sentinels(store, registry),
                metrics=metrics,
            )
        finally:
            await releases.stop()
            store.close()

    async def publish(
        self, task: Task, shuffler_key: bytes, rng: np.random.Generator
    ) -> SignedTask:
        """Publish a rehearsal, as the registry does with a draft that it has completed."""
        signed = self.keys.identity.sign(
            published_under(
                task,
                analyzer_key=self.keys.reports.public_key(task.suite).raw,
                shuffler_key=shuffler_key,
                nonce=rng.bytes(NONCE_BYTES),
            )
        )
        await self.store.add_task(signed, TaskLine.of(task))
        return signed

    async def take(
        self, manifest: BatchManifest, reports: Sequence[bytes]
    ) -> BatchCommitment | None:
        """Take a delivery, a few reports at a time."""
        return await self.releases.deliver(manifest, in_chunks(reports))

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Give a task; see shuffler.analyzer_client.Analyzer."""
        return await self.registry.get(digest)

    async def deliver(
        self, manifest: BatchManifest, chunks: AsyncIterator[bytes]
    ) -> BatchCommitment | None:
        """Take a delivery; see shuffler.analyzer_client.Analyzer."""
        return await self.releases.deliver(manifest, chunks)

    async def result(self, digest: TaskDigest) -> Result:
        """
        Wait for what a delivered batch comes to.

        Raises:
            UnusableBatchError: It is not released, and never will be.
        """
        async with asyncio.timeout(_PATIENCE):
            while True:
                try:
                    return await self.releases.result(digest)
                except NotReleasedError:
                    await asyncio.sleep(_LOOK)


async def in_chunks(reports: Sequence[bytes]) -> AsyncIterator[bytes]:
    """Give sealed reports a few at a time."""
    for start in range(0, len(reports), 100):
        yield b"".join(reports[start : start + 100])


def manifest_of(
    digest: TaskDigest, n_users: int, n_reports: int, batch: bytes = b"r" * 16
) -> BatchManifest:
    """Say of a batch what a shuffler says."""
    return BatchManifest(
        task_digest=digest, batch_id=BatchId(batch), n_users=n_users, n_reports=n_reports
    )
