"""The relay without its server, as deployed and tested: parts wired from ports."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from common.crypto.signing import PublicIdentity, SigningIdentity
from common.messages.batch import BatchState, chain_batch_id
from common.messages.inclusion_proof import BatchCommitment
from common.runtime.blocks import Blocks, StagedBlocks
from common.runtime.clock import Clock
from common.runtime.key_store import KeyStore
from common.runtime.metrics import ProcessMetrics
from common.runtime.parts.executor import Executor
from common.runtime.state_directory import StateDirectory
from common.task_digest import TaskDigest
from shuffler.delivery_client import NextHop, ReceivingParty
from shuffler.inclusion import InclusionProofs
from shuffler.metrics import BatchMetrics
from shuffler.relay import relay_store
from shuffler.relay.layer_jobs import LayerJob
from shuffler.relay.layers import Layers, RelayBatches, RelayDeliveries
from shuffler.relay.relay_store import RelayStore
from shuffler.settings import ShufflerSettings
from shuffler.storage.batch_seeds import BatchSeeds


@dataclass(kw_only=True)
class RelayCore:
    """The parts of a relay over one database."""

    settings: ShufflerSettings
    state: StateDirectory
    """Holds the keys of layers and batches, and seeds: all that no backup may contain."""
    keys: KeyStore
    identity: SigningIdentity
    """Signs commitments to layers."""
    analyzer: NextHop
    store: RelayStore
    blocks: Blocks
    executor: Executor
    process_metrics: ProcessMetrics
    clock: Clock
    rng: np.random.Generator
    """Draws the salts of commitments."""

    def __post_init__(self) -> None:
        store, executor = self.store, self.executor
        pinned = PublicIdentity.from_hex(self.settings.analyzer_identity, "analyzer_identity")
        seeds = BatchSeeds(self.state, lasting=True)
        self.batches = RelayBatches(
            store=store,
            state=self.state,
            analyzer=self.analyzer,
            identity=pinned,
            own_identity=self.identity.public_identity(),
            keys=self.keys,
            minimum_batch=1,
            most_dummies=self.settings.most_dummies,
            rng=self.rng,
            keep_seconds=self.settings.schedule().retention,
        )
        self.metrics = BatchMetrics(self.process_metrics, lambda _: Counter())
        store.observer = self.metrics.record_move
        self.staging = Layers(
            batches=self.batches,
            seeds=seeds,
            job=LayerJob,
            check_kept=relay_store.check_kept,
            kept=relay_store.kept,
            record_staged=self._record_staged,
            store=store.database,
            get_task=self.batches.get_task,
            identity=self.identity,
            rng=self.rng,
            blocks=StagedBlocks(self.state, self.blocks),
            executor=executor,
        )
        self.deliveries = RelayDeliveries(
            layers=self.staging,
            analyzer=ReceivingParty(name="analyzer", client=self.analyzer, identity=pinned),
            batches=self.batches,
            store=store,
            seeds=seeds,
            blocks=self.blocks,
            clock=self.clock,
            executor=executor,
            inclusions=InclusionProofs(
                blocks=self.blocks, keep_seconds=0.0, clock=self.clock, only_compare=True
            ),
            metrics=self.metrics,
            keep_seconds=self.batches.keep_seconds,  # after the last moment to commit to it
        )

    async def finish_delivery(self, digest: TaskDigest) -> BatchCommitment:
        """Commit to a whole batch of layers; only then is noise drawn for it. Idempotent."""
        await self.staging.finish(digest)
        self.store.changed.set()
        return await self.staging.commitment(digest)

    async def resume(self) -> None:
        """Resume the work of an earlier run; see `Deliveries.resume`."""
        await self.deliveries.resume()
        await self.staging.sweep()  # all, if another database were not refused before

    def _record_staged(self, digest: TaskDigest) -> None:
        batch_id = chain_batch_id(digest)
        self.metrics.record_move(batch_id, BatchState.COLLECTING, BatchState.CLOSED, 0)
