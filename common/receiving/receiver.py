"""
Receive batches in parts, commit to them, and keep their blocks until they are used. Run by the
analyzer and by relays.

A part is sealed under the batch's staging key and stored durably before its delivery is
acknowledged. Everything else is computed from the parts, so a crash loses no report.
"""

import asyncio
import hashlib
import operator
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar

import numpy as np

from shuffledp.common.crypto.signing import SignedTask, SigningIdentity
from shuffledp.common.errors import (
    ConflictError,
    DamagedStorageError,
    DeliveryUnderWayError,
    TaskError,
    UnusableBatchError,
    WireError,
)
from shuffledp.common.messages.batch import MAX_PART_BYTES, BatchId, BatchManifest, BatchPart
from shuffledp.common.messages.inclusion_proof import SALT_BYTES, BatchCommitment, Tree, bits_for
from shuffledp.common.receiving import delivery_table
from shuffledp.common.receiving.received_job import ARRIVED, SPLIT, ReceivedJob
from shuffledp.common.runtime import clock, logs
from shuffledp.common.runtime.blocks import StagedBlocks
from shuffledp.common.runtime.database import Database
from shuffledp.common.runtime.parts.executor import Executor
from shuffledp.common.runtime.shared_calls import SharedCalls
from shuffledp.common.task.shuffling import Shuffling
from shuffledp.common.task.task import Task, cached_task
from shuffledp.common.task.task_parts import MAX_SHUFFLERS
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire.batches import commitment_from_bytes, commitment_to_wire

J = TypeVar("J", bound=ReceivedJob)
T = TypeVar("T")

_PARTS_AT_ONCE: Final = 2
"""Parts that are held in memory together; other calls wait."""


@dataclass(kw_only=True)
class Receiver(ABC, Generic[J]):
    """Stages batches until they are used. A subclass decides which batches a party takes."""

    hop: ClassVar[int] = MAX_SHUFFLERS
    """The party's place among a task's shufflers; the analyzer stands beyond them."""
    job: type[J]
    check_kept: delivery_table.KeptCheck
    kept: Callable[[sqlite3.Connection], Collection[BatchId]]
    """Returns the batches whose blocks are kept: those that are neither used nor dropped."""
    on_staged: Callable[[BatchManifest], None] = lambda _: None
    """Called once for each batch, when it is staged."""
    store: Database
    """Has the tables of `delivery_table`."""
    get_task: Callable[[TaskDigest], Awaitable[SignedTask]]
    """Raises UnknownTaskError if no task has this digest."""
    identity: SigningIdentity
    """Signs commitments."""
    rng: np.random.Generator
    """Draws the salts of commitments."""
    blocks: StagedBlocks
    executor: Executor

    def __post_init__(self) -> None:
        self._in_memory = asyncio.Semaphore(_PARTS_AT_ONCE)
        self._receiving: set[tuple[TaskDigest, int]] = set()
        """Parts that are being received."""
        self._finishing = SharedCalls[TaskDigest, None]()
        self._merged: dict[BatchId, int] = {}
        """Numbers of distinct reports of the batches that were merged in this run."""

    async def check_sender(self, digest: TaskDigest, names: frozenset[str] | None) -> None:
        """Raise CallerError if a certificate with these names may not deliver a task's batch."""

    @abstractmethod
    def check_manifest(self, manifest: BatchManifest, task: Task) -> None:
        """Raise WireError if a batch's numbers contradict its task."""

    @abstractmethod
    async def admit(self, manifest: BatchManifest, task: Task) -> None:
        """Check a new batch before it is accepted, once; raise an error to refuse it."""

    async def begin(self, manifest: BatchManifest, n_parts: int) -> tuple[list[int], bool]:
        """
        Begin to receive a batch in parts, or continue. Idempotent.

        Returns:
            The parts that have arrived, and whether the whole batch is staged.

        Raises:
            UnknownTaskError: No task has this digest.
            ConflictError: Another batch was delivered for this task, this one for another task, or
                it was dropped.
            WireError: The manifest contradicts the task.
            DeliveryUnderWayError: Another batch of the task is being delivered.
            DamagedStorageError: The receiver's own tasks cannot be read; safe to retry.

        Raises the errors of `admit`, and has its cost, at the first call. It continues if the
        caller hangs up, as a transaction would.
        """
        return await _to_the_end(self._begin(manifest, n_parts))

    async def _begin(self, manifest: BatchManifest, n_parts: int) -> tuple[list[int], bool]:
        digest = manifest.task_digest
        task = await self._task(digest)
        self.check_manifest(manifest, task)
        earlier = await self.store.run(delivery_table.find_delivery, digest)
        busy = digest in self._finishing or any(digest == of_task for of_task, _ in self._receiving)
        delivery = await self.store.run(
            delivery_table.begin_delivery, manifest, n_parts, self.check_kept, replaceable=not busy
        )
        if not delivery.staged and not delivery.n_parts:
            if earlier is not None and earlier.manifest.batch_id != manifest.batch_id:
                await asyncio.to_thread(self.blocks.erase, earlier.manifest.batch_id)
            await self.admit(manifest, task)
            await self.store.run(delivery_table.accept_delivery, manifest, n_parts, self.check_kept)
        return list(delivery.arrived), delivery.staged

    async def receive(
        self,
        part: BatchPart,
        chunks: AsyncIterator[bytes],
        ask_for_reports: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """
        Store a part durably before returning, unless it is stored already.

        `ask_for_reports` is called once the header is accepted, before `chunks` is read; it is not
        called for a part that is stored already.

        Raises:
            UnknownTaskError: No task has this digest.
            ConflictError: Another part was delivered under this number, or the batch was dropped.
            WireError: The number of the part, or of its reports, contradicts the delivery; a chunk
                has part of a report; or the reports contradict the header.
            DeliveryUnderWayError: The delivery has not begun, or another call delivers the part.
            StorageError: The part cannot be stored; safe to retry.

        Memory: that of the part, and its sealed copy.
        """
        call = (part.task_digest, part.part)
        if call in self._receiving:
            raise DeliveryUnderWayError(f"another call is delivering part {part.part}")
        self._receiving.add(call)
        try:
            size = (await self._task(part.task_digest)).report_bytes_at(self.hop)
            delivery = await self._begun(part.task_digest)
            if not _is_wanted(part, delivery, size):
                return
            async with self._in_memory:
                if ask_for_reports is not None:
                    await ask_for_reports()
                content = await _read(part, chunks, size)
                batch_id = delivery.manifest.batch_id
                storing = self._store_part(batch_id, part, content)
                await _to_the_end(self._erase_if_dropped(batch_id, storing))
        finally:
            self._receiving.discard(call)

    async def _store_part(self, batch_id: BatchId, part: BatchPart, content: bytearray) -> None:
        blocks, name = self.blocks.open(batch_id), f"{ARRIVED}/{part.part}"
        await asyncio.to_thread(blocks.put, name, memoryview(content), durable=True)
        await self.store.run(delivery_table.add_part, batch_id, part, self.check_kept)

    async def finish_delivery(self, digest: TaskDigest) -> BatchCommitment:
        """
        Commit to a batch, all of whose parts have arrived, and start to use it. Idempotent.

        Concurrent calls share the work, which continues if a caller hangs up.

        Raises:
            UnknownTaskError: No task has this digest.
            WireError: Parts are missing, or their reports contradict the manifest.
            DeliveryUnderWayError: The delivery has not begun.
            ConflictError: The batch was dropped.
            DamagedStorageError: Stored parts are damaged; they have to be delivered again.
            StorageError: The blocks cannot be read or written; safe to retry.

        Cost: 3 µs per report, on the executor.
        """
        await self._finishing.share(digest, partial(self._finish, digest))
        query = "SELECT commitment FROM commitments WHERE task_digest = ?"
        [(kept,)] = await self.store.fetch(query, digest)
        return commitment_from_bytes(kept)

    async def _finish(self, digest: TaskDigest) -> None:
        delivery = await self._begun(digest)
        manifest = delivery.manifest
        if delivery.staged:
            return
        n_arrived = len(delivery.arrived)
        if n_arrived != delivery.n_parts:
            raise WireError(f"{n_arrived} of {delivery.n_parts} parts of the batch have arrived")
        n_reports = sum(part.n_reports for part in delivery.arrived.values())
        if n_reports != manifest.n_reports:
            raise WireError(f"{n_reports} reports arrived; {manifest.n_reports} were announced")
        try:
            committing = self._commit(delivery)
            commitment = await self._erase_if_dropped(manifest.batch_id, committing)
        except UnusableBatchError as error:  # the sender still has the reports
            await self.store.run(delivery_table.forget_parts, manifest.batch_id)
            raise DamagedStorageError("a part of the batch is damaged: deliver it again") from error
        signed = commitment_to_wire(commitment).SerializeToString()
        await self.store.run(delivery_table.finish_delivery, digest, signed, self.check_kept)
        self.on_staged(manifest)
        fields = logs.batch_fields(digest, manifest.batch_id)
        logs.event("batch staged", {**fields, "n_users": manifest.n_users})

    async def _commit(self, delivery: delivery_table.Delivery) -> BatchCommitment:
        """Sign the root over all reports that arrived."""
        manifest = delivery.manifest
        job = await self._job(delivery)
        n_distinct = await self._merge(job)
        job = replace(job, bits=bits_for(n_distinct))
        roots = await self.executor.run(ReceivedJob.hash_buckets, job, range(job.n_subtrees))
        return BatchCommitment.sign(
            self.identity,
            manifest.task_digest,
            manifest.batch_id,
            Tree(n_distinct, b"".join(roots)),
            job.salt,
        )

    async def merged(self, digest: TaskDigest) -> tuple[J, int]:
        """
        Return the job of a staged batch without repeats, and its number of distinct reports.

        An earlier run's blocks are computed again: only the parts as they arrived are durable.

        Raises:
            UnusableBatchError: A stored part is damaged; no copy is left.
            StorageError: The blocks cannot be read or written; safe to retry.
        """
        job = await self._job(await self._begun(digest))
        n_distinct = self._merged.get(job.batch_id)
        return job, await self._merge(job) if n_distinct is None else n_distinct

    def forget_merged(self, batch_id: BatchId) -> None:
        """Let `merged` compute a batch's blocks again, as one is damaged; or forget the batch."""
        self._merged.pop(batch_id, None)

    async def _merge(self, job: J) -> int:
        dropped = await self.run_on_arrived(ReceivedJob.split, job)
        merged = await self.executor.run(ReceivedJob.merge, job, range(job.n_ranges))
        await asyncio.to_thread(job.sealed_blocks().delete, SPLIT)
        n_merged = sum(dropped) + sum(distinct + repeated for distinct, repeated in merged)
        if n_merged != job.n_reports:
            raise DamagedStorageError(f"{job.n_reports} reports arrived; {n_merged} were merged")
        self._merged[job.batch_id] = sum(distinct for distinct, _ in merged)
        return self._merged[job.batch_id]

    async def run_on_arrived(self, stage: Callable[[J, int], T], job: J) -> list[T]:
        """
        Run a stage for each part that arrived.

        Raises UnusableBatchError if a part is damaged for this process too; DamagedStorageError if
        only a worker cannot read it, which may mount another block store.
        """
        try:
            return await self.executor.run(stage, job, range(job.n_parts))
        except UnusableBatchError as error:
            await asyncio.to_thread(job.check_arrived)
            raise DamagedStorageError(
                "a worker cannot read a part that its coordinator can: check the worker's blocks"
            ) from error

    async def _job(self, delivery: delivery_table.Delivery) -> J:
        """Return a batch's job, with a salt that is drawn once, when all reports have arrived."""
        # Drawn last: a sender that knew the salt could send reports whose salted hashes all fall
        # into one bucket of the inclusion proofs.
        drawn = self.rng.bytes(SALT_BYTES)
        salt = await self.store.run(delivery_table.fix_salt, delivery.manifest.batch_id, drawn)
        task_bytes = (await self.get_task(delivery.manifest.task_digest)).task_bytes
        return self.job.plan(
            delivery,
            task_bytes=task_bytes,
            report_bytes=cached_task(task_bytes).report_bytes_at(self.hop),
            salt=salt,
            blocks=self.blocks,
        )

    async def erase(self, manifest: BatchManifest) -> None:
        """Destroy a finished batch's staging key, and delete its blocks. Idempotent."""
        self.forget_merged(manifest.batch_id)
        await asyncio.to_thread(self.blocks.erase, manifest.batch_id)

    async def _erase_if_dropped(self, batch_id: BatchId, work: Coroutine[Any, Any, T]) -> T:
        """Do work that stores blocks; erase a batch that is dropped meanwhile, key and blocks."""
        try:
            return await work
        finally:
            if batch_id not in await self.store.run(self.kept):
                await asyncio.to_thread(self.blocks.erase, batch_id)

    async def sweep(self) -> None:
        """Erase what a crash left: blocks of used, dropped and replaced batches. Run at start."""
        kept = await self.store.run(self.kept)
        await asyncio.to_thread(self.blocks.sweep, kept)

    async def stop(self) -> None:
        """Stop; the sender continues unfinished deliveries."""
        await clock.cancel_all(self._finishing.values())

    async def _task(self, digest: TaskDigest) -> Task:
        """Return a task; raise DamagedStorageError, after which senders retry, if it is damaged."""
        signed = await self.get_task(digest)
        try:
            return await asyncio.to_thread(cached_task, signed.task_bytes)
        except TaskError as error:
            raise DamagedStorageError(
                f"the receiver cannot read its own storage: {error}"
            ) from error

    async def _begun(self, digest: TaskDigest) -> delivery_table.Delivery:
        delivery = await self.store.run(delivery_table.find_delivery, digest)
        if delivery is None or not (delivery.staged or delivery.n_parts):
            await self.get_task(digest)
            raise DeliveryUnderWayError("the delivery of this batch has not begun: begin it again")
        return delivery


def check_numbers(manifest: BatchManifest, task: Task, sender: Shuffling) -> None:
    """
    Raise WireError if a manifest's numbers contradict each other or the task.

    `sender` is what the shufflers before the receiver drop and add, together.
    """
    by_length = manifest.by_length or (manifest.n_users,)
    if len(by_length) != len(task.lengths):
        raise WireError(
            f"submissions of {len(by_length)} lengths are announced; the task has "
            f"{len(task.lengths)}"
        )
    if sum(by_length) != manifest.n_users:
        raise WireError(f"{sum(by_length)} submissions of {manifest.n_users} users are announced")
    sent = sum(map(operator.mul, task.lengths, by_length))
    minimum, maximum = sender.batch_reports(sent)
    arrived = manifest.n_reports + manifest.n_discarded
    if not minimum <= arrived <= maximum:
        allowed = str(maximum) if minimum == maximum else f"{minimum} to {maximum}"
        discarded = f", {manifest.n_discarded} of them discarded" * bool(manifest.n_discarded)
        raise WireError(
            f"{arrived} reports are announced{discarded}; a batch of {manifest.n_users} users "
            f"must have {allowed}"
        )


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """
    Wait until work has ended, even if the caller hangs up.

    Otherwise a thread could write one part of a number while another is accepted.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _is_wanted(part: BatchPart, delivery: delivery_table.Delivery, size: int) -> bool:
    """Return whether a part's reports are needed; raise an error if the part cannot belong."""
    known = delivery.arrived.get(part.part)
    if known is not None:
        if known != part:
            raise ConflictError(f"another part {part.part} of this batch was delivered")
        return False
    if part.part >= delivery.n_parts:
        raise WireError(f"the part's number is {part.part}; there are {delivery.n_parts} parts")
    if part.n_reports * size > MAX_PART_BYTES:
        raise WireError(
            f"a part has {part.n_reports * size} bytes; it may have at most {MAX_PART_BYTES}"
        )
    total = part.n_reports + sum(other.n_reports for other in delivery.arrived.values())
    if total > delivery.manifest.n_reports:
        raise WireError(f"{total} reports arrived; {delivery.manifest.n_reports} were announced")
    return True


async def _read(part: BatchPart, chunks: AsyncIterator[bytes], size: int) -> bytearray:
    """Read a part's reports, and compare them with its header."""
    content, content_hash = bytearray(), hashlib.sha256()
    async for chunk in chunks:
        if len(chunk) % size:
            raise WireError(f"a chunk has {len(chunk)} bytes; it must hold whole reports of {size}")
        content += chunk
        content_hash.update(chunk)
        if len(content) > part.n_reports * size:
            break
    if len(content) != part.n_reports * size:
        raise WireError(
            f"{len(content) // size} reports of a part arrived; {part.n_reports} were announced"
        )
    if content_hash.digest() != part.content_hash:
        raise WireError(f"part {part.part} has another SHA-256 than was announced")
    return content
