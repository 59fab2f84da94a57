"""What an operator is shown of the analyzer's tasks."""

import asyncio
from dataclasses import asdict

from analyzer.storage.store import Store
from analyzer.storage.task_table import StoredTask, TaskLine
from common.crypto.signing import SignedTask
from common.errors import TaskError, UnknownTaskError
from common.messages.task_summary import TaskState, TaskSummary
from common.runtime import logs
from common.runtime.clock import Clock
from common.task.task import Task
from common.task_digest import TaskDigest
from common.version import VERSION
from common.wire.tasks import MAX_LISTED_TASKS


class TaskListing:
    """Tells what became of tasks."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def add_lines(self) -> None:
        """
        Keep a line of each task that an earlier version published. Run at start.

        One that this version cannot read stays without, and is named in the log.

        Cost: reads these tasks whole, one after the other; at the next start only those that
        cannot be read.
        """
        for digest in await self._store.tasks_without_line():
            signed = await self._store.task(digest)
            if signed is None:
                continue
            try:
                task = await asyncio.to_thread(Task.from_bytes, signed.task_bytes)
            except TaskError:
                fields: dict[logs.Field, str | int] = {"task_digest": digest.hex()}
                logs.event("task cannot be read", fields, level="WARNING")
            else:
                await self._store.add_line(digest, TaskLine.of(task))

    async def tasks(self, after: TaskDigest | None) -> list[TaskSummary]:
        """
        List tasks in the order of their digests, MAX_LISTED_TASKS at most, from their lines.

        One that this version cannot read is left out.

        Args:
            after: The last one that is known already.
        """
        found = await self._store.tasks_after(after or TaskDigest(b""), MAX_LISTED_TASKS)
        return [self._summary(stored) for stored in found]

    async def describe(self, digest: TaskDigest) -> tuple[SignedTask, TaskSummary]:
        """
        Give a task and what became of it.

        Raises:
            UnknownTaskError: There is none with this digest.
            TaskError: This version cannot read it.
        """
        signed = await self._store.task(digest)
        if signed is None:
            raise UnknownTaskError("there is no task with this digest")
        stored = await self._store.stored_task(digest)
        if stored is None:
            raise TaskError(
                f"the analyzer, shuffledp {VERSION}, cannot read its task {digest.hex()[:12]}: a "
                "later version published it, or its row is damaged"
            )
        return signed, self._summary(stored)

    def _summary(self, stored: StoredTask) -> TaskSummary:
        return TaskSummary(
            task_digest=stored.task_digest,
            state=self._state(stored),
            **asdict(stored.line),
            n_users=stored.n_users,
            failure=stored.failure,
        )

    def _state(self, stored: StoredTask) -> TaskState:
        if stored.released:
            return TaskState.RELEASED
        if stored.failure:
            return TaskState.UNUSABLE
        if stored.staged:
            return TaskState.STAGED
        overdue = self._clock.now() >= stored.line.deadline
        return TaskState.OVERDUE if overdue else TaskState.OPEN
