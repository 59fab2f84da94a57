"""Receive a task's layers at its relay, commit to them, and only then open and permute them."""

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace

from common.errors import ConflictError, DamagedStorageError, WireError
from common.messages.batch import BatchManifest
from common.receiving import delivery_table
from common.receiving.receiver import Receiver, check_numbers
from common.runtime import logs
from common.runtime.parts.executor import Executor
from common.task.task import Task
from shuffler.active_batches import ActiveBatch
from shuffler.delivery_client import ReceivingParty
from shuffler.metrics import BatchMetrics
from shuffler.relay.layer_jobs import HOP, LayerJob, RelayJob
from shuffler.relay.relay_batches import RelayBatches
from shuffler.relay.relay_store import RECEIVED
from shuffler.shuffle_job import permuted
from shuffler.storage.batch_seeds import BatchSeeds
from shuffler.storage.submission_store import StoredBatch


@dataclass(kw_only=True)
class Layers(Receiver[LayerJob]):
    """Stages batches of layers until they are permuted."""

    batches: RelayBatches
    seeds: BatchSeeds

    def report_bytes(self, task: Task) -> int:
        """Return the length of a layer."""
        return task.report_bytes_at(HOP)

    def check_manifest(self, manifest: BatchManifest, task: Task) -> None:
        """Raise WireError if a batch's numbers contradict its task; n_min protects nobody here."""
        if manifest.n_dropped:
            raise WireError(f"n_dropped is {manifest.n_dropped}; a first shuffler drops no report")
        check_numbers(manifest, task, task.hop(0))

    async def admit(self, manifest: BatchManifest, task: Task) -> None:  # noqa: ARG002  # of any task
        """Raise ConflictError if noise was drawn for a delivery that the database has lost."""
        if self.seeds.was_drawn(manifest.task_digest.hex()):
            raise ConflictError("another batch was delivered for this task, and its noise is drawn")

    async def begin(self, manifest: BatchManifest, n_parts: int) -> tuple[list[int], bool]:
        """
        Begin to receive a batch, or continue; see `Receiver.begin`.

        Raises UnknownKeyError if the key of the layers is lost or destroyed, and nothing of them is
        committed to.
        """
        arrived, staged = await super().begin(manifest, n_parts)
        await self.batches.track(manifest.task_digest, staged=staged)
        return arrived, staged


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayHop:
    """A relay as a hop."""

    layers: Layers
    batches: RelayBatches
    executor: Executor
    metrics: BatchMetrics
    analyzer: ReceivingParty
    number: int = HOP
    received: Collection[str] = RECEIVED

    async def permute(self, batch: ActiveBatch, stored: StoredBatch, seed: bytes) -> StoredBatch:
        """
        Open a staged batch's layers, drop repeats, add dummies and permute; see `Hop.permute`.

        Raises UnknownKeyError if the key of the layers is lost.
        """
        key = self.batches.envelope_key(batch)
        delivery = await self.layers.store.run(delivery_table.find_delivery, batch.digest)
        if delivery is None:
            raise DamagedStorageError("the delivery of a batch is missing in the database")
        manifest = delivery.manifest
        received, n_distinct = await self.layers.merged(manifest)
        job = await asyncio.to_thread(
            RelayJob.plan,
            batch_id=batch.batch_id,
            task_bytes=batch.signed.task_bytes,
            n_users=stored.n_users,
            key=batch.key,
            seed=seed,
            blocks=received.blocks,
            hop=HOP,
            n_openings=received.n_openings,
        )
        opening = replace(received, private_key=key.private_bytes(), n_opened_parts=job.n_parts)
        try:
            opened = await self.executor.run(LayerJob.open, opening, range(job.n_openings))
            repeats, n_reports, seconds = await permuted(job, self.executor, Counter[int].total)
        except DamagedStorageError:
            self.layers.forget_merged(manifest)
            raise
        dropped = {
            "unreadable": sum(unreadable for unreadable, _ in opened),
            "repeated": manifest.n_reports
            - n_distinct
            + sum(repeated for _, repeated in opened)
            + repeats,
        }
        n_dropped = sum(dropped.values())
        if n_reports - job.n_dummies != manifest.n_reports - n_dropped:
            raise DamagedStorageError(
                f"{manifest.n_reports} layers arrived and {n_dropped} were dropped; "
                f"{n_reports - job.n_dummies} were permuted"
            )
        self.metrics.record_dropped(dropped)
        if n_dropped:
            fields = logs.batch_fields(batch.digest, batch.batch_id)
            logs.event("layers dropped", {**fields, "refused": n_dropped}, level="WARNING")
        return replace(stored, n_reports=n_reports, n_dropped=n_dropped, shuffle_seconds=seconds)

    def receiver(self, task: Task) -> ReceivingParty:  # noqa: ARG002  # of any task
        """Return the analyzer."""
        return self.analyzer
