"""The relay without its server, as deployed and tested: parts wired from ports."""

from dataclasses import dataclass, field

from shuffledp.common.runtime.blocks import StagedBlocks
from shuffledp.shuffler.batch_operations import BatchOperations
from shuffledp.shuffler.core import BatchCore
from shuffledp.shuffler.inclusion import InclusionProofs
from shuffledp.shuffler.relay import relay_store
from shuffledp.shuffler.relay.layer_jobs import LayerJob
from shuffledp.shuffler.relay.layers import Layers, RelayBatches, RelayDeliveries
from shuffledp.shuffler.relay.relay_store import RelayStore
from shuffledp.shuffler.storage.batch_seeds import BatchSeeds


@dataclass(kw_only=True)
class RelayCore(BatchCore):
    """The parts of a relay, whose `state` is what no backup may contain."""

    batches_of = RelayBatches
    batches: RelayBatches = field(init=False)
    store: RelayStore

    def __post_init__(self) -> None:
        super().__post_init__()
        changed, seeds = self.store.changed, BatchSeeds(self.state, lasting=True)
        self.operations = BatchOperations(batches=self.batches, store=self.store)
        self.staging = Layers(
            batches=self.batches,
            seeds=seeds,
            job=LayerJob,
            check_kept=relay_store.check_kept,
            kept=relay_store.kept,
            on_staged=lambda _: changed.set(),
            store=self.store.database,
            get_task=self.batches.get_task,
            identity=self.identity,
            rng=self.rng,
            blocks=StagedBlocks(self.state, self.blocks),
            executor=self.executor,
        )
        compared = InclusionProofs(blocks=self.blocks, keep_seconds=None, clock=self.clock)
        self.deliveries = RelayDeliveries(
            batches=self.batches,
            blocks=self.blocks,
            clock=self.clock,
            executor=self.executor,
            metrics=self.metrics,
            layers=self.staging,
            seeds=seeds,
            inclusions=compared,
        )

    async def resume(self) -> None:
        await super().resume()  # refuses another database, by which all blocks would be swept
        await self.staging.sweep()
