"""The tasks that this shuffler collects for: found, checked, begun once, resumed after a crash."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from common.batch import BATCH_ID_BYTES, BatchId, BatchState
from common.errors import (
    BatchStateError,
    OverloadError,
    PeerError,
    PeerRefusalError,
    SettingsError,
    SignatureError,
    TaskError,
    UnknownTaskError,
)
from common.hpke import KeyId, key_id
from common.runtime import logs
from common.runtime.key_store import KeyStore
from common.runtime.state import StateDirectory
from common.signing import PublicIdentity, SignedTask
from common.task import Task
from common.task_digest import TaskDigest
from shuffler.batch import FINAL_STATES, KEPT_STATES, Terms
from shuffler.batch_key import BatchKey
from shuffler.client import Analyzer
from shuffler.spool import Spool, StoredBatch

_BEGUN_AT_ONCE: Final = 256
"""Tasks looked for at once: who asks for any, and hangs up, keeps no more than that going."""
_OVER_REMEMBERED: Final = 64
"""Rounds whose batch is over that need not be looked up when a late device asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One task, its one batch, and the key that the batch is stored under."""

    digest: TaskDigest
    signed: SignedTask
    task: Task
    batch_id: BatchId
    key: BatchKey | None
    """None once the batch is over."""
    terms: Terms

    def held_key(self) -> BatchKey:
        """
        Give the key of a batch that is not over.

        Raises:
            BatchStateError: It is over.
        """
        if self.key is None:
            raise BatchStateError("the task's batch is over")
        return self.key


class Rounds:
    """All rounds of this shuffler."""

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
        self._unfinished: dict[TaskDigest, Round] = {}
        self._over: dict[TaskDigest, Round] = {}
        """Some of those whose batch is over; the others are in the spool."""
        self._beginning: dict[TaskDigest, asyncio.Task[Round]] = {}
        self._left_alone = False
        """Whether there is a batch that is not over and could not be resumed."""
        self._claimed: list[KeyId] = []
        """Keys of rounds that are being begun at this moment."""

    async def find_or_begin(self, digest: TaskDigest) -> Round:
        """
        Find the round of a task; on its first use fetch and check the task, and begin one.

        Raises:
            UnknownTaskError: The analyzer knows no such task.
            SignatureError: The task is not the one asked for, or not by the pinned analyzer.
            TaskError: It is not valid, or asks for too many dummies.
            UnknownKeyError: It is sealed to a key that this shuffler does not hold.
            PeerError: The analyzer cannot be reached.
            BatchStateError: The task has a batch whose key is lost.
            OverloadError: Many others are being looked for at this moment.
        """
        held = self._held(digest)
        if held is not None:
            return held
        if digest not in self._beginning:
            if len(self._beginning) >= _BEGUN_AT_ONCE:
                raise OverloadError(
                    f"{_BEGUN_AT_ONCE} tasks are being fetched from the analyzer; try again later"
                )
            # One task for all who ask at once; it goes on if one of them hangs up.
            beginning = asyncio.create_task(self._begin(digest))
            self._beginning[digest] = beginning
            beginning.add_done_callback(partial(self._begun, digest))
        return await asyncio.shield(self._beginning[digest])

    def _begun(self, digest: TaskDigest, beginning: "asyncio.Task[Round]") -> None:
        del self._beginning[digest]
        if not beginning.cancelled():
            beginning.exception()  # looked at, also if whoever asked has hung up

    async def find(self, digest: TaskDigest) -> Round:
        """
        Find the round of a task that somebody has asked for before.

        Raises:
            UnknownTaskError: Nobody has.
            BatchStateError: The task has a batch whose key is lost.
        """
        return self._held(digest) or self.settle(await self._spool.get(digest))

    def _held(self, digest: TaskDigest) -> Round | None:
        return self._unfinished.get(digest) or self._over.get(digest)

    def unfinished(self) -> list[Round]:
        """List rounds whose batch is not over."""
        return list(self._unfinished.values())

    def deadlines(self) -> dict[BatchId, int]:
        """Give the deadlines of batches that are not over."""
        return {found.batch_id: found.terms.deadline for found in self.unfinished()}

    def needed_keys(self) -> set[KeyId] | None:
        """
        List the keys that envelopes may still come under.

        None where a batch that is not over was left alone at the start: its task's key may be any,
        and mended, or by a later version, it may yet be collected.
        """
        if self._left_alone:
            return None
        tasks = [found.task for found in self.unfinished()]
        return {key_id(task.suite, task.shuffler_key) for task in tasks} | set(self._claimed)

    async def resume(self) -> None:
        """
        Take up the rounds of an earlier run, and finish erasing those that are over.

        A batch whose key is lost, or whose task this version cannot read, is left alone and holds
        up no other.

        Raises:
            SettingsError: There is the key of a batch that the database does not know.
            SettingsError, StorageError: The key of one cannot be read as it is: mended, it can.
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

    def settle(self, stored: StoredBatch) -> Round:
        """Take note of a batch's state; destroy the key of one that is over."""
        if stored.state in FINAL_STATES - KEPT_STATES:
            self._state.destroy(_key_file(stored.batch_id))
        found = self._round(stored)
        if found.key is not None:
            self._unfinished[found.digest] = found
            return found
        self._unfinished.pop(found.digest, None)
        self._over[found.digest] = found
        if len(self._over) > _OVER_REMEMBERED:
            del self._over[next(iter(self._over))]
        return found

    async def _begin(self, digest: TaskDigest) -> Round:
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
            raise SignatureError("the analyzer gave another task than the one that was asked for")
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

    def _round(self, stored: StoredBatch) -> Round:
        task = Task.from_bytes(stored.signed.task_bytes)
        over = stored.state in FINAL_STATES
        return Round(
            digest=stored.signed.digest(),
            signed=stored.signed,
            task=task,
            batch_id=stored.batch_id,
            key=None if over else self._batch_key(stored),
            terms=Terms(
                n_min=max(task.n_min, self._minimum_batch),
                target_size=task.target_size,
                deadline=task.deadline,
            ),
        )

    def _batch_key(self, stored: StoredBatch) -> BatchKey:
        """Read a batch's key; make it while the batch is empty, and nothing is sealed under one."""
        empty = stored.state is BatchState.COLLECTING and stored.n_users == 0

        def missing() -> bytes:
            raise BatchStateError("the key of a batch that is not over is missing")

        make = BatchKey.generate if empty else missing
        return BatchKey(self._state.secret(_key_file(stored.batch_id), make))


_KEY_FILES: Final = "batch-*.key"


def _key_file(batch_id: BatchId) -> str:
    return _KEY_FILES.replace("*", batch_id.hex())
