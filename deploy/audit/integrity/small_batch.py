"""A small batch of a small task, ready to be delivered to an analyzer without a shuffler."""

import dataclasses
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from common.crypto.hpke import HpkePublicKey, report_context
from common.crypto.signing import SignedTask
from common.mechanisms.base import null_reports
from common.mechanisms.registry import mechanism_of
from common.messages.batch import BATCH_ID_BYTES, BatchManifest
from common.messages.inclusion_proof import BatchCommitment
from common.messages.result import Result
from common.task.task import Task
from deploy.audit.integrity.analyzer_core import AnalyzerCore, manifest_of
from deploy.audit.sample_task import sample_task
from deploy.audit.stand_ins.still_clock import StillClock

USERS: Final = 20
"""Of whose reports one may be refused without the batch being suspect."""
_SHUFFLER_KEY: Final = bytes(31) + b"\x09"
"""Nothing is sealed to it: a batch is made without envelopes."""
_TASK: Final[dict[str, Any]] = {
    "protocol": "sh",
    "domain_size": 3,
    "local_epsilon": 1.0,
    "n_min": USERS,
    "target_size": 10 * USERS,
    "delta": 0.01,
}


@cache
def _task() -> Task:
    return sample_task(**_TASK)


def small_task(population: str = "", budget_epsilon: float = 100.0) -> Task:
    """Lay a task out: randomized response and nothing else, a report a user; amplified a little."""
    return dataclasses.replace(_task(), population=population, budget_epsilon=budget_epsilon)


@asynccontextmanager
async def analyzer(rng: np.random.Generator) -> AsyncIterator[AnalyzerCore]:
    """Start an analyzer's core on empty files, which are gone at the end."""
    with tempfile.TemporaryDirectory(prefix="shuffledp-audit-") as folder:
        async with AnalyzerCore.started(Path(folder) / "analyzer", StillClock(), rng) as core:
            yield core


@dataclass(frozen=True, kw_only=True)
class SmallBatch:
    """A batch of a task that is published."""

    signed: SignedTask
    manifest: BatchManifest
    reports: tuple[bytes, ...]
    """Sealed."""

    @classmethod
    async def of(
        cls, core: AnalyzerCore, task: Task, rng: np.random.Generator, n_users: int = USERS
    ) -> Self:
        """Publish a task, and make the reports of so many users who hold any value."""
        signed = await core.publish(task, _SHUFFLER_KEY, rng)
        values = rng.integers(0, task.domain_size, n_users)
        made = mechanism_of(task).randomize(values, rng)
        reports = tuple(sealed(signed, report.tobytes()) for report in made)
        batch = rng.bytes(BATCH_ID_BYTES)
        manifest = manifest_of(signed.digest(), n_users, n_users, batch)
        return cls(signed=signed, manifest=manifest, reports=reports)

    def with_padding(self) -> Self:
        """Put padding in the place of the first report: this task's devices never send any."""
        task = Task.from_bytes(self.signed.task_bytes)
        [null] = null_reports(1, mechanism_of(task).report_dtype)
        padding = sealed(self.signed, null.tobytes())
        return dataclasses.replace(self, reports=(padding, *self.reports[1:]))

    async def deliver(self, core: AnalyzerCore) -> BatchCommitment | None:
        """Deliver it."""
        return await core.take(self.manifest, self.reports)

    async def result(self, core: AnalyzerCore) -> Result:
        """
        Deliver it, and wait for what it comes to.

        Raises:
            UnusableBatchError: It is not released.
        """
        await self.deliver(core)
        return await core.result(self.manifest.task_digest)


def sealed(signed: SignedTask, report: bytes) -> bytes:
    """Seal a report as a device does."""
    task = Task.from_bytes(signed.task_bytes)
    return HpkePublicKey(task.suite, task.analyzer_key).seal(
        report, report_context(signed.digest())
    )
