"""
Find, check and begin the batches of this shuffler's tasks, and resume them after a crash.

A batch moves through these states:

    collecting ─▶ closed ─▶ permuted ─▶ delivered ─▶ erased
        │                       └─▶ quarantined: the analyzer refused it
        └─▶ expired: too few users at the deadline; destroyed, never released
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from common.crypto.hpke import KeyId, key_id
from common.crypto.signing import PublicIdentity, SignedTask
from common.errors import (
    BatchStateError,
    OverloadError,
    PeerError,
    PeerRefusalError,
    ProofError,
    SettingsError,
    TaskError,
    UnknownTaskError,
)
from common.messages.batch import BATCH_ID_BYTES, BatchId, BatchState
from common.runtime import logs
from common.runtime.key_store import KeyStore
from common.runtime.state_directory import StateDirectory
from common.task.task import Task
from common.task_digest import TaskDigest
from shuffler.analyzer_client import Analyzer
from shuffler.storage.group import BatchKey
from shuffler.storage.spool import Spool, StoredBatch


class Event(Enum):
    """Events that move a batch."""

    CLOSE = "close"
    EXPIRE = "expire"
    PERMUTE = "permute"
    DELIVER = "deliver"
    REFUSE = "refuse"
    ERASE = "erase"


TRANSITIONS: Final[Mapping[tuple[BatchState, Event], BatchState]] = MappingProxyType(
    {
        (BatchState.COLLECTING, Event.CLOSE): BatchState.CLOSED,
        (BatchState.COLLECTING, Event.EXPIRE): BatchState.EXPIRED,
        (BatchState.CLOSED, Event.PERMUTE): BatchState.PERMUTED,
        (BatchState.PERMUTED, Event.DELIVER): BatchState.DELIVERED,
        (BatchState.PERMUTED, Event.REFUSE): BatchState.QUARANTINED,
        (BatchState.DELIVERED, Event.ERASE): BatchState.ERASED,
    }
)

FINAL_STATES: Final = frozenset(set(BatchState) - {state for state, _ in TRANSITIONS})
"""Final states."""

KEPT_STATES: Final = frozenset({BatchState.QUARANTINED})
"""Final states in which batch and key are kept for an operator to inspect."""

AFTER_COLLECTING: Final = frozenset({BatchState.PERMUTED, BatchState.EXPIRED})
"""Every batch enters exactly one of these, once its counts of users and refusals are final."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingRule:
    """When a batch closes: the task's terms, with n_min raised to this shuffler's minimum."""

    n_min: int
    target_size: int
    deadline: int


def next_state(state: BatchState, event: Event) -> BatchState:
    """
    Return the state that an event leads to.

    Raises:
        BatchStateError: The event is not possible in this state.
    """
    if (state, event) not in TRANSITIONS:
        raise BatchStateError(f"a batch that is {state.value} cannot {event.value}")
    return TRANSITIONS[state, event]


def close_request_event(state: BatchState, n_users: int, terms: ClosingRule) -> Event | None:
    """
    Return the event of an operator's request to close a batch; None if it has closed already.

    Raises:
        BatchStateError: The batch has too few users and keeps collecting, or it expired.
    """
    if state is BatchState.COLLECTING:
        if n_users < terms.n_min:  # the message must not reveal n_users
            raise BatchStateError(
                f"the batch has fewer users than n_min, which is {terms.n_min}; it keeps collecting"
            )
        return Event.CLOSE
    if state is BatchState.EXPIRED:
        raise BatchStateError(
            f"the batch expired: it had fewer users at its deadline than n_min, {terms.n_min}"
        )
    return None


def due_event(state: BatchState, n_users: int, terms: ClosingRule, now: float) -> Event | None:
    """Return the event that is due for a batch; None if it must wait or is over."""
    if state is BatchState.COLLECTING:
        if n_users >= max(terms.target_size, terms.n_min):
            return Event.CLOSE
        if now >= terms.deadline:
            return Event.CLOSE if n_users >= terms.n_min else Event.EXPIRE
        return None
    return {
        BatchState.CLOSED: Event.PERMUTE,
        BatchState.PERMUTED: Event.DELIVER,
        BatchState.DELIVERED: Event.ERASE,
    }.get(state)


_MAX_SEARCHES: Final = 256
"""Concurrent searches for tasks; a search continues if the caller hangs up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveBatch:
    """A task with its unfinished batch and the key that the batch is stored under."""

    digest: TaskDigest
    signed: SignedTask
    task: Task
    batch_id: BatchId
    key: BatchKey
    terms: ClosingRule


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedBatch:
    """A task whose batch is over. Small, since it is never deleted."""

    digest: TaskDigest
    batch_id: BatchId
    terms: ClosingRule


class ActiveBatches:
    """The batches of this shuffler, by task."""

    def __init__(
        self,
        *,
        spool: Spool,
        state: StateDirectory,
        analyzer: Analyzer,
        identity: PublicIdentity,
        keys: KeyStore,
        minimum_batch: int,
        most_dummies: int,
        rng: np.random.Generator,
    ) -> None:
        self._spool = spool
        self._state = state
        self._analyzer = analyzer
        self._identity = identity
        self._keys = keys
        self._minimum_batch = minimum_batch
        self._most_dummies = most_dummies
        self._rng = rng
        self._unfinished: dict[TaskDigest, ActiveBatch] = {}
        self._past: dict[TaskDigest, FinishedBatch] = {}
        """Batches that finished in this run, and earlier ones that were asked for."""
        self._beginning: dict[TaskDigest, asyncio.Task[ActiveBatch | FinishedBatch]] = {}
        self._looking_up: dict[TaskDigest, asyncio.Task[ActiveBatch | FinishedBatch]] = {}
        self._reading = asyncio.Lock()
        """Held while a task is parsed: two megabytes take a third of a second."""
        self._left_alone = False
        """Whether an unfinished batch could not be resumed."""
        self._claimed: list[KeyId] = []
        """Keys of the batches being begun."""

    async def find_or_begin(self, digest: TaskDigest) -> ActiveBatch | FinishedBatch:
        """
        Return the batch of a task; on first use fetch and check the task, and begin its batch.

        Raises:
            UnknownTaskError: The analyzer has no such task.
            ProofError: The analyzer returned another task, or its signature is invalid.
            TaskError: The task is invalid, or needs too many dummies.
            UnknownKeyError: The task is sealed to a key that this shuffler does not hold.
            PeerError: The analyzer cannot be reached.
            BatchStateError: The key of the task's batch is lost.
            OverloadError: Too many searches are under way.
        """
        return self._held(digest) or await self._once(self._beginning, digest, self._begin)

    async def find(self, digest: TaskDigest) -> ActiveBatch | FinishedBatch:
        """
        Return the batch of a task that was requested before.

        Raises:
            UnknownTaskError: The task was never requested.
            TaskError: This version cannot read the task.
            BatchStateError: The key of the task's batch is lost.
            OverloadError: Too many searches are under way.
        """
        return self._held(digest) or await self._once(self._looking_up, digest, self._look_up)

    async def _once(
        self,
        under_way: "dict[TaskDigest, asyncio.Task[ActiveBatch | FinishedBatch]]",
        digest: TaskDigest,
        search: Callable[[TaskDigest], Coroutine[Any, Any, ActiveBatch | FinishedBatch]],
    ) -> ActiveBatch | FinishedBatch:
        """Share one search among concurrent callers; it continues if one of them hangs up."""

        def ended(searching: "asyncio.Task[ActiveBatch | FinishedBatch]") -> None:
            del under_way[digest]
            if not searching.cancelled():
                searching.exception()  # retrieved, even if every caller has hung up

        if digest not in under_way:
            if len(under_way) >= _MAX_SEARCHES:
                raise OverloadError(
                    f"{_MAX_SEARCHES} searches for tasks are under way; try again later"
                )
            under_way[digest] = asyncio.create_task(search(digest))
            under_way[digest].add_done_callback(ended)
        return await asyncio.shield(under_way[digest])

    def _held(self, digest: TaskDigest) -> ActiveBatch | FinishedBatch | None:
        return self._unfinished.get(digest) or self._past.get(digest)

    async def _look_up(self, digest: TaskDigest) -> ActiveBatch | FinishedBatch:
        stored = await self._spool.get(digest)
        async with self._reading:
            task = await asyncio.to_thread(Task.from_bytes, stored.signed.task_bytes)
        # The batch may have begun meanwhile, and moved on from the state that was read.
        return self._held(digest) or self.settle(stored, task)

    def unfinished(self) -> list[ActiveBatch]:
        """List the batches that are not over."""
        return list(self._unfinished.values())

    def deadlines(self) -> dict[BatchId, int]:
        """Return the deadlines of the batches that are not over."""
        return {found.batch_id: found.terms.deadline for found in self.unfinished()}

    def needed_keys(self) -> set[KeyId] | None:
        """
        List the keys still in use for envelopes.

        None if an unfinished batch could not be resumed: its task's key is unknown, and a repair or
        a later version may resume it.
        """
        if self._left_alone:
            return None
        tasks = [found.task for found in self.unfinished()]
        return {key_id(task.suite, task.shuffler_key) for task in tasks} | set(self._claimed)

    async def resume(self) -> None:
        """
        Resume the batches of an earlier run, and finish erasing those that are over.

        A batch whose key is lost, or whose task this version cannot read, is skipped.

        Raises:
            SettingsError: A key belongs to no batch of the database, or cannot be read.
            StorageError: A key file cannot be read.
        """
        known = {_key_file(batch_id) for batch_id in await self._spool.states()}
        batches = await self._spool.kept()
        needed = {_key_file(stored.batch_id) for stored in batches}
        for name in self._state.names(_KEY_FILES):
            if name not in known:
                raise SettingsError(
                    f"the database of the state directory knows no batch of the key {name}: it is "
                    "another database, or an old one. Put back the one that was there; if it is "
                    "lost, remove the key"
                )
            if name not in needed:
                self._state.destroy(name)
        await self._spool.sweep()
        for stored in batches:
            try:
                self.settle(stored)
            except (BatchStateError, TaskError) as error:
                self._left_alone = True
                logs.event(
                    "batch cannot be resumed",
                    {"batch_id": stored.batch_id.hex(), "error": type(error).__name__},
                    level="ERROR",
                )

    def settle(self, stored: StoredBatch, task: Task | None = None) -> ActiveBatch | FinishedBatch:
        """Record a batch's state, with its task if parsed; destroy the key if the batch is over."""
        if stored.state in FINAL_STATES - KEPT_STATES:
            self._state.destroy(_key_file(stored.batch_id))
        digest = stored.signed.digest()
        held = self._unfinished.pop(digest, None)
        task = task or (held.task if held else Task.from_bytes(stored.signed.task_bytes))
        if stored.state in FINAL_STATES:
            past = FinishedBatch(digest=digest, batch_id=stored.batch_id, terms=self._terms(task))
            self._past[digest] = past
            return past
        found = ActiveBatch(
            digest=digest,
            signed=stored.signed,
            task=task,
            batch_id=stored.batch_id,
            key=self._batch_key(stored),
            terms=self._terms(task),
        )
        self._unfinished[digest] = found
        return found

    async def _begin(self, digest: TaskDigest) -> ActiveBatch | FinishedBatch:
        with suppress(UnknownTaskError):
            return await self.find(digest)
        try:
            signed = await self._analyzer.get_task(digest)
        except PeerRefusalError as error:
            if error.status == UnknownTaskError.status:
                raise UnknownTaskError("there is no task with this digest") from error
            raise
        except PeerError as error:
            logs.event("analyzer does not answer", {"error": type(error).__name__}, level="WARNING")
            raise
        if signed.digest() != digest:
            raise ProofError("the analyzer returned another task than the one requested")
        self._identity.verify(signed)
        task = Task.from_bytes(signed.task_bytes)
        self._keys.private_key(task.suite, task.shuffler_key, whose="shuffler_key")
        if task.expected_shuffler_dummies > self._most_dummies:
            raise TaskError(
                f"the task expects {task.expected_shuffler_dummies} dummies of the shuffler; this "
                f"one makes at most {self._most_dummies}"
            )
        claimed = key_id(task.suite, task.shuffler_key)
        self._claimed.append(claimed)
        try:
            batch_id = BatchId(self._rng.bytes(BATCH_ID_BYTES))
            return self.settle(await self._spool.open_batch(batch_id, signed))
        finally:
            self._claimed.remove(claimed)

    def _terms(self, task: Task) -> ClosingRule:
        return ClosingRule(
            n_min=max(task.n_min, self._minimum_batch),
            target_size=task.target_size,
            deadline=task.deadline,
        )

    def _batch_key(self, stored: StoredBatch) -> BatchKey:
        """Read a batch's key; make one while the batch is empty."""
        empty = stored.state is BatchState.COLLECTING and stored.n_users == 0

        def missing() -> bytes:
            raise BatchStateError("the key of a batch that is not over is missing")

        make = BatchKey.generate if empty else missing
        return BatchKey(self._state.secret(_key_file(stored.batch_id), make))


_KEY_FILES: Final = "batch-*.key"


def _key_file(batch_id: BatchId) -> str:
    return _KEY_FILES.replace("*", batch_id.hex())
