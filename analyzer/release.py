"""
Release batches: stage, open, estimate, compute the guarantee, charge the ledger, store the result.

A delivery is acknowledged once the whole batch is staged; after a crash the next start resumes
there. A batch is released once.
"""

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator
from typing import Final

from analyzer.budgets import ReleaseBudgets
from analyzer.finalize import build_result
from analyzer.intake import (
    Intake,
    check_batch,
    check_refusals,
    drop_sentinels,
    exclude_sentinels,
    match_sentinels,
    open_and_count,
)
from analyzer.metrics import ReleaseMetrics
from analyzer.registry import AnalyzerKeys, Registry
from analyzer.staging import Staging
from analyzer.storage import ledger
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

_MIN_PAUSE: Final = 1.0
_MAX_PAUSE: Final = 60.0
"""Seconds before a failed release is retried, doubled each time."""


class Releases:
    """Receives batches, and releases a result for each."""

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
        self._metrics = metrics
        self._keys = keys
        self._store = store
        self._most_refused_share = most_refused_share
        self._registry = registry
        self._spending = spending
        self._pool = pool
        self._staging = staging
        self._charging = asyncio.Lock()
        """Serializes composing and charging the cost of a release."""
        self._releasing: dict[TaskDigest, asyncio.Task[None]] = {}
        self._budgets_known = False

    async def deliver(
        self, manifest: BatchManifest, chunks: AsyncIterator[bytes]
    ) -> BatchCommitment | None:
        """
        Stage a batch durably before returning. Delivering it again changes nothing.

        Returns:
            The signed commitment to the batch, the same every time; None for a batch staged by an
            earlier version.

        Raises:
            UnknownTaskError: No task has this digest.
            ConflictError: Another batch was delivered for this task.
            WireError: The number of reports contradicts the manifest or the task.
            DeliveryUnderWayError: Another call is delivering the same batch.
            BudgetError: The release would exceed the population's privacy budget.
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
        # Even if it was staged before: that call may have been cancelled before this line.
        self._start_release(manifest)
        kept = await self._store.commitment(manifest.task_digest)
        return None if kept is None else commitment_from_bytes(kept)

    async def resume(self) -> None:
        """Resume the batches that an earlier run had staged."""
        for manifest in await self._store.staged():
            self._start_release(manifest)

    def _start_release(self, manifest: BatchManifest) -> None:
        digest = manifest.task_digest
        if digest not in self._releasing:
            releasing = asyncio.create_task(self._release(manifest))
            self._releasing[digest] = releasing
            releasing.add_done_callback(lambda _: self._releasing.pop(digest))

    async def _release(self, manifest: BatchManifest) -> None:
        """Release a staged batch, retrying until it is released or found unusable."""
        pause = _MIN_PAUSE
        while True:
            try:
                if manifest in await self._store.staged():
                    await self._release_or_give_up(manifest)
            except Exception as error:  # noqa: BLE001  # retried: the batch is staged
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
                pause = min(2 * pause, _MAX_PAUSE)
            else:
                return

    async def _release_or_give_up(self, manifest: BatchManifest) -> None:
        try:
            await self._estimate_and_keep(manifest)
        except (UnusableBatchError, UnknownKeyError, AccountingError, BudgetError) as error:
            # Retrying cannot help: the error follows from the batch, the keys and the ledger.
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
        matches = await asyncio.to_thread(match_sentinels, chunks(), size, sentinels)
        await asyncio.to_thread(check_batch, matches, task)
        manifest = exclude_sentinels(manifest, matches, task)
        # Repeated, since releases after the staging may have spent the budget.
        await self._spending.require(task, manifest.n_users, 0, manifest.task_digest)
        mechanism = randomizer_of(task)
        started = time.perf_counter()
        intake = await asyncio.to_thread(
            open_and_count,
            drop_sentinels(chunks(), size, matches),
            task,
            manifest.task_digest,
            mechanism,
            pool=self._pool,
            key=key,
        )
        intake.refused["repeated"] += matches.n_repeated
        open_seconds = time.perf_counter() - started
        started = time.perf_counter()
        result = await asyncio.to_thread(build_result, manifest, task, mechanism, intake)
        check_refusals(result, self._most_refused_share)
        result = dataclasses.replace(
            result,
            open_seconds=open_seconds,
            estimate_seconds=time.perf_counter() - started,
            n_sentinels=matches.n_acknowledged,
            n_sentinels_missing=matches.n_missing,
            n_sentinels_repeated=matches.n_repeated,
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
        """Compose the cost with the actual refusals, and charge it: one release at a time."""
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
        Return a released result.

        Raises:
            UnknownTaskError: No task has this digest.
            BatchStateError: The task's batch has not been released yet.
            UnusableBatchError: The batch can never be released.
        """
        await self._registry.get(digest)
        kept = await self._store.result(digest)
        if kept is not None:
            return await asyncio.to_thread(result_from_bytes, kept)  # may have millions of items
        failure = await self._store.failure(digest)
        if failure is not None:
            raise UnusableBatchError(failure)
        raise BatchStateError("the task's batch has not been released yet")

    async def ledger(self, after: int) -> list[LedgerEntry]:
        """Return the ledger's entries with numbers above `after`."""
        return await self._store.ledger(after)

    async def measure_budgets(self, population: str = "") -> None:
        """
        Measure the share of its budgets that a population has spent; log failures.

        Args:
            population: The population; empty for all of them, as at start. All are measured until
                that has succeeded once.
        """
        try:
            known = population and self._budgets_known
            populations = [population] if known else await self._store.run(ledger.populations)
            self._metrics.spent([await self._spending.share(one) for one in populations])
            self._budgets_known = True
        except Exception as error:  # noqa: BLE001  # the release stands
            logs.event("budgets not measured", {"error": type(error).__name__}, level="WARNING")

    async def settled(self) -> None:
        """Wait until no release is under way."""
        while self._releasing:
            await asyncio.wait(self._releasing.values())

    async def stop(self) -> None:
        """Stop; staged batches are released after the next start."""
        releasing = list(self._releasing.values())
        for task in releasing:
            task.cancel()
        await asyncio.gather(*releasing, return_exceptions=True)
