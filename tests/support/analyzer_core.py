"""The audit's analyzer core, which publishes small tasks and seals small batches."""

from typing import Any, Final

import numpy as np

from shuffledp.audit.harness.party_cores import InProcessAnalyzer
from shuffledp.audit.harness.tasks import FAR_FUTURE
from shuffledp.common.crypto.hpke import report_context
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.messages.batch import BatchId, BatchManifest
from shuffledp.common.messages.result import Result
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from tests.support.tasks import draft

BATCH: Final = BatchId(b"b" * 16)


class AnalyzerCore(InProcessAnalyzer):
    """An analyzer's core for tests."""

    async def publish(self, wanted: TaskDraft | None = None, /, **changes: Any) -> SignedTask:
        """Publish a draft, or a small one with a deadline of its own and some fields changed."""
        fields = {"n_min": 3, "target_size": 3, "deadline": FAR_FUTURE - next(self.seeds)} | changes
        return await super().publish(wanted or draft(**fields))

    def sealed(self, users: int, signed: SignedTask | None = None) -> list[bytes]:
        """Seal reports of users who all hold item 0, and a dummy for each."""
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
        """Return the manifest of a batch with two reports per user."""
        digest = (signed or self.signed).digest()
        return BatchManifest(task_digest=digest, batch_id=batch, n_users=users, n_reports=2 * users)

    async def restart(self) -> None:
        """Stop, and start again on the same files."""
        await self.stop()
        await self.start()

    async def stage(self, manifest: BatchManifest, signed: SignedTask | None = None) -> None:
        """Stage a batch without starting its release."""
        await self.receive(manifest, self.sealed(manifest.n_users, signed))
        await self.finish_unreleased(manifest.task_digest)

    async def finish_unreleased(self, digest: TaskDigest) -> None:
        """Finish a delivery without starting the batch's release."""
        start, self.staging.on_staged = self.staging.on_staged, lambda _: None
        await self.staging.finish_delivery(digest)
        self.staging.on_staged = start

    async def deliver(self, users: int, sealed: list[bytes]) -> None:
        """Deliver the reports of the current task's batch, and wait for the release."""
        await self.deliver_parts(self.manifest(users), sealed)
        await self.settle()

    async def result(self) -> Result:
        """Return the result of the current task's batch."""
        return await self.releases.result(self.signed.digest())

    async def release(self, users: int, signed: SignedTask, *, spoiled: int = 0) -> None:
        """Deliver a batch under its own id, some reports unreadable, and wait for the release."""
        sealed = self.sealed(users, signed)
        sealed[:spoiled] = [number.to_bytes(4) * 15 for number in range(spoiled)]
        manifest = self.manifest(users, batch=BatchId(signed.digest()[:16]), signed=signed)
        await self.deliver_parts(manifest, sealed)
        await self.settle()
