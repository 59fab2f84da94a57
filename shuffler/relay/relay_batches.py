"""The batches of a relay: its tasks, whose batches begin with their delivery, and their keys."""

from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from common.crypto.signing import KeyUse, SignedTask
from common.errors import UnknownTaskError
from common.limits import MAX_UNIX_TIME, MAX_USERS
from common.task.task import Task, cached_task
from common.task_digest import TaskDigest
from shuffler.active_batches import ActiveBatches
from shuffler.batch_states import ClosingRule
from shuffler.relay.layer_jobs import HOP
from shuffler.relay.relay_store import RelayStore


@dataclass(kw_only=True)
class RelayBatches(ActiveBatches):
    """The batches of a relay, by task; see ActiveBatches."""

    store: RelayStore
    keep_seconds: float
    """Seconds after its deadline at which a batch that is not delivered is dropped."""
    hop: ClassVar[int] = HOP
    use: ClassVar[KeyUse] = KeyUse.LAYERS

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Return a task; at first use, fetch and check it. Raises the errors of `checked`."""
        with suppress(UnknownTaskError):
            return await self.store.task(digest)
        signed, _ = await self.checked(digest)
        await self.store.keep_task(signed)
        return signed

    async def track(self, digest: TaskDigest, *, staged: bool) -> None:
        """
        Move a batch from now on, whose delivery has begun, in place of one that it replaces.

        Raises UnknownKeyError if its layers cannot be opened, unless it is `staged`.
        """
        stored = await self.store.get(digest)
        task = await self._parse(cached_task, stored.signed.task_bytes)
        if not staged:
            self._private_key(task)
        self.store.digests[stored.batch_id] = digest
        self._add(stored, task)

    def _closing_rule(self, task: Task) -> ClosingRule:
        """Let a delivery that is not complete expire, and a batch be dropped, at the end date."""
        end = min(task.deadline + self.keep_seconds, MAX_UNIX_TIME)
        return ClosingRule(n_min=MAX_USERS, target_size=MAX_USERS, deadline=int(end))
