"""The analyzer without its servers, as deployed, audited and tested: parts wired from ports."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shuffledp.analyzer.budgets import ReleaseBudgets
from shuffledp.analyzer.count_job import CountJob
from shuffledp.analyzer.keys import AnalyzerKeys
from shuffledp.analyzer.metrics import ReleaseMetrics
from shuffledp.analyzer.registry import Registry
from shuffledp.analyzer.release import Releases, Staging
from shuffledp.analyzer.storage import ledger, quarantine, task_table
from shuffledp.analyzer.storage.store import Store
from shuffledp.analyzer.task_log import TaskLog
from shuffledp.analyzer.witness_client import CheckingLink, WitnessLink
from shuffledp.common.runtime.blocks import StagedBlocks
from shuffledp.common.runtime.clock import Clock
from shuffledp.common.runtime.parts.executor import Executor


@dataclass(kw_only=True)
class AnalyzerCore:
    """The analyzer's parts over one database."""

    store: Store
    keys: AnalyzerKeys
    blocks: StagedBlocks
    executor: Executor
    clock: Clock
    rng: np.random.Generator
    """Draws the nonces of tasks and the salts of commitments."""
    metrics: ReleaseMetrics
    most_refused_share: float
    witnesses: Sequence[WitnessLink] = ()
    """Cosign the log."""
    checking: Sequence[CheckingLink] = ()
    """Check each task in it first."""

    def __post_init__(self) -> None:
        store, keys, clock = self.store, self.keys, self.clock
        self.budgets = ReleaseBudgets(store)
        self.log = TaskLog(
            store=store,
            identity=keys.identity,
            witnesses=self.witnesses,
            checking=self.checking,
            clock=clock,
        )
        self.metrics.watch_witnesses(self.log.cosigned)
        self.registry = Registry(
            store=store,
            budgets=self.budgets,
            keys=keys,
            clock=clock,
            rng=self.rng,
            metrics=self.metrics,
            preview=self.log.preview,
        )
        self.staging = Staging(
            store=store,
            budgets=self.budgets,
            metrics=self.metrics,
            get_task=self.registry.get,
            job=CountJob,
            check_kept=ledger.check_not_dropped,
            kept=quarantine.kept_batches,
            identity=keys.identity,
            rng=self.rng,
            blocks=self.blocks,
            executor=self.executor,
        )
        self.releases = Releases(
            staging=self.staging, registry=self.registry, most_refused_share=self.most_refused_share
        )

    async def check(self) -> None:
        """
        Check the ledger, and count the batches of an earlier run. Run at start.

        Raises LedgerError if the ledger is broken; nothing can be released.
        """
        head = await self.store.run(ledger.check)
        deadlines = await self.store.run(task_table.deadlines)
        self.metrics.resume(await self.store.batch_states(), deadlines, head.entry)
