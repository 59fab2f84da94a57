"""What an operator is shown of the analyzer's tasks."""

import asyncio
from collections.abc import Sequence

from analyzer.store import Store, StoredTask
from common.errors import TaskError, UnknownTaskError
from common.runtime import logs
from common.runtime.clock import Clock
from common.signing import SignedTask
from common.task import Task
from common.task_digest import TaskDigest
from common.task_summary import TaskState, TaskSummary
from common.task_summary_wire import MAX_LISTED_TASKS


class Overview:
    """Tells what became of tasks."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def tasks(self, after: TaskDigest | None) -> list[TaskSummary]:
        """
        List tasks in the order of their digests, MAX_LISTED_TASKS at most.

        One that this version cannot read is left out, and named in the log.

        Args:
            after: The last one that is known already.

        Cost: reads each task whole.
        """
        last, listed = after or TaskDigest(b""), list[TaskSummary]()
        # An empty answer is the end of the list: past tasks that are left out it reads on.
        while len(listed) < MAX_LISTED_TASKS:
            found = await self._store.tasks_after(last, MAX_LISTED_TASKS - len(listed))
            if not found:
                break
            last = found[-1].signed.digest()
            listed += await asyncio.to_thread(self._readable, found)
        return listed

    async def describe(self, digest: TaskDigest) -> tuple[SignedTask, TaskSummary]:
        """
        Give a task and what became of it.

        Raises:
            UnknownTaskError: There is none with this digest.
            TaskError: This version cannot read it.
        """
        stored = await self._store.stored_task(digest)
        if stored is None:
            raise UnknownTaskError("there is no task with this digest")
        return stored.signed, await asyncio.to_thread(self._summary, stored)

    def _readable(self, found: Sequence[StoredTask]) -> list[TaskSummary]:
        summaries = []
        for stored in found:
            try:
                summaries.append(self._summary(stored))
            except TaskError:
                fields: dict[logs.Field, str | int] = {"task_digest": stored.signed.digest().hex()}
                logs.event("task cannot be read", fields, level="WARNING")
        return summaries

    def _summary(self, stored: StoredTask) -> TaskSummary:
        task = Task.from_bytes(stored.signed.task_bytes)
        return TaskSummary(
            task_digest=stored.signed.digest(),
            state=self._state(stored, task),
            protocol=task.protocol,
            domain_size=task.domain_size,
            population=task.population,
            n_min=task.n_min,
            target_size=task.target_size,
            deadline=task.deadline,
            n_users=stored.n_users,
            failure=stored.failure,
        )

    def _state(self, stored: StoredTask, task: Task) -> TaskState:
        if stored.released:
            return TaskState.RELEASED
        if stored.failure:
            return TaskState.UNUSABLE
        if stored.staged:
            return TaskState.STAGED
        overdue = self._clock.now() >= task.deadline
        return TaskState.OVERDUE if overdue else TaskState.OPEN
