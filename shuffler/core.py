"""The shuffler without its servers, as deployed and tested: parts wired from ports."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from shuffledp.common.crypto.hpke_pool import HpkePool
from shuffledp.common.crypto.key_ring import DAY
from shuffledp.common.crypto.signing import PublicIdentity, SigningIdentity
from shuffledp.common.runtime.blocks import Blocks
from shuffledp.common.runtime.clock import Clock
from shuffledp.common.runtime.key_store import KeyStore
from shuffledp.common.runtime.metrics import ProcessMetrics
from shuffledp.common.runtime.parts.executor import Executor
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.shuffler.active_batches import ActiveBatches, Batches, CollectingBatches
from shuffledp.shuffler.admission import ConnectionLimit
from shuffledp.shuffler.batch_operations import BatchOperations
from shuffledp.shuffler.collection import Collection
from shuffledp.shuffler.delivery import Deliveries
from shuffledp.shuffler.delivery_client import NextHop, ReceivingParty
from shuffledp.shuffler.inclusion import InclusionProofs
from shuffledp.shuffler.log_relay import GetLog, LogRelay
from shuffledp.shuffler.metrics import BatchMetrics
from shuffledp.shuffler.refusals import RefusalCounts
from shuffledp.shuffler.settings import ShufflerSettings
from shuffledp.shuffler.storage.batch_seeds import BatchSeeds
from shuffledp.shuffler.storage.submission_store import BatchStore, SubmissionStore


@dataclass(kw_only=True)
class FrontEndCore:
    """The parts that collect submissions and answer devices, in every role."""

    settings: ShufflerSettings
    batches: Batches
    store: SubmissionStore
    blocks: Blocks
    pool: HpkePool
    identity: SigningIdentity
    """Signs receipts."""
    get_log: GetLog
    clock: Clock

    def __post_init__(self) -> None:
        settings, self.refusals = self.settings, RefusalCounts(self.store)
        self.collection = Collection(
            batches=self.batches,
            store=self.store,
            pool=self.pool,
            refusals=self.refusals,
            connections=ConnectionLimit(settings.submissions_per_connection),
        )
        self.operations: BatchOperations = self.collection
        self.inclusions = InclusionProofs(
            blocks=self.blocks, keep_seconds=settings.keep_inclusion_days * DAY, clock=self.clock
        )
        self.log = LogRelay(self.get_log, self.clock)


@dataclass(kw_only=True)
class BatchCore:
    """The parts that begin, move and deliver batches, in either shuffler of a task."""

    batches_of: ClassVar[type[ActiveBatches]]
    """The type of `batches`."""
    batches: ActiveBatches = field(init=False)
    deliveries: Deliveries = field(init=False)
    settings: ShufflerSettings
    state: StateDirectory
    """Holds the keys of batches, and seeds."""
    keys: KeyStore
    identity: SigningIdentity
    analyzer: NextHop
    relay: ReceivingParty | None = None
    """The second shuffler of tasks with two, in the first."""
    store: BatchStore
    blocks: Blocks
    executor: Executor
    process_metrics: ProcessMetrics
    clock: Clock
    rng: np.random.Generator

    def __post_init__(self) -> None:
        settings = self.settings
        pinned = PublicIdentity.from_hex(settings.analyzer_identity, "analyzer_identity")
        self.batches = self.batches_of(
            store=self.store,
            state=self.state,
            analyzer=ReceivingParty(name="analyzer", client=self.analyzer, identity=pinned),
            own_identity=self.identity.public_identity(),
            keys=self.keys,
            minimum_batch=settings.minimum_batch,
            most_dummies=settings.most_dummies,
            keep_seconds=settings.schedule().retention,
            rng=self.rng,
            relay=self.relay,
        )
        self.metrics = BatchMetrics(self.process_metrics)
        self.store.observer = self.metrics.record_move

    async def resume(self) -> None:
        """Resume the work of an earlier run; see `Deliveries.resume`."""
        await self.deliveries.resume()


@dataclass(kw_only=True)
class ShufflerCore(FrontEndCore, BatchCore):
    """The parts of the process that also begins, moves and delivers batches."""

    batches_of = CollectingBatches
    batches: ActiveBatches = field(init=False)
    store: SubmissionStore

    def __post_init__(self) -> None:
        BatchCore.__post_init__(self)
        super().__post_init__()
        self.deliveries = Deliveries(
            batches=self.batches,
            blocks=self.blocks,
            clock=self.clock,
            executor=self.executor,
            metrics=self.metrics,
            source=self.store.group_source(),
            seeds=BatchSeeds(self.state),
            inclusions=self.inclusions,
        )
        self.metrics.refusals = self.refusals.of

    async def resume(self) -> None:
        await self.refusals.load()
        await super().resume()
