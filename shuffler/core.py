"""The shuffler without its servers, as deployed and tested: parts wired from ports."""

from dataclasses import dataclass, field

import numpy as np

from common.crypto.hpke_pool import HpkePool
from common.crypto.key_ring import DAY
from common.crypto.signing import PublicIdentity, SigningIdentity
from common.runtime.blocks import Blocks
from common.runtime.clock import Clock
from common.runtime.key_store import KeyStore
from common.runtime.metrics import ProcessMetrics
from common.runtime.parts.executor import Executor
from common.runtime.state_directory import StateDirectory
from shuffler.active_batches import ActiveBatches, Batches
from shuffler.admission import ConnectionLimit
from shuffler.collection import Collection
from shuffler.delivery import Deliveries
from shuffler.delivery_client import NextHop, ReceivingParty
from shuffler.inclusion import InclusionProofs
from shuffler.log_relay import GetLog, LogRelay
from shuffler.metrics import BatchMetrics
from shuffler.refusals import RefusalCounts
from shuffler.settings import ShufflerSettings
from shuffler.storage.batch_seeds import BatchSeeds
from shuffler.storage.submission_store import SubmissionStore


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
        self.inclusions = InclusionProofs(
            blocks=self.blocks,
            keep_seconds=settings.keep_inclusion_days * DAY,
            clock=self.clock,
        )
        self.log = LogRelay(self.get_log, self.clock)

    @property
    def analyzer_identity(self) -> PublicIdentity:
        """The pinned identity of the analyzer whose tasks are collected."""
        return PublicIdentity.from_hex(self.settings.analyzer_identity, "analyzer_identity")


@dataclass(kw_only=True)
class ShufflerCore(FrontEndCore):
    """The parts of the process that also begins, moves and delivers batches."""

    batches: ActiveBatches = field(init=False)
    state: StateDirectory
    keys: KeyStore
    analyzer: NextHop
    relay: ReceivingParty | None = None
    """The second shuffler of tasks with two."""
    executor: Executor
    process_metrics: ProcessMetrics
    rng: np.random.Generator

    def __post_init__(self) -> None:
        settings = self.settings
        self.batches = ActiveBatches(
            store=self.store,
            state=self.state,
            analyzer=self.analyzer,
            identity=self.analyzer_identity,
            own_identity=self.identity.public_identity(),
            keys=self.keys,
            minimum_batch=settings.minimum_batch,
            most_dummies=settings.most_dummies,
            rng=self.rng,
            relay=self.relay,
        )
        super().__post_init__()
        self.metrics = BatchMetrics(self.process_metrics, self.refusals.of)
        self.store.observer = self.metrics.record_move
        self.deliveries = Deliveries(
            batches=self.batches,
            store=self.store,
            source=self.store.group_source(),
            analyzer=ReceivingParty(
                name="analyzer", client=self.analyzer, identity=self.analyzer_identity
            ),
            relay=self.relay,
            seeds=BatchSeeds(self.state),
            blocks=self.blocks,
            clock=self.clock,
            executor=self.executor,
            inclusions=self.inclusions,
            metrics=self.metrics,
            keep_seconds=settings.schedule().retention,
        )

    async def resume(self) -> None:
        """Resume the work of an earlier run; see `Deliveries.resume`."""
        await self.refusals.load()
        await self.deliveries.resume()
