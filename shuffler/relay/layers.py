"""
The batches of a relay, from the delivery of layers to that of its permuted reports.

It commits to all layers before it draws noise, and never permutes another delivery of a task.
"""

import asyncio
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

from shuffledp.common import errors
from shuffledp.common.crypto.signing import KeyUse, SignedTask
from shuffledp.common.limits import MAX_UNIX_TIME
from shuffledp.common.messages.batch import BatchId, BatchManifest, chain_batch_id
from shuffledp.common.receiving.receiver import Receiver, check_numbers
from shuffledp.common.runtime import logs
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.shuffler.active_batches import ActiveBatch, ActiveBatches
from shuffledp.shuffler.batch_states import ClosingRule
from shuffledp.shuffler.delivery import Deliveries
from shuffledp.shuffler.relay.layer_jobs import HOP, LayerJob, RelayJob
from shuffledp.shuffler.relay.relay_store import RECEIVED, RelayStore, check_kept
from shuffledp.shuffler.shuffle_job import permuted
from shuffledp.shuffler.storage.batch_seeds import BatchSeeds
from shuffledp.shuffler.storage.submission_store import StoredBatch


@dataclass(kw_only=True)
class RelayBatches(ActiveBatches):
    """The batches of a relay, which begin with their delivery; see ActiveBatches."""

    store: RelayStore
    hop: ClassVar[int] = HOP
    use: ClassVar[KeyUse] = KeyUse.LAYERS

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Return a task; at first use, fetch and check it. Raises the errors of `checked`."""
        signed = await self.store.task(digest)
        if signed is None:
            signed, _ = await self.checked(digest)
            await self.store.keep_task(signed)
        return signed

    async def track(self, digest: TaskDigest, task: Task) -> None:
        """Move a batch from now on, whose delivery has begun."""
        self._add(await self.store.get(digest), task)

    def _closing_rule(self, task: Task) -> ClosingRule:
        """
        Close a batch as soon as it is staged, or let it expire `keep_seconds` after the deadline.

        So a batch that is dropped `keep_seconds` later was committed to for at least that long: a
        first shuffler that has erased its copy loses it to no other operator's dates.
        """
        end = min(task.deadline + self.keep_seconds, MAX_UNIX_TIME)
        return ClosingRule(n_min=1, target_size=1, deadline=int(end))


@dataclass(kw_only=True)
class Layers(Receiver[LayerJob]):
    """Stages batches of layers until they are permuted."""

    hop = HOP
    batches: RelayBatches
    seeds: BatchSeeds

    def check_manifest(self, manifest: BatchManifest, task: Task) -> None:
        """Raise WireError if a batch's numbers contradict its task; n_min protects nobody here."""
        if manifest.batch_id != chain_batch_id(manifest.task_digest):
            raise errors.WireError("batch_id does not follow from the task's digest")
        if manifest.n_discarded:
            raise errors.WireError(
                f"n_discarded is {manifest.n_discarded}; a first shuffler discards no report"
            )
        check_numbers(manifest, task, task.hop(0))

    async def admit(self, manifest: BatchManifest, task: Task) -> None:
        """
        Move the batch from now on, before any part of it is accepted.

        Raises ConflictError if noise was drawn for a delivery that the database has lost.
        """
        if self.seeds.was_drawn(manifest.batch_id):
            raise errors.ConflictError(
                "another batch was delivered for this task, and its noise is drawn"
            )
        await self.batches.track(manifest.task_digest, task)

    async def _begin(self, manifest: BatchManifest, n_parts: int) -> tuple[list[int], bool]:
        """
        Begin a delivery as any receiver, but of no batch that has ended without being delivered.

        Raises StorageError while the key is missing, so that the first shuffler keeps the batch:
        the folder of keys may only be away.
        """
        try:
            arrived, staged = await super()._begin(manifest, n_parts)
            await self.store.run(check_kept, manifest.task_digest)
            if not staged:  # else the key may be destroyed already
                self.batches.private_key(await self._task(manifest.task_digest))
        except errors.UnknownKeyError as error:
            fields = logs.batch_fields(manifest.task_digest, manifest.batch_id)
            logs.event("no key in STATE/unsaved for the layers of a task", fields, level="ERROR")
            raise errors.StorageError(f"{error}: its keys are away or lost") from error
        return arrived, staged

    async def _finish(self, digest: TaskDigest) -> None:
        """Commit as any receiver, but not to a batch that was staged and never will be released."""
        await self.store.run(check_kept, digest)
        await super()._finish(digest)


@dataclass(kw_only=True)
class RelayDeliveries(Deliveries):
    """Moves every batch of a relay to its final state."""

    received: ClassVar[Collection[str]] = RECEIVED
    layers: Layers

    async def permute(self, batch: ActiveBatch, stored: StoredBatch, seed: bytes) -> StoredBatch:
        """
        Open a staged batch's layers, drop repeats, add dummies and permute.

        Raises UnknownKeyError if the key of the layers is lost.
        """
        key, layers = self.batches.envelope_key(batch), self.layers
        received, n_distinct = await layers.merged(batch.digest)
        job = await asyncio.to_thread(
            RelayJob.plan,
            batch_id=batch.batch_id,
            task_bytes=batch.signed.task_bytes,
            n_users=stored.n_users,
            key=batch.key,
            seed=seed,
            blocks=self.blocks,
            hop=HOP,
            n_openings=received.n_openings,
        )
        raw = key.private_bytes()
        opening = replace(received, private_key=raw, n_opened_parts=job.n_parts)
        try:
            opened = await self.executor.run(LayerJob.open, opening, range(job.n_openings))
            arrived, facts = await permuted(job, self.executor)
        except errors.DamagedStorageError:
            layers.forget_merged(batch.batch_id)
            raise
        n_discarded = received.n_reports - n_distinct + sum(opened) + arrived[0]
        if facts.n_reports != received.n_reports - n_discarded + job.n_dummies:
            raise errors.DamagedStorageError(
                f"{received.n_reports} layers arrived and {n_discarded} were discarded; "
                f"{facts.n_reports - job.n_dummies} were permuted"
            )
        facts = replace(facts, by_length=stored.by_length)
        return replace(stored, n_discarded=n_discarded, **asdict(facts))

    async def _erase(self, batch_id: BatchId) -> None:
        await super()._erase(batch_id)
        self.layers.forget_merged(batch_id)
