"""Publish tasks, look them up, and list them for operators."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shuffledp.analyzer.budgets import ReleaseBudgets
from shuffledp.analyzer.keys import AnalyzerKeys
from shuffledp.analyzer.metrics import ReleaseMetrics
from shuffledp.analyzer.storage import task_table
from shuffledp.analyzer.storage.store import Store
from shuffledp.analyzer.task_builder import complete
from shuffledp.common.crypto.hpke import KeyId, key_id
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import TaskError, UnknownTaskError, WireError
from shuffledp.common.messages.batch import TaskSummary
from shuffledp.common.messages.inclusion_proof import HASH_BYTES
from shuffledp.common.runtime.clock import Clock
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.task import NONCE_BYTES, Task, listed
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.version import VERSION
from shuffledp.common.wire.tasks import MAX_LISTED_TASKS


@dataclass(kw_only=True)
class Registry:
    """Publishes tasks, looks them up, and lists them with their states."""

    store: Store
    budgets: ReleaseBudgets
    keys: AnalyzerKeys
    clock: Clock
    rng: np.random.Generator
    metrics: ReleaseMetrics
    preview: Callable[[SignedTask], Awaitable[None]]
    """Has others check a task before it is published."""

    async def publish(self, draft: TaskDraft) -> SignedTask:
        """
        Complete a draft into a task, sign it and store it. For operators.

        Raises:
            TaskError: The draft breaks a rule, its token key is an earlier task's, or a checking
                witness refuses the task.
            WireError: The draft's suite is unknown, or its shuffler_key is not a key of that suite.
            BudgetError: The population's budget is too small for a batch of n_min users, so none
                could be released.
        """
        nonce, now = self.rng.bytes(NONCE_BYTES), self.clock.now()
        key = self.keys.reports.public_key(draft.suite).raw
        task = await asyncio.to_thread(complete, draft, analyzer_key=key, nonce=nonce, now=now)
        await self.budgets.check(task, task.n_min)
        signed = self.keys.identity.sign(task.to_bytes())
        await self.preview(signed)
        await self.store.run(task_table.add, signed, task)
        self.metrics.record_task(signed.digest(), task.deadline)
        return signed

    async def get(self, digest: TaskDigest) -> SignedTask:
        """Return a published task; raise UnknownTaskError if none has this digest."""
        signed = await self.store.run(task_table.find, digest)
        if signed is None:
            raise UnknownTaskError("there is no task with this digest")
        return signed

    async def task(self, digest: TaskDigest) -> Task:
        """Parse a published task; raise UnknownTaskError, or TaskError if it cannot be read."""
        return Task.from_bytes((await self.get(digest)).task_bytes)

    async def register_sentinels(
        self, digest: TaskDigest, sentinels: Sequence[bytes], *, acknowledged: bool
    ) -> None:
        """
        Store sentinels durably before returning. For operators.

        Each is registered twice: as planned before it is sent, so that it is never counted as a
        user's, and as acknowledged afterwards, so that one never sent is not reported missing.
        Several calls may register a task's sentinels.

        Raises:
            UnknownTaskError: No task has this digest.
            WireError: A sentinel does not have one leaf per report of a submission, or shares a
                leaf with another sentinel of the task.
            BatchStateError: The task's batch has arrived, or the sentinels and n_min users would
                exceed target_size.
        """
        task = await self.task(digest)
        for leaves in sentinels:
            if len(leaves) not in {length * HASH_BYTES for length in task.lengths}:
                raise WireError(
                    f"a sentinel has {len(leaves) // HASH_BYTES} leaves; a submission of this task "
                    f"has {listed(task.lengths)} reports"
                )
        room = max(0, task.target_size - task.n_min)
        await self.store.run(
            task_table.add_sentinels, digest, sentinels, room, acknowledged=acknowledged
        )

    async def needed_keys(self, keep: float) -> set[KeyId] | None:
        """
        Return the report keys of tasks that may still get a result.

        Such a task has a staged batch or a deadline less than `keep` seconds ago, or is not listed.
        Returns None if this version cannot read one of them: a later version may need its key.

        Cost: parsing each of these tasks.
        """
        needed = set()
        since = self.clock.now() - keep
        for task_bytes in await self.store.run(task_table.unfinished_tasks, since):
            try:
                task = Task.from_bytes(task_bytes)
            except TaskError:
                return None
            needed.add(key_id(task.suite, task.analyzer_key))
        return needed

    async def tasks(self, after: TaskDigest | None) -> list[TaskSummary]:
        """List at most MAX_LISTED_TASKS tasks by digest, above `after` or from the first."""
        last, now = after or TaskDigest(b""), self.clock.now()
        return await self.store.run(task_table.summaries_after, last, MAX_LISTED_TASKS, now)

    async def describe(self, digest: TaskDigest) -> tuple[SignedTask, TaskSummary]:
        """
        Return a task and its state.

        Raises UnknownTaskError if no task has this digest, TaskError if its summary is missing.
        """
        signed = await self.get(digest)
        summary = await self.store.run(task_table.summary, digest, self.clock.now())
        if summary is None:
            raise TaskError(
                f"the analyzer, shuffledp {VERSION}, cannot describe its task {digest.hex()[:12]}: "
                "another version published it and can describe it, or its row is damaged"
            )
        return signed, summary
