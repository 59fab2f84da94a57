"""
A batch's way through the analyzer: stage, open, estimate, state the guarantee, charge, release.

A delivery is acknowledged when it is staged whole; whatever happens then, a restart goes on from
there. A batch is released once.
"""

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator
from typing import Final

from analyzer.batch_checks import check_batch, check_refusals, exclude_sentinels
from analyzer.budgets import ReleaseBudgets
from analyzer.finalize import build_result
from analyzer.intake import Intake, open_and_count
from analyzer.metrics import ReleaseMetrics
from analyzer.registry import AnalyzerKeys, Registry
from analyzer.sentinel_matching import drop_sentinels, match_sentinels
from analyzer.staging import Staging
from analyzer.storage.ledger import Charge
from analyzer.storage.store import Store
from common.crypto.hpke_pool import HpkePool
from common.errors import (
    AccountingError,
    BatchStateError,
    BudgetError,
    ShuffleDpError,
    SuspectBatchError,
    UnknownKeyError,
    UnusableBatchError,
)
from common.mechanisms.registry import randomizer_of
from common.messages.batch import BatchManifest
from common.messages.guarantee import claimed
from common.messages.inclusion_proof import BatchCommitment
from common.messages.ledger_entry import LedgerEntry
from common.messages.result import Result
from common.runtime import logs
from common.task.task import Task
from common.task_digest import TaskDigest
from common.wire.evidence import commitment_from_bytes
from common.wire.results import result_from_bytes, result_to_bytes

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
"""Seconds before a release that failed is tried again, doubled each time."""


class Releases:
    """Takes deliveries, and releases a result for each."""

    def __init__(
        self,
        *,
        store: Store,
        registry: Registry,
        spending: ReleaseBudgets,
        keys: AnalyzerKeys,
        pool: HpkePool,
        most_refused_share: float,
        staging: Staging,
        metrics: ReleaseMetrics,
    ) -> None:
        """
        Take what releases need.

        Args:
            store: Where batches, results and charges are kept.
            registry: The published tasks.
            spending: What populations have spent.
            keys: What reports open with.
            pool: The workers that open.
            most_refused_share: Of a batch's reports; if more are refused, nothing is released.
            staging: Receives batches, and gives them back.
            metrics: Is told what became of batches.
        """
        self._metrics = metrics
        self._keys = keys
        self._store = store
        self._most_refused_share = most_refused_share
        self._registry = registry
        self._spending = spending
        self._pool = pool
        self._staging = staging
        self._charging = asyncio.Lock()
        """Held from composing what a release costs until it is charged."""
        self._releasing: dict[TaskDigest, asyncio.Task[None]] = {}
        self._budgets_known = False

    async def deliver(
        self, manifest: BatchManifest, chunks: AsyncIterator[bytes]
    ) -> BatchCommitment | None:
        """
        Stage a batch; when this returns it is on the disk. Delivering again changes nothing.

        Returns:
            What was signed of everything that arrived, the same every time; None for a batch that
            a version before this one staged.

        Raises:
            UnknownTaskError: There is no such task.
            ConflictError: Another batch was delivered for this task.
            WireError: The reports are not as many as the manifest and the task say.
            DeliveryUnderWayError: The same batch is being delivered at this moment.
            BudgetError: Its release would exceed the budget of the population.
        """
        try:
            await self._staging.receive(manifest, chunks)
        except ShuffleDpError as error:
            logs.event(
                "delivery refused",
                {
                    **logs.batch_fields(manifest.task_digest, manifest.batch_id),
                    "error": type(error).__name__,
                },
                level="WARNING",
            )
            raise
        # Also if it had been staged before: that call may have ended before it came to here.
        self._start_release(manifest)
        kept = await self._store.commitment(manifest.task_digest)
        return None if kept is None else commitment_from_bytes(kept)

    async def resume(self) -> None:
        """Go on with batches that an earlier run had staged."""
        for manifest in await self._store.staged():
            self._start_release(manifest)

    def _start_release(self, manifest: BatchManifest) -> None:
        digest = manifest.task_digest
        if digest not in self._releasing:
            releasing = asyncio.create_task(self._release(manifest))
            self._releasing[digest] = releasing
            releasing.add_done_callback(lambda _: self._releasing.pop(digest))

    async def _release(self, manifest: BatchManifest) -> None:
        """Release a staged batch, trying again until it is released or known to be unusable."""
        pause = _FIRST_PAUSE
        while True:
            try:
                if manifest in await self._store.staged():
                    await self._release_or_give_up(manifest)
            except Exception as error:  # noqa: BLE001  # staged as it is, it is tried again
                logs.event(
                    "batch not released yet",
                    {
                        **logs.batch_fields(manifest.task_digest, manifest.batch_id),
                        "error": type(error).__name__,
                    },
                    level="ERROR",
                )
                self._metrics.failed(error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                return

    async def _release_or_give_up(self, manifest: BatchManifest) -> None:
        try:
            await self._estimate_and_keep(manifest)
        except (UnusableBatchError, UnknownKeyError, AccountingError, BudgetError) as error:
            # What follows from the batch, the keys and the ledger would follow from them again.
            await self._store.give_up(manifest, str(error))
            suspect = isinstance(error, SuspectBatchError)
            self._metrics.given_up(manifest.task_digest, suspect=suspect)
            if isinstance(error, SuspectBatchError):
                self._metrics.sentinels_missing(error.n_missing)
            logs.event(
                "batch quarantined" if suspect else "batch unusable",
                {
                    **logs.batch_fields(manifest.task_digest, manifest.batch_id),
                    "error": type(error).__name__,
                },
                level="ERROR",
            )

    async def _estimate_and_keep(self, manifest: BatchManifest) -> None:
        signed = await self._registry.get(manifest.task_digest)
        task = Task.from_bytes(signed.task_bytes)
        key = self._keys.reports.private_key(task.suite, task.analyzer_key, whose="analyzer_key")
        size = task.sealed_report_bytes
        sentinels = await self._store.sentinels(manifest.task_digest)
        chunks = await self._staging.reader(manifest, size)
        sightings = await asyncio.to_thread(match_sentinels, chunks(), size, sentinels)
        await asyncio.to_thread(check_batch, sightings, task)
        manifest = exclude_sentinels(manifest, sightings, task)
        # Again: what was released since the batch was staged may have left too little.
        await self._spending.require(task, manifest.n_users, 0, manifest.task_digest)
        mechanism = randomizer_of(task)
        started = time.perf_counter()
        intake = await asyncio.to_thread(
            open_and_count,
            drop_sentinels(chunks(), size, sightings),
            task,
            manifest.task_digest,
            mechanism,
            pool=self._pool,
            key=key,
        )
        intake.refused["repeated"] += sightings.n_repeated
        open_seconds = time.perf_counter() - started
        started = time.perf_counter()
        result = await asyncio.to_thread(build_result, manifest, task, mechanism, intake)
        check_refusals(result, self._most_refused_share)
        result = dataclasses.replace(
            result,
            open_seconds=open_seconds,
            estimate_seconds=time.perf_counter() - started,
            n_sentinels=sightings.n_acknowledged,
            n_sentinels_missing=sightings.n_missing,
            n_sentinels_repeated=sightings.n_repeated,
        )
        await self._charge_and_release(manifest, task, intake, result)
        self._metrics.released(result)
        logs.event(
            "batch released",
            {
                **logs.batch_fields(manifest.task_digest, manifest.batch_id),
                "n_users": manifest.n_users,
                "refused": sum(intake.refused.values()),
            },
        )
        if task.population:
            await self.measure_budgets(task.population)

    async def _charge_and_release(
        self, manifest: BatchManifest, task: Task, intake: Intake, result: Result
    ) -> None:
        """Compose with the refusals as they are, and charge: one release at a time."""
        n_refused = sum(result.refused.values())
        async with self._charging:
            composed = await self._spending.compose(
                task, manifest.n_users, n_refused, manifest.task_digest
            )
            cost = Charge(
                population=task.population,
                n_refused=n_refused,
                guarantee=claimed(result.guarantees),
                composed_epsilon=composed,
            )
            await self._store.release(
                manifest, intake.cells.tobytes(), result_to_bytes(result), cost
            )

    async def result(self, digest: TaskDigest) -> Result:
        """
        Give a released result.

        Raises:
            UnknownTaskError: There is no such task.
            BatchStateError: Its batch has not been released yet.
            UnusableBatchError: It never will be.
        """
        await self._registry.get(digest)
        kept = await self._store.result(digest)
        if kept is not None:
            return await asyncio.to_thread(result_from_bytes, kept)  # may be of millions of items
        failure = await self._store.failure(digest)
        if failure is not None:
            raise UnusableBatchError(failure)
        raise BatchStateError("the task's batch has not been released yet")

    async def ledger(self, after: int) -> list[LedgerEntry]:
        """Give what releases cost, from the entry after `after` on."""
        return await self._store.ledger(after)

    async def measure_budgets(self, population: str = "") -> None:
        """
        Look how much of its budgets a population has spent. It never fails: nothing waits for it.

        Args:
            population: Which; all of them without one, and for as long as not all are known.
                Run without one at start.
        """
        try:
            known = population and self._budgets_known
            populations = [population] if known else await self._store.populations()
            self._metrics.spent([await self._spending.share(one) for one in populations])
            self._budgets_known = True
        except Exception as error:  # noqa: BLE001  # what is released stays so
            logs.event("budgets not measured", {"error": type(error).__name__}, level="WARNING")

    async def settled(self) -> None:
        """Wait until no release is under way."""
        while self._releasing:
            await asyncio.wait(self._releasing.values())

    async def stop(self) -> None:
        """Leave off; what is staged is released after the next start."""
        releasing = list(self._releasing.values())
        for task in releasing:
            task.cancel()
        await asyncio.gather(*releasing, return_exceptions=True)
