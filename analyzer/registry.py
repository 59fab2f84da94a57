"""The analyzer's keys and tasks: from an operator's draft to a signed, published task."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

import numpy as np

from analyzer.budgets import ReleaseBudgets
from analyzer.metrics import ReleaseMetrics
from analyzer.storage.store import Store
from analyzer.storage.task_table import TaskLine
from analyzer.task_builder import complete
from common.crypto.hpke import KeyId, key_id
from common.crypto.key_ring import Schedule
from common.crypto.merkle import HASH_BYTES
from common.crypto.signing import SignedTask, SigningIdentity
from common.crypto.tokens import OperatorToken
from common.errors import TaskError, UnknownTaskError, WireError
from common.runtime.clock import Clock
from common.runtime.key_store import KeyStore, load_identity
from common.runtime.state_directory import StateDirectory
from common.task.draft import TaskDraft
from common.task.task import NONCE_BYTES, Task
from common.task_digest import TaskDigest


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerKeys:
    """Made on first start, kept in the state directory with mode 0600. Shows no secret."""

    identity: SigningIdentity
    """Lives for ever: devices and shufflers pin it."""
    reports: KeyStore
    """Rotated: what reports are sealed to."""
    operator_token: OperatorToken

    @classmethod
    def load(cls, state: StateDirectory, schedule: Schedule, now: float) -> Self:
        """
        Read the keys, or make them on first start; publish what others need to know.

        Raises:
            SettingsError: A file is open to others, damaged, or sealed under another state key.
        """
        keys = cls(
            identity=load_identity(state),
            reports=KeyStore(state, schedule),
            operator_token=OperatorToken(
                state.plain_secret("operator.token", OperatorToken.generate)
            ),
        )
        keys.reports.rotate(now)
        return keys


class Registry:
    """Publishes tasks and gives them out."""

    def __init__(
        self,
        *,
        store: Store,
        spending: ReleaseBudgets,
        keys: AnalyzerKeys,
        clock: Clock,
        rng: np.random.Generator,
        metrics: ReleaseMetrics,
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._spending = spending
        self._keys = keys
        self._clock = clock
        self._rng = rng

    async def publish(self, draft: TaskDraft) -> SignedTask:
        """
        Make a task of a draft, sign and keep it. For operators.

        Raises:
            TaskError: The draft breaks a rule.
            WireError: It names a suite that there is not.
            BudgetError: Its population has not enough left for its smallest batch: it could never
                be released.
        """
        check_deadline(draft, self._clock.now())
        nonce = self._rng.bytes(NONCE_BYTES)
        public_key = self._keys.reports.public_key(draft.suite).raw
        task = await asyncio.to_thread(complete, draft, analyzer_key=public_key, nonce=nonce)
        await self._spending.require(task, task.n_min, 0)
        signed = self._keys.identity.sign(task.to_bytes())
        await self._store.add_task(signed, TaskLine.of(task))
        self._metrics.published(signed.digest(), task.deadline)
        return signed

    async def get(self, digest: TaskDigest) -> SignedTask:
        """
        Give a published task.

        Raises:
            UnknownTaskError: There is none with this digest.
        """
        signed = await self._store.task(digest)
        if signed is None:
            raise UnknownTaskError("there is no task with this digest")
        return signed

    async def needed_keys(self, keep: float) -> set[KeyId] | None:
        """
        List the keys that a batch may still need: staged ones, and those yet to be delivered.

        Args:
            keep: How many seconds after a task's deadline its batch may still come.

        Returns:
            Their ids; None where this version cannot read one of their tasks: its key may be any,
            and a later version may yet open its batch.

        Cost: reads each of their tasks.
        """
        needed = set()
        for task_bytes in await self._store.awaited_tasks(self._clock.now() - keep):
            try:
                task = Task.from_bytes(task_bytes)
            except TaskError:
                return None
            needed.add(key_id(task.suite, task.analyzer_key))
        return needed


def check_deadline(draft: TaskDraft, now: float) -> None:
    """
    Check that users have time to take part.

    Args:
        draft: Of a task.
        now: Seconds since 1970 UTC.

    Raises:
        TaskError: The deadline is not in the future.
    """
    if draft.deadline <= now:
        date = f"{datetime.fromtimestamp(max(0, draft.deadline), UTC):%Y-%m-%d %H:%M} UTC"
        raise TaskError(f"the deadline, {date}, is not in the future")


class SentinelRegistry:
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
