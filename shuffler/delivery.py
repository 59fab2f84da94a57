"""
Move batches through their states: close, shuffle, deliver once, erase.

`batch_states.due_event` decides which event is due; this file performs it. Batches move
independently, so one that cannot be delivered delays no other.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from typing import Final

import numpy as np

from common.crypto.hpke_pool import HpkePool
from common.errors import DamagedStorageError, PeerRefusalError, ShuffleDpError, StorageError
from common.messages.batch import BatchManifest
from common.runtime import logs
from common.runtime.clock import Clock, retry_pause
from common.task_digest import TaskDigest
from shuffler.active_batches import ActiveBatch, ActiveBatches
from shuffler.analyzer_client import Analyzer
from shuffler.batch_states import DESTROYED_STATES, FINAL_STATES, Event, due_event, next_state
from shuffler.inclusion import InclusionProofs, SentBatch
from shuffler.metrics import BatchMetrics
from shuffler.shuffle import BatchShuffler, ShuffleSummary
from shuffler.storage.group import open_group
from shuffler.storage.sqlite_store import SqliteStore, StoredBatch

_GROUPS_PER_READ: Final = 16
"""Number of groups read from the store together."""
_TICK: Final = 0.25
"""Seconds between checks for due events."""


class Deliveries:
    """Moves every batch of this shuffler to its final state."""

    def __init__(
        self,
        *,
        batches: ActiveBatches,
        store: SqliteStore,
        analyzer: Analyzer,
        pool: HpkePool,
        clock: Clock,
        rng: np.random.Generator,
        inclusions: InclusionProofs,
        metrics: BatchMetrics,
    ) -> None:
        self._batches = batches
        self._metrics = metrics
        self._inclusions = inclusions
        self._pool = pool
        self._store = store
        self._analyzer = analyzer
        self._clock = clock
        self._rng = rng
        self._moving: dict[TaskDigest, asyncio.Task[None]] = {}
        self._pauses: dict[TaskDigest, float] = {}
        """Last pause of each batch whose last step failed, in seconds."""
        self._not_before: dict[TaskDigest, float] = {}

    async def run(self) -> None:
        """Move batches for as long as the service runs."""
        try:
            while True:
                for batch in self._batches.unfinished():
                    if self._clock.elapsed() >= self._not_before.get(batch.digest, -math.inf):
                        self._start(batch)
                await asyncio.sleep(_TICK)
        finally:
            moving = list(self._moving.values())
            for task in moving:
                task.cancel()
            await asyncio.gather(*moving, return_exceptions=True)

    def _start(self, batch: ActiveBatch) -> "asyncio.Task[None]":
        if batch.digest not in self._moving:
            moving = asyncio.create_task(self._move(batch))
            self._moving[batch.digest] = moving
            moving.add_done_callback(lambda _: self._moving.pop(batch.digest))
        return self._moving[batch.digest]

    async def _move(self, batch: ActiveBatch) -> None:
        """Perform one batch's due events; on failure, log the error and set a pause."""
        try:
            await self._perform_due_events(batch)
        except Exception as error:  # noqa: BLE001  # retried after a pause
            pause = retry_pause(self._pauses.get(batch.digest, 0.0))
            self._pauses[batch.digest] = pause
            self._not_before[batch.digest] = self._clock.elapsed() + pause
            self._metrics.record_attempt(len(self._pauses), error)
            logs.event(
                "batch cannot move on yet",
                {**logs.batch_fields(batch.digest, batch.batch_id), "error": type(error).__name__},
                level="WARNING" if isinstance(error, ShuffleDpError) else "ERROR",
            )
        else:
            self._pauses.pop(batch.digest, None)
            self._not_before.pop(batch.digest, None)
            self._metrics.record_attempt(len(self._pauses))

    async def _perform_due_events(self, batch: ActiveBatch) -> None:
        stored = await self._store.get(batch.digest)
        while True:
            event = due_event(stored.state, stored.n_users, batch.closing_rule, self._clock.now())
            if stored.state in FINAL_STATES:  # all three steps are repeated if one fails
                self._batches.destroy_key(stored)
                await self._store.clean_up(stored)
                self._batches.finish(stored, batch.closing_rule)
            if event is None:
                return
            await self._perform(event, stored, batch)
            stored = await self._store.get(batch.digest)
            logs.event(
                "batch moved on",
                {
                    **logs.batch_fields(batch.digest, batch.batch_id),
                    "state": stored.state.value,
                    "n_users": stored.n_users,
                },
            )

    async def _perform(self, event: Event, stored: StoredBatch, batch: ActiveBatch) -> None:
        """Perform one event and store the resulting state."""
        if event is Event.DELIVER:
            event = await self._deliver(stored, batch)
        state = next_state(stored.state, event)
        if event is Event.PERMUTE:
            shuffled = await self._shuffle(stored, batch)
            await self._store.record_permuted(stored, state, shuffled.n_reports, shuffled.seconds)
        elif state in DESTROYED_STATES:
            await self._store.set_last_state(stored, state)
        else:
            await self._store.set_state(stored, state)

    async def _shuffle(self, stored: StoredBatch, batch: ActiveBatch) -> ShuffleSummary:
        """Shuffle the batch in a thread and save the result."""
        shuffler = BatchShuffler(
            task=batch.task,
            digest=batch.digest,
            n_users=stored.n_users,
            files=self._store.files(batch.batch_id, batch.key),
            pool=self._pool,
            rng=self._rng,
        )
        loop = asyncio.get_running_loop()

        def groups() -> Iterator[bytes]:
            last = -1
            while True:
                reading = self._store.groups(batch.batch_id, last, _GROUPS_PER_READ)
                rows = asyncio.run_coroutine_threadsafe(reading, loop).result()
                if not rows:
                    return
                for number, sealed in rows:
                    yield open_group(number, sealed, batch.key)
                last = rows[-1][0]

        try:
            return await asyncio.to_thread(shuffler.shuffle, groups())
        finally:
            shuffler.abandon()  # if the service stops meanwhile

    async def _deliver(self, stored: StoredBatch, batch: ActiveBatch) -> Event:
        """
        Deliver the permuted batch; return DELIVER, or REFUSE if the analyzer refuses it.

        If the analyzer already had the batch and this copy is damaged, no inclusion proof is kept.
        """
        size = batch.task.sealed_report_bytes
        manifest = BatchManifest(
            task_digest=batch.digest,
            batch_id=batch.batch_id,
            n_users=stored.n_users,
            n_reports=stored.n_reports,
        )

        async def chunks() -> AsyncIterator[bytes]:
            n_read = 0
            saved = self._store.files(batch.batch_id, batch.key).saved()
            while (chunk := await asyncio.to_thread(next, saved, None)) is not None:
                n_read += len(chunk) // size
                yield chunk
            if n_read != stored.n_reports:
                raise DamagedStorageError(
                    f"the permuted batch has {stored.n_reports} reports; {n_read} are on the disk"
                )

        sent = SentBatch(size)
        try:
            commitment = await self._analyzer.deliver(manifest, sent.record(chunks()))
        except PeerRefusalError as error:
            logs.event(
                "batch refused by the analyzer",
                {**logs.batch_fields(batch.digest, batch.batch_id), "status": error.status},
                level="ERROR",
            )
            return Event.REFUSE
        # Before the key is destroyed: the sent reports cannot be hashed afterwards.
        try:
            leaves = await sent.leaves(stored.n_reports, chunks())
        except StorageError as error:  # the analyzer has the batch, so its key must be destroyed
            logs.event(
                "inclusion proof lost: the delivered batch cannot be read",
                {**logs.batch_fields(batch.digest, batch.batch_id), "error": type(error).__name__},
                level="ERROR",
            )
        else:
            await self._inclusions.keep(manifest, batch.task, commitment, leaves)
        return Event.DELIVER
