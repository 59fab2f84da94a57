"""
Move batches through their states: close, shuffle, deliver once, erase.

`batch_states.due_event` decides which event is due; this file performs it. Batches move
independently, so one that cannot be delivered delays no other.
"""

import asyncio
import hashlib
import math
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, Final

from shuffledp.common import errors
from shuffledp.common.messages.batch import (
    CONTENT_HASH_BYTES,
    MAX_REASON_CHARACTERS,
    BatchId,
    BatchManifest,
    BatchPart,
    BatchState,
    chain_batch_id,
)
from shuffledp.common.messages.inclusion_proof import range_count
from shuffledp.common.runtime import logs
from shuffledp.common.runtime.blocks import BATCH_FOLDERS, Blocks, SealedBlocks
from shuffledp.common.runtime.clock import Clock, cancel_all, retry_pause, wait_for_change
from shuffledp.common.runtime.parts.executor import Executor, gather
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire.batches import MAX_CHUNK_BYTES
from shuffledp.shuffler import batch_states
from shuffledp.shuffler.active_batches import ActiveBatch, ActiveBatches
from shuffledp.shuffler.batch_states import FINAL_STATES, Event
from shuffledp.shuffler.delivery_client import NextHop, ReceivingParty
from shuffledp.shuffler.inclusion import LEAVES, InclusionProofs, ProofJob, proof_folder
from shuffledp.shuffler.metrics import BatchMetrics
from shuffledp.shuffler.shuffle_job import PERMUTED, SCRATCH, ShuffleJob, bucket_count, shuffle
from shuffledp.shuffler.storage.batch_seeds import BatchSeeds
from shuffledp.shuffler.storage.submission_store import GroupSource, StoredBatch

_PERMUTED_STATES: Final = frozenset(
    {BatchState.PERMUTED, BatchState.SENT, BatchState.DELIVERED, BatchState.QUARANTINED}
)
"""States in which the permuted batch is stored."""
_PARTS_AT_ONCE: Final = 2
"""Parts delivered together: one is sent while the next is read."""
_TICK: Final = 0.25
"""Minimum seconds between checks for due events."""
_LONGEST_WAIT: Final = 2.0
"""Maximum seconds between checks, for what nothing in this process announces: submissions that
front-ends store, new tasks, and a clock that was set."""


@dataclass(kw_only=True)
class Deliveries:
    """Moves every batch of this shuffler to its final state."""

    received: ClassVar[Collection[str]] = ()
    """Subfolders of a batch that arrived in blocks; empty if it arrived in the store."""
    batches: ActiveBatches
    source: GroupSource | None = None
    """Reads the store's submissions."""
    seeds: BatchSeeds
    blocks: Blocks
    clock: Clock
    executor: Executor
    inclusions: InclusionProofs
    metrics: BatchMetrics

    def __post_init__(self) -> None:
        self.store = self.batches.store
        self._failures = logs.RepeatedFailures()
        self._moving: dict[TaskDigest, asyncio.Task[None]] = {}
        self._pauses: dict[TaskDigest, float] = {}
        """Last pause of each batch whose last step failed, in seconds."""
        self._not_before: dict[TaskDigest, float] = {}

    async def resume(self) -> None:
        """
        Resume the batches of an earlier run, and delete what a crash left. Run at start.

        Blocks of batches in unknown states are left unchanged. Raises the errors of
        `ActiveBatches.resume`, which comes first: it refuses another database.
        """
        await self.batches.resume()
        states = await self.store.states()
        self.metrics.resume(states, self.batches.deadlines())
        closed = {batch_id for batch_id, state in states.items() if state is BatchState.CLOSED}
        unfinished = {batch for batch, state in states.items() if state not in FINAL_STATES}
        await asyncio.to_thread(self.seeds.sweep, closed, unfinished)
        for folder in await asyncio.to_thread(self.blocks.folders):
            if not BATCH_FOLDERS.fullmatch(folder):
                continue
            batch_id = BatchId(bytes.fromhex(folder))
            state = states.get(batch_id, BatchState.ERASED)
            if state in _PERMUTED_STATES:
                for subfolder in (*SCRATCH, LEAVES, *self.received):
                    await asyncio.to_thread(self.blocks.delete, f"{folder}/{subfolder}")
            elif state in FINAL_STATES or (
                state is not None
                and not self.received
                and not self.seeds.was_used(batch_id)  # else it was set back
            ):
                await asyncio.to_thread(self.blocks.delete, folder)
        await asyncio.to_thread(self.inclusions.delete_expired, incomplete=True)

    async def run(self) -> None:
        """Move batches for as long as the service runs."""
        try:
            while True:
                now, elapsed = self.clock.now(), self.clock.elapsed()
                wait = _LONGEST_WAIT
                for batch in self.batches.unfinished():
                    pause = self._not_before.get(batch.digest, -math.inf) - elapsed
                    left = pause if pause > 0 else batch.closing_rule.deadline - now
                    if left > 0:  # else it moves on from now
                        wait = min(wait, left)
                    if pause <= 0:
                        self._start(batch)
                await asyncio.sleep(_TICK)
                await wait_for_change(self.store.changed, wait - _TICK)
        finally:
            await cancel_all(self._moving.values())

    async def advance(self) -> None:
        """Move every unfinished batch as far as it is due, and wait. For audits and tests."""
        await asyncio.gather(*map(self._start, self.batches.unfinished()))

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
            self._not_before[batch.digest] = self.clock.elapsed() + pause
            self.store.changed.set()  # to wait for no longer than the pause
            fields = logs.batch_fields(batch.digest, batch.batch_id)
            fields["error"] = type(error).__name__
            if isinstance(error, errors.PeerError):  # only the next party is called
                fields["reason"] = self._keep_reason(batch, error)
            self.metrics.record_attempt(len(self._pauses), error)
            level: logs.Level = "WARNING" if isinstance(error, errors.ShuffleDpError) else "ERROR"
            self._failures.failed(batch.digest, "batch cannot move on yet", fields, level=level)
        else:
            self._failures.ended(batch.digest)
            self._pauses.pop(batch.digest, None)
            self._not_before.pop(batch.digest, None)
            self.metrics.record_attempt(len(self._pauses))

    def _keep_reason(self, batch: ActiveBatch, error: errors.ShuffleDpError) -> str:
        """Keep the next party's reason not to take a batch, which names public numbers only."""
        reason = str(error)[:MAX_REASON_CHARACTERS]
        self.batches.untaken[batch.digest] = self.receiver(batch.task).name, reason
        return reason

    async def _perform_due_events(self, batch: ActiveBatch) -> None:
        stored = await self.store.get(batch.digest)
        while True:
            event = self._due_event(stored, batch.closing_rule)
            if stored.state in FINAL_STATES:  # all steps are repeated if one fails
                await self._erase(stored.batch_id)
                self.batches.finish(stored, batch.closing_rule)
            if event is None:
                return
            await self._perform(event, stored, batch)
            stored = await self.store.get(batch.digest)
            fields = logs.batch_fields(batch.digest, batch.batch_id)
            logs.event(
                "batch moved on", {**fields, "state": stored.state.value, "n_users": stored.n_users}
            )

    async def _erase(self, batch_id: BatchId) -> None:
        """Destroy an ended batch's key, then its seed, submissions and blocks. Safe to repeat."""
        self.batches.destroy_key(batch_id)
        self.seeds.destroy(batch_id)
        self.seeds.forget(batch_id)
        await self.store.clean_up(batch_id)
        await asyncio.to_thread(self.blocks.delete, batch_id.hex())
        await self.executor.forget_keys()

    async def end_unresumed(self) -> None:
        """
        Erase dropped batches that could not be resumed. Run every minute.

        First close, expire or drop those past their deadline, if it is known.
        """
        states = await self.store.states()
        for batch_id, rule in list(self.batches.unresumed.items()):
            if states[batch_id] in FINAL_STATES:
                await self._erase(batch_id)
                del self.batches.unresumed[batch_id]
            elif rule is not None:
                stored = await self.store.read(batch_id)
                event = self._due_event(stored, rule)
                if event in {Event.CLOSE, Event.EXPIRE, Event.DROP}:  # which need no key
                    state = batch_states.next_state(stored.state, event)
                    await self.store.set_state(stored, state)
                    fields: dict[logs.Field, str] = {"batch_id": batch_id.hex()}
                    logs.event("batch moved on", {**fields, "state": state.value})

    def _due_event(self, stored: StoredBatch, rule: batch_states.ClosingRule) -> Event | None:
        now = self.clock.now()
        if batch_states.is_past_end(stored.state, rule, self.batches.keep_seconds, now):
            return Event.DROP
        return batch_states.due_event(stored.state, stored.n_users, rule, now)

    async def _perform(self, event: Event, stored: StoredBatch, batch: ActiveBatch) -> None:
        if event in {Event.SEND, Event.DELIVER}:
            self.seeds.destroy(batch.batch_id)  # before anybody else sees the order
            event = await self._deliver(event, stored, batch)
        state = batch_states.next_state(stored.state, event)
        if event is Event.PERMUTE:
            stored = await self.permute(batch, stored, self.seeds.of(batch.batch_id))
        await self.store.set_state(stored, state)
        if event is Event.PERMUTE:
            if n := stored.n_discarded:
                fields = logs.batch_fields(batch.digest, batch.batch_id)
                logs.event("layers discarded", {**fields, "refused": n}, level="WARNING")
            self.seeds.destroy(batch.batch_id)

    async def permute(self, batch: ActiveBatch, stored: StoredBatch, seed: bytes) -> StoredBatch:
        """Permute a closed batch into blocks; return it with its numbers."""
        job = await asyncio.to_thread(
            ShuffleJob.plan,
            batch_id=batch.batch_id,
            task_bytes=batch.signed.task_bytes,
            n_users=stored.n_users,
            key=batch.key,
            seed=seed,
            source=self.source,
            blocks=self.blocks,
        )
        return replace(stored, **asdict(await shuffle(job, stored.n_users, self.executor)))

    def receiver(self, task: Task) -> ReceivingParty:
        """Return the party that a task's batch is delivered to."""
        if task.relay is None or self.batches.hop:
            return self.batches.analyzer
        if self.batches.relay is None:
            raise errors.SettingsError("the task has two shufflers; the setting relay is missing")
        return self.batches.relay

    async def _deliver(self, event: Event, stored: StoredBatch, batch: ActiveBatch) -> Event:
        """
        Send the permuted batch or, to DELIVER, finish that; return the event, or REFUSE.

        The receiver uses only a batch that is finished. That is recorded as SENT before, so a batch
        that is dropped until then is never released.

        If the receiver already had the batch and this copy is damaged, no inclusion proof is kept.
        """
        receiver = self.receiver(batch.task)
        manifest = BatchManifest(
            task_digest=batch.digest,
            batch_id=chain_batch_id(batch.digest) if batch.task.relay else batch.batch_id,
            n_users=stored.n_users,
            n_reports=stored.n_reports,
            by_length=stored.by_length,
            n_discarded=stored.n_discarded,
        )
        fields = logs.batch_fields(batch.digest, batch.batch_id)
        n_parts = bucket_count(batch.task, stored.n_users, self.batches.hop)
        size = batch.task.report_bytes_at(self.batches.hop + 1)
        blocks = SealedBlocks(self.blocks, batch.batch_id.hex(), batch.key)
        try:
            hashes = stored.part_hashes
            await deliver_parts(receiver.client, manifest, blocks, n_parts, size, hashes=hashes)
            if event is Event.SEND:
                return event
            commitment = await receiver.client.finish_delivery(batch.digest)
            self.batches.untaken.pop(batch.digest, None)
        except errors.PeerRefusalError as error:
            name = f"batch refused by the {receiver.name}"
            fields |= {"status": error.status, "reason": self._keep_reason(batch, error)}
            logs.event(name, fields, level="ERROR")
            return Event.REFUSE
        job = ProofJob(
            batch_id=batch.batch_id,
            key=batch.key.private_bytes(),
            blocks=self.blocks,
            proof_folder=proof_folder(batch.digest),
            report_bytes=size,
            salt=commitment.salt,
            n_parts=n_parts,
            n_ranges=range_count(stored.n_reports),
        )
        # Before the key is destroyed: the sent reports cannot be hashed afterwards.
        try:
            await self.inclusions.keep(
                *(manifest, batch.task, commitment, job), executor=self.executor, receiver=receiver
            )
        except (
            errors.DamagedStorageError
        ) as error:  # the receiver has the batch: its key is destroyed
            loss = "inclusion proof lost: the delivered batch cannot be read"
            logs.event(loss, {**fields, "error": type(error).__name__}, level="ERROR")
        return Event.DELIVER


async def deliver_parts(
    receiver: NextHop,
    manifest: BatchManifest,
    blocks: SealedBlocks,
    n_parts: int,
    size: int,
    *,
    hashes: bytes,
) -> None:
    """
    Deliver the parts that the receiver does not have yet.

    `blocks` are the permuted batch, one a part, with these SHA-256 `hashes` unless an earlier
    version permuted it; `size` is that of a sealed report, in bytes.

    Raises:
        PeerRefusalError: The receiver refuses the batch.
        PeerError: The receiver does not answer; safe to retry.
        StorageError: A part cannot be read, or is not the recorded one.

    Memory: about four parts.
    """
    arrived, staged = await receiver.begin_delivery(manifest, n_parts)
    slots = asyncio.Semaphore(_PARTS_AT_ONCE)

    async def deliver(number: int) -> None:
        async with slots:
            content = await asyncio.to_thread(blocks.get, f"{PERMUTED}/{number}")
            part = BatchPart(
                task_digest=manifest.task_digest,
                part=number,
                n_reports=len(content) // size,
                content_hash=(await asyncio.to_thread(hashlib.sha256, content)).digest(),
            )
            start = number * CONTENT_HASH_BYTES
            if hashes and part.content_hash != hashes[start : start + CONTENT_HASH_BYTES]:
                raise errors.DamagedStorageError(f"part {number} is not the one that was recorded")
            await receiver.deliver_part(part, chunks_of_part(content, size))

    if not staged:
        await gather(deliver(number) for number in range(n_parts) if number not in arrived)


def chunks_of_part(content: bytes, size: int) -> Iterator[memoryview]:
    """Yield a part's reports of `size` bytes in chunks of whole reports."""
    view, step = memoryview(content), MAX_CHUNK_BYTES // size * size
    for start in range(0, len(content), step):
        yield view[start : start + step]
