"""Begin, resume and finish the batches of this shuffler's tasks, and manage their keys."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

import numpy as np

from shuffledp.common import errors
from shuffledp.common.crypto.batch_key import BatchKey
from shuffledp.common.crypto.hpke import HpkePrivateKey, KeyId, key_id
from shuffledp.common.crypto.signing import KeyUse, PublicIdentity, SignedTask, check_key
from shuffledp.common.messages.batch import BATCH_ID_BYTES, BatchId, BatchState
from shuffledp.common.runtime import logs
from shuffledp.common.runtime.blocks import KEY_FILES, key_file
from shuffledp.common.runtime.key_store import KeyStore
from shuffledp.common.runtime.shared_calls import SharedCalls
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.shuffler.batch_states import FINAL_STATES, ClosingRule
from shuffledp.shuffler.delivery_client import ReceivingParty
from shuffledp.shuffler.storage.submission_store import BatchStore, StoredBatch, SubmissionStore

_MAX_LOOKUPS: Final = 256
"""Maximum number of concurrent lookups of each kind: to begin a batch, and to find one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveBatch:
    """A task with its unfinished batch and the key that the batch is stored under."""

    digest: TaskDigest
    signed: SignedTask
    task: Task
    batch_id: BatchId
    key: BatchKey
    closing_rule: ClosingRule


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedBatch:
    """A task's finished batch. Small, since it stays in memory."""

    batch_id: BatchId
    closing_rule: ClosingRule


Found = ActiveBatch | FinishedBatch


class Batches(ABC):
    """The batches of this shuffler, by task, and their keys."""

    def __init__(self, most_lookups: int) -> None:
        """
        Look up at most so many tasks at once to begin them, and as many to find them.

        A lookup continues if its caller hangs up.
        """
        self._finished: dict[TaskDigest, FinishedBatch] = {}
        """Finished batches that were requested, or finished, in this run."""
        self.untaken: dict[TaskDigest, tuple[str, str]] = {}
        """The next party and its reason, of each batch that it did not take when last asked."""
        lookups = SharedCalls[TaskDigest, Found]
        self._lookups = {begin: lookups(most_lookups, "task lookups") for begin in (True, False)}

    async def find_or_begin(self, digest: TaskDigest) -> Found:
        """
        Return the batch of a task; on first use fetch and check the task, and begin its batch.

        Raises:
            UnknownTaskError: The analyzer has no such task.
            ProofError: The analyzer returned another task, or its signature is invalid.
            TaskError: The task is invalid, or needs too many dummies.
            UnknownKeyError: This shuffler does not hold the envelope key that the task names.
            PeerError, PeerRefusalError: Another process does not answer, or refuses the call.
            BatchStateError: The key of the task's batch is lost.
            OverloadError: Too many task lookups are running.
            StorageError: The batch could not be read or stored; safe to retry.
        """
        return await self._find(digest, begin=True)

    async def find(self, digest: TaskDigest) -> Found:
        """
        Return the batch of a task that was requested before; else raise UnknownTaskError.

        Raises the errors of `find_or_begin` too.
        """
        return await self._find(digest, begin=False)

    async def _find(self, digest: TaskDigest, *, begin: bool) -> Found:
        """Return a known batch, or look it up once for all concurrent callers."""
        look_up = partial(self._look_up, digest, begin=begin)
        return self._known(digest) or await self._lookups[begin].share(digest, look_up)

    @abstractmethod
    def _known(self, digest: TaskDigest) -> Found | None:
        """Return the batch of a task if this process holds it in memory."""

    @abstractmethod
    async def _look_up(self, digest: TaskDigest, *, begin: bool) -> Found:
        """Look up the batch of a task; with `begin`, begin it on first use."""

    @abstractmethod
    def envelope_key(self, batch: ActiveBatch) -> HpkePrivateKey:
        """
        Return the key that a batch's envelopes are sealed to.

        Raises UnknownKeyError if it is destroyed, and BatchStateError if the batch has finished.
        """


@dataclass(kw_only=True)
class ActiveBatches(Batches):
    """The batches of this shuffler, by task, in the process that begins and moves them."""

    store: BatchStore
    state: StateDirectory
    analyzer: ReceivingParty
    own_identity: PublicIdentity
    keys: KeyStore
    minimum_batch: int
    most_dummies: int
    keep_seconds: float
    """Seconds after its deadline at which an undelivered batch is dropped."""
    rng: np.random.Generator
    relay: ReceivingParty | None = None
    """The second shuffler of tasks with two."""
    hop: ClassVar[int] = 0
    """The shuffler's place among those of a task."""
    use: ClassVar[KeyUse] = KeyUse.ENVELOPES
    """Use of the shuffler's keys."""

    def __post_init__(self) -> None:
        super().__init__(_MAX_LOOKUPS)
        self._unfinished: dict[TaskDigest, ActiveBatch] = {}
        self._parsing = asyncio.Lock()
        """Held while a task is parsed; a task of two megabytes takes a third of a second."""
        self._all_resumed = True
        """False if an unfinished batch of an earlier run could not be resumed."""
        self.unresumed: dict[BatchId, ClosingRule | None] = {}
        """Such batches, quarantined ones too, and their rules if their tasks can be read."""
        self._beginning_keys: list[KeyId] = []
        """Envelope keys of tasks that are about to get a batch."""

    def envelope_key(self, batch: ActiveBatch) -> HpkePrivateKey:
        return self.private_key(batch.task)

    def private_key(self, task: Task) -> HpkePrivateKey:
        """Return this shuffler's key of a task; raise UnknownKeyError if it does not hold it."""
        own = task.shufflers[self.hop].key
        return self.keys.private_key(task.suite, own, whose=self.use.value[0])

    def _known(self, digest: TaskDigest) -> Found | None:
        return self._unfinished.get(digest) or self._finished.get(digest)

    async def _look_up(self, digest: TaskDigest, *, begin: bool) -> Found:
        stored = await self.store.get(digest)
        task = await self._parse(Task.from_bytes, stored.signed.task_bytes)
        # Meanwhile the batch may have begun and moved on from the state that was read.
        return self._known(digest) or self._add(stored, task)

    def unfinished(self) -> list[ActiveBatch]:
        """List the unfinished batches."""
        return list(self._unfinished.values())

    def deadlines(self) -> dict[BatchId, int]:
        """Return the deadlines of the unfinished batches."""
        return {batch.batch_id: batch.closing_rule.deadline for batch in self.unfinished()}

    async def needed_keys(self) -> set[KeyId] | None:
        """
        Return the envelope keys of tasks whose batch is unfinished or about to begin.

        Returns None if an unfinished batch could not be resumed: the key of its task is unknown,
        and may still be needed after a repair or by a later version.
        """
        if not self._all_resumed:
            return None
        used = {
            key_id(batch.task.suite, batch.task.shufflers[self.hop].key)
            for batch in self.unfinished()
        }
        return used | set(self._beginning_keys)

    async def resume(self) -> None:
        """
        Resume the batches of an earlier run, and complete the erasure of finished ones.

        A batch is logged and skipped if its key is lost or this version cannot read its row or
        task. Its key and files stay as they are, for a repair or a later version.

        Raises:
            SettingsError: A key file belongs to no batch of the database, or is not valid.
            StorageError: The disk cannot be read or written.
        """
        states = await self.store.states()
        known = {key_file(batch_id) for batch_id in states}
        kept = [batch_id for batch_id, state in states.items() if state not in FINAL_STATES]
        needed = {key_file(batch_id) for batch_id in kept}
        for name in self.state.names(KEY_FILES):
            if name not in known:
                raise errors.SettingsError(
                    f"the shuffler's store has no batch for the key file {name}; it is "
                    "another store, or an old copy. Restore the right one; if it is lost, "
                    "remove the key file"
                )
            if name not in needed:
                self.state.destroy(name)
        await self.store.sweep()
        for batch_id in kept:
            self.unresumed[batch_id] = None
            try:
                stored = await self.store.read(batch_id)
                task = Task.from_bytes(stored.signed.task_bytes)
                self.unresumed[batch_id] = self._closing_rule(task)
                self._add(stored, task)
                del self.unresumed[batch_id]
            except (errors.BatchStateError, errors.DamagedStorageError, errors.TaskError) as error:
                if states[batch_id] is not BatchState.QUARANTINED:  # it needs no envelope key
                    self._all_resumed = False
                logs.event(
                    "batch cannot be resumed",
                    {"batch_id": batch_id.hex(), "error": type(error).__name__},
                    level="ERROR",
                )

    def _add(self, stored: StoredBatch, task: Task) -> Found:
        """Record a stored batch as finished or, with its key, as unfinished."""
        closing_rule = self._closing_rule(task)
        if stored.state in FINAL_STATES:
            return self.finish(stored, closing_rule)
        batch = ActiveBatch(
            digest=stored.signed.digest(),
            signed=stored.signed,
            task=task,
            batch_id=stored.batch_id,
            key=self._batch_key(stored),
            closing_rule=closing_rule,
        )
        self._unfinished[batch.digest] = batch
        return batch

    def _closing_rule(self, task: Task) -> ClosingRule:
        return ClosingRule(
            n_min=max(task.n_min, self.minimum_batch),
            target_size=task.target_size,
            deadline=task.deadline,
        )

    def destroy_key(self, batch_id: BatchId) -> None:
        """Destroy a finished batch's key. Safe to repeat."""
        self.state.destroy(key_file(batch_id))

    def finish(self, stored: StoredBatch, closing_rule: ClosingRule) -> FinishedBatch:
        """Record a batch as finished; `destroy_key` destroys its key. Safe to repeat."""
        digest = stored.signed.digest()
        finished = FinishedBatch(batch_id=stored.batch_id, closing_rule=closing_rule)
        self._finished[digest] = finished
        self._unfinished.pop(digest, None)
        return finished

    async def checked(self, digest: TaskDigest) -> tuple[SignedTask, Task]:
        """Fetch a task, and check that this shuffler may take part in it; see `find_or_begin`."""
        signed = await self._fetch(digest)
        task = await self._parse(Task.verified, signed, digest, self.analyzer.identity)
        if len(task.shufflers) <= self.hop:
            raise errors.TaskError(
                "the task has one shuffler; this one is the second of tasks with two"
            )
        self.private_key(task)
        own, relay = task.shufflers[self.hop], task.relay
        check_key(self.own_identity, self.use, task.suite, own.key, own.proof)
        if relay is not None and relay is not own:
            if self.relay is None:
                raise errors.TaskError(
                    "the task has two shufflers; this one's setting relay is missing"
                )
            check_key(self.relay.identity, KeyUse.LAYERS, task.suite, relay.key, relay.proof)
        expected = task.hop(self.hop).expected_dummies
        if expected > self.most_dummies:
            raise errors.TaskError(
                f"the task expects {expected} dummies from the shuffler; "
                f"most_dummies is {self.most_dummies}"
            )
        return signed, task

    async def _parse(self, parse: Callable[..., Task], *given: object) -> Task:
        """Parse a task in a thread, one at a time."""
        async with self._parsing:
            return await asyncio.to_thread(parse, *given)

    async def _fetch(self, digest: TaskDigest) -> SignedTask:
        """Fetch a task from the analyzer, unverified; raise UnknownTaskError if it has none."""
        try:
            return await self.analyzer.client.get_task(digest)
        except errors.PeerRefusalError as error:
            if error.status == errors.UnknownTaskError.status:
                raise errors.UnknownTaskError("there is no task with this digest") from error
            raise
        except errors.PeerError as error:
            logs.event("analyzer does not answer", {"error": type(error).__name__}, level="WARNING")
            raise

    def _batch_key(self, stored: StoredBatch) -> BatchKey:
        """Read a batch's key. If it is missing, create one if the batch is empty, else raise."""

        def create() -> bytes:
            if stored.state is not BatchState.COLLECTING or stored.n_users:
                raise errors.BatchStateError("the key of this unfinished batch is missing")
            return BatchKey.generate()

        return BatchKey(self.state.secret(key_file(stored.batch_id), create))


@dataclass(kw_only=True)
class CollectingBatches(ActiveBatches):
    """The batches of a shuffler that devices submit to, which begin when one fetches the task."""

    store: SubmissionStore

    async def _look_up(self, digest: TaskDigest, *, begin: bool) -> Found:
        try:
            return await super()._look_up(digest, begin=False)
        except errors.UnknownTaskError:
            if not begin:
                raise
            return await self._begin(digest)

    async def _begin(self, digest: TaskDigest) -> Found:
        signed, task = await self.checked(digest)
        key = key_id(task.suite, task.shufflers[self.hop].key)
        self._beginning_keys.append(key)
        try:
            if task.relay and self.relay:  # which may refuse it, as for its own limit of dummies
                await self.relay.client.get_task(digest)
            batch_id = BatchId(self.rng.bytes(BATCH_ID_BYTES))
            return self._add(await self.store.open_batch(batch_id, signed), task)
        finally:
            self._beginning_keys.remove(key)
