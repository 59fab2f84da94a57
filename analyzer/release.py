"""
Release batches: stage, open, estimate, compute the guarantee, charge the ledger, store the result.

A delivery is acknowledged once the whole batch is staged; after a crash the next start resumes
there. One transaction charges the ledger and stores the result, so a batch is released once and
charged once, or neither.
"""

import asyncio
from dataclasses import dataclass, replace
from functools import partial

from shuffledp.analyzer import batch_counts
from shuffledp.analyzer.batch_counts import BatchCounts, Waiver, check_counts
from shuffledp.analyzer.budgets import ReleaseBudgets
from shuffledp.analyzer.count_job import CountJob
from shuffledp.analyzer.finalize import build_result
from shuffledp.analyzer.metrics import ReleaseMetrics
from shuffledp.analyzer.registry import Registry
from shuffledp.analyzer.sentinels import SentinelMatches, check_sentinels, without_sentinels
from shuffledp.analyzer.storage import ledger, quarantine, task_table
from shuffledp.analyzer.storage.store import Store
from shuffledp.common import errors
from shuffledp.common.mechanisms.registry import randomizer_of
from shuffledp.common.messages.batch import BatchManifest
from shuffledp.common.messages.guarantee import claimed
from shuffledp.common.messages.ledger_entry import Decision, DecisionEntry, LedgerEntry
from shuffledp.common.messages.result import Result
from shuffledp.common.receiving import delivery_table
from shuffledp.common.receiving.receiver import Receiver, check_numbers
from shuffledp.common.runtime import logs
from shuffledp.common.runtime.certificates import RELAY
from shuffledp.common.runtime.clock import cancel_all, retry_pause
from shuffledp.common.task.kinds import KINDS
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire.results import result_from_bytes, result_to_wire


@dataclass(kw_only=True)
class Staging(Receiver[CountJob]):
    """Stages batches until they are released."""

    store: Store
    budgets: ReleaseBudgets
    metrics: ReleaseMetrics

    async def check_sender(self, digest: TaskDigest, names: frozenset[str] | None) -> None:
        """Raise CallerError unless a certificate with these names is its last shuffler's."""
        sender = RELAY if (await self._task(digest)).relay else "shuffler"
        if names is not None and sender not in names:
            raise errors.CallerError(f"this task's batch is delivered by the {sender}")

    def check_manifest(self, manifest: BatchManifest, task: Task) -> None:
        """Raise WireError for fewer than n_min users, or numbers that contradict the task."""
        if manifest.n_users < task.n_min:
            raise errors.WireError(
                f"the batch has {manifest.n_users} users; the task needs at least {task.n_min}"
            )
        if manifest.n_discarded and not task.relay:
            raise errors.WireError(
                f"{manifest.n_discarded} reports were discarded; the task has no relay"
            )
        check_numbers(manifest, task, task.shuffler)

    async def admit(self, manifest: BatchManifest, task: Task) -> None:
        """
        Check that the budgets suffice even if every report counts; else mark the batch unusable.

        Raises:
            BudgetError: The release would exceed the population's privacy budget.
            AccountingError: No guarantee exists for the batch's number of users.
            DamagedStorageError: The ledger cannot be read; the shuffler retries after that error.

        Cost: that of `ReleaseBudgets.check`.
        """
        try:
            await self.budgets.check(task, manifest.n_users, manifest.task_digest)
        except (errors.TaskError, errors.LedgerError) as error:
            raise errors.DamagedStorageError(
                f"the analyzer cannot read its own storage: {error}"
            ) from error
        except (errors.BudgetError, errors.AccountingError) as error:
            await self.store.mark_unusable(manifest, str(error))
            self.metrics.record_unusable(manifest.task_digest, quarantined=False)
            raise


@dataclass(kw_only=True)
class Releases:
    """Releases a result for each staged batch."""

    staging: Staging
    registry: Registry
    most_refused_share: float

    def __post_init__(self) -> None:
        self.store, self.budgets = self.staging.store, self.staging.budgets
        self.metrics, self.executor = self.staging.metrics, self.staging.executor
        self.keys, self.clock = self.registry.keys, self.registry.clock
        self.staging.on_staged = self._begin
        self._charging = asyncio.Lock()
        """Held from composing a cost until it is charged: no two releases spend the same budget."""
        self._releasing: dict[TaskDigest, asyncio.Task[None]] = {}
        self._due: set[TaskDigest] = set()
        """Batches to release, or to erase, by the coroutines of `_releasing`: perhaps again."""
        self._all_measured = False
        """Whether `measure_budgets` has measured every population."""

    def _begin(self, delivered: BatchManifest) -> None:
        self.metrics.record_staged(delivered.task_digest)
        self._start_release(delivered)

    async def resume(self) -> None:
        """Erase what a crash left, and resume the batches that an earlier run had staged."""
        await self.staging.sweep()
        for manifest in await self.store.staged():
            self._start_release(manifest)

    def _start_release(self, delivered: BatchManifest) -> None:
        digest = delivered.task_digest
        self._due.add(digest)
        if digest not in self._releasing:
            self._releasing[digest] = asyncio.create_task(self._retry_until_ended(delivered))

    async def _retry_until_ended(self, delivered: BatchManifest) -> None:
        """Try to release a staged batch until it is unusable, or finished and erased."""
        digest, pause = delivered.task_digest, 0.0
        try:
            while digest in self._due:
                self._due.discard(digest)  # first: what is decided from here on is not overlooked
                try:
                    if delivered in await self.store.staged():
                        await self._release_or_mark_unusable(delivered)
                    if delivered.batch_id not in await self.store.run(quarantine.kept_batches):
                        await self.staging.erase(delivered)
                        await self.executor.forget_keys()
                except Exception as error:  # noqa: BLE001  # retried, since the batch is staged
                    _log_failure("batch not released yet", delivered, error)
                    self.metrics.record_failure(error)
                    self._due.add(digest)
                    pause = retry_pause(pause)
                    await asyncio.sleep(pause)
        finally:
            del self._releasing[digest]

    async def _release_or_mark_unusable(self, delivered: BatchManifest) -> None:
        try:
            await self._release(delivered)
        except (
            errors.UnusableBatchError,
            errors.UnknownKeyError,
            errors.AccountingError,
            errors.BudgetError,
        ) as error:
            # Retrying cannot help: the error follows from the batch, the keys and the ledger.
            quarantined = isinstance(error, errors.SuspectBatchError)
            await self.store.mark_unusable(delivered, str(error), quarantined=quarantined)
            n_missing = error.n_missing if isinstance(error, errors.SuspectBatchError) else 0
            self.metrics.record_unusable(
                delivered.task_digest, quarantined=quarantined, n_missing=n_missing
            )
            _log_failure("batch quarantined" if quarantined else "batch unusable", delivered, error)

    async def _release(self, delivered: BatchManifest) -> None:
        task = await self.registry.task(delivered.task_digest)
        waiver = Waiver(await self.store.run(ledger.find_decision, delivered.task_digest))
        key = self.keys.reports.private_key(task.suite, task.analyzer_key, whose="analyzer_key")
        sentinels = await self.store.run(task_table.sentinels, delivered.task_digest)
        job, n_distinct = await self.staging.merged(delivered.task_digest)
        leaves = b"".join(leaf for sentinel in sentinels for leaf in sentinel.leaves)
        job = replace(job, private_key=key.private_bytes(), sentinel_leaves=leaves)
        found = await self.staging.run_on_arrived(CountJob.match, job) if sentinels else []
        matches = SentinelMatches.joined(sentinels, found)
        await asyncio.to_thread(waiver.run, "sentinels", check_sentinels, matches, task)
        batch = without_sentinels(delivered, matches, task)
        waiver.run("lengths", batch_counts.check_lengths, batch, task)
        try:
            opened = await self._count(job, n_repeated=delivered.n_reports - n_distinct)
        except errors.DamagedStorageError:
            self.staging.forget_merged(delivered.batch_id)
            raise
        counts = batch_counts.refuse_excess_padding(opened, task, batch)
        waiver.run("refusals", check_counts, counts, batch.n_reports, self.most_refused_share)
        build = partial(build_result, elapsed=self.clock.elapsed, waived=waiver.waived(batch))
        result = await asyncio.to_thread(build, batch, task, randomizer_of(task), counts, matches)
        if not KINDS[task.kind].counted_in_cells:  # reports are not kept
            counts = replace(counts, cells=counts.cells[:0])
        result = replace(result, warnings=(*waiver.warnings(), *result.warnings))
        await self._charge_and_store(batch, task, counts, result)
        self.metrics.record_release(result)
        logs.event(
            "batch released",
            {
                **logs.batch_fields(batch.task_digest, batch.batch_id),
                "n_users": batch.n_users,
                "refused": counts.n_refused,
            },
        )
        if task.population:
            await self.measure_budgets(task.population)

    async def _count(self, job: CountJob, *, n_repeated: int) -> BatchCounts:
        started = self.clock.elapsed()
        slices = await self.executor.run(CountJob.count, job, range(job.n_slices))
        return BatchCounts.joined(
            await asyncio.to_thread(job.cells),
            slices,
            n_repeated=n_repeated,
            open_seconds=self.clock.elapsed() - started,
        )

    async def _charge_and_store(
        self, batch: BatchManifest, task: Task, counts: BatchCounts, result: Result
    ) -> None:
        async with self._charging:
            composed = await self.budgets.compose(
                task, batch.n_users, counts.n_refused, batch.task_digest, result.waived
            )
            guarantee = claimed(result.guarantees)
            cost = LedgerEntry(
                task_digest=batch.task_digest,
                batch_id=batch.batch_id,
                population=task.population,
                n_users=batch.n_users,
                n_refused=counts.n_refused,
                coalition=guarantee.coalition,
                epsilon=guarantee.epsilon,
                delta=guarantee.delta,
                theorem=guarantee.theorem,
                composed_epsilon=composed,
                waived=str(result.waived),
            )
            await self.store.release(
                counts.cells.tobytes(), result_to_wire(result).SerializeToString(), cost
            )

    async def decide(self, digest: TaskDigest, decision: Decision, note: str) -> DecisionEntry:
        """
        Release a quarantined batch in spite of its failed check, or drop one without a result.

        For operators.

        The decision is durable when this returns; the batch is estimated, or erased, afterwards.
        The same decision again changes nothing.

        Raises UnknownTaskError if no task has this digest; BatchStateError if the task has no such
        batch.
        """
        await self.registry.get(digest)
        identity, now = self.keys.identity, self.clock.now()
        entry, is_new = await self.store.run(
            quarantine.decide, digest, decision, note, identity=identity, now=now
        )
        delivery = await self.store.run(delivery_table.find_delivery, digest)
        if is_new:
            self.metrics.record_decision(digest, decision)
            fields = logs.batch_fields(digest, entry.batch_id)
            logs.event("batch decided", {**fields, "state": decision})
        if delivery is not None:
            self._start_release(delivery.manifest)
        return entry

    async def drop_ended(self, before: float) -> None:
        """
        Drop every batch without a result of a task whose deadline was before this time.

        One that cannot be dropped is logged, and the others are dropped.
        """
        for digest in await self.store.run(quarantine.ended, before):
            try:
                await self.decide(digest, "drop", "it was kept until its end date")
            except Exception as error:  # noqa: BLE001  # it may succeed the next time
                fields: dict[logs.Field, str] = {"task_digest": digest.hex()}
                fields["error"] = type(error).__name__
                logs.event("batch not dropped yet", {**fields}, level="ERROR")

    async def result(self, digest: TaskDigest) -> Result:
        """
        Return a released result.

        Raises:
            UnknownTaskError: No task has this digest.
            BatchStateError: The task's batch has not been released yet.
            UnusableBatchError: The batch can never be released.
            SuspectBatchError: The batch is quarantined.
        """
        await self.registry.get(digest)
        stored = await self.store.result(digest)
        if stored is not None:
            return await asyncio.to_thread(result_from_bytes, stored)  # may have millions of items
        failure = await self.store.failure(digest)
        if failure is not None:
            reason, quarantined = failure
            if quarantined:
                raise errors.SuspectBatchError(
                    f"{reason}; the batch is quarantined until its operator decides with "
                    "shuffledp batch release, or batch drop, or until its end date"
                )
            raise errors.UnusableBatchError(reason)
        raise errors.BatchStateError(
            "the task's batch has not been released yet; close it with shuffledp task close, or "
            f"see shuffledp task show {digest.hex()}"
        )

    async def measure_budgets(self, population: str = "") -> None:
        """
        Measure the share of its budgets that a population has spent; log failures.

        An empty `population` stands for all of them, as at start. Until all have been measured
        once, every call measures all of them.
        """
        try:
            enough = population and self._all_measured
            populations = [population] if enough else await self.store.run(ledger.populations)
            self.metrics.record_spent([await self.budgets.share(name) for name in populations])
            self._all_measured = True
        except Exception as error:  # noqa: BLE001  # a failed measurement must not affect the release
            logs.event("budgets not measured", {"error": type(error).__name__}, level="WARNING")

    async def settled(self) -> None:
        """Wait until no release is under way."""
        while self._releasing:
            await asyncio.wait(self._releasing.values())

    async def stop(self) -> None:
        """Stop; staged batches are released after the next start."""
        await self.staging.stop()
        await cancel_all(self._releasing.values())


def _log_failure(name: str, batch: BatchManifest, error: Exception) -> None:
    fields = logs.batch_fields(batch.task_digest, batch.batch_id)
    logs.event(name, {**fields, "error": type(error).__name__}, level="ERROR")
