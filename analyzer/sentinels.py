"""Taking an operator's sentinels: before their task's batch has arrived."""

from collections.abc import Sequence

from analyzer.registry import Registry
from analyzer.storage.store import Store
from common.crypto.merkle import HASH_BYTES
from common.errors import WireError
from common.task.task import Task
from common.task_digest import TaskDigest


class Sentinels:
    """Keeps what operators plan to send, and what the shuffler has acknowledged of it."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry

    async def register(
        self, digest: TaskDigest, sentinels: Sequence[bytes], *, acknowledged: bool
    ) -> None:
        """
        Keep sentinels; when this returns they are on the disk. For operators.

        They are registered twice: as planned before they are sent, so that none is ever counted as
        a user's, and as acknowledged afterwards, so that none is missed that was never sent. More
        than a call holds come in several, and those of all calls are a task's.

        Raises:
            UnknownTaskError: There is no such task.
            WireError: One has another number of leaves than a submission of the task has reports,
                or a leaf in common with another one, of this call or an earlier one.
            BatchStateError: The task's batch has arrived, or there are more of them than n_min
                users leave room for below target_size.
        """
        task = Task.from_bytes((await self._registry.get(digest)).task_bytes)
        for leaves in sentinels:
            if len(leaves) != task.reports_per_user * HASH_BYTES:
                raise WireError(
                    f"a sentinel has {len(leaves) // HASH_BYTES} leaves; a submission of this task "
                    f"has {task.reports_per_user} reports"
                )
        room = max(0, task.target_size - task.n_min)
        await self._store.add_sentinels(digest, sentinels, room, acknowledged=acknowledged)
