"""List the analyzer's tasks and their states for operators."""

import asyncio
from dataclasses import asdict

from analyzer.storage.store import Store
from analyzer.storage.task_table import StoredTask, TaskLine
from common.crypto.signing import SignedTask
from common.errors import TaskError, UnknownTaskError
from common.messages.batch import TaskState, TaskSummary
from common.runtime import logs
from common.runtime.clock import Clock
from common.task.task import Task
from common.task_digest import TaskDigest
from common.version import VERSION
from common.wire.tasks import MAX_LISTED_TASKS


class TaskListing:
    """Lists tasks with their states."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def add_lines(self) -> None:
        """
        Store a line for each task that an earlier version published without one. Run at start.

        A task that this version cannot read gets none, and is named in the log.

        Cost: parses these tasks, one after the other; at later starts only the unreadable ones.
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
        List at most MAX_LISTED_TASKS readable tasks, sorted by digest.

        Args:
            after: Start after this digest; None to start with the first.
        """
        found = await self._store.tasks_after(after or TaskDigest(b""), MAX_LISTED_TASKS)
        return [self._summary(stored) for stored in found]

    async def describe(self, digest: TaskDigest) -> tuple[SignedTask, TaskSummary]:
        """
        Return a task and its state.

        Raises:
            UnknownTaskError: No task has this digest.
            TaskError: This version cannot read the task.
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
