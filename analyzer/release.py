"""
A batch's way through the analyzer: stage, open, estimate, state the guarantee, charge, release.

A delivery is acknowledged when it is staged whole; whatever happens then, a restart goes on from
there. A batch is released once.
"""

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Iterator
from typing import Final

import numpy as np

from analyzer.conclusion import conclude
from analyzer.intake import Intake, take_in
from analyzer.keys import AnalyzerKeys
from analyzer.ledger import Charge
from analyzer.lookout import look, without
from analyzer.registry import Registry
from analyzer.spending import Spending
from analyzer.staged_hash import StagedHash
from analyzer.store import Store
from analyzer.verdict import judge, judge_refusals, of_users_alone
from common.batch import BatchManifest
from common.errors import (
    AccountingError,
    BudgetError,
    DeliveryUnderWayError,
    ManifestError,
    NotReleasedError,
    ShuffleDpError,
    SuspectBatchError,
    UnknownKeyError,
    UnusableBatchError,
)
from common.evidence_wire import commitment_from_bytes, commitment_to_bytes
from common.guarantee import claimed
from common.hpke_pool import Pool
from common.inclusion import BatchCommitment
from common.ledger_entry import LedgerEntry
from common.mechanisms.catalogue import mechanism_of
from common.merkle import SALT_BYTES, Tree, leaves_of
from common.result import Result
from common.runtime import logs
from common.task import Task
from common.task_digest import TaskDigest
from common.wire import result_from_bytes, result_to_bytes

_GROUP: Final = 64
"""Chunks staged in one transaction."""
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
"""Seconds before a release that failed is tried again, doubled each time."""


class Releases:
    """Receives batches and releases results."""

    def __init__(
        self,
        *,
        store: Store,
        registry: Registry,
        spending: Spending,
        keys: AnalyzerKeys,
        pool: Pool,
        most_refused_share: float,
        rng: np.random.Generator,
    ) -> None:
        """
        Take what releases need.

        Args:
            store: Where batches, results and charges are kept.
            registry: The published tasks.
            spending: What populations have spent.
            keys: Opens reports, and signs.
            pool: The workers that open.
            most_refused_share: Of a batch's reports; if more are refused, nothing is released.
            rng: Draws the salts of commitments.
        """
        self._keys = keys
        self._store = store
        self._identity = keys.identity
        self._most_refused_share = most_refused_share
        self._registry = registry
        self._spending = spending
        self._pool = pool
        self._rng = rng
        self._charging = asyncio.Lock()
        """Held from composing what a release costs until it is charged."""
        self._receiving: set[TaskDigest] = set()
        self._releasing: dict[TaskDigest, asyncio.Task[None]] = {}

    # --- receiving --------------------------------------------------------------------------------

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
            BatchConflictError: Another batch was delivered for this task.
            ManifestError: The reports are not as many as the manifest and the task say.
            DeliveryUnderWayError: The same batch is being delivered at this moment.
            BudgetError: Its release would exceed the budget of the population.
        """
        try:
            await self._receive(manifest, chunks)
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

    async def _receive(self, manifest: BatchManifest, chunks: AsyncIterator[bytes]) -> None:
        signed = await self._registry.get(manifest.task_digest)
        task = Task.from_bytes(signed.task_bytes)
        _check_manifest(manifest, task)
        if manifest.task_digest in self._receiving:
            raise DeliveryUnderWayError("this batch is being delivered by another call")
        self._receiving.add(manifest.task_digest)
        try:
            if await self._store.begin_batch(manifest):
                await self._require_budget(manifest, task)
                await self._stage(manifest, task, chunks)
                logs.event(
                    "batch staged",
                    {
                        **logs.batch_fields(manifest.task_digest, manifest.batch_id),
                        "n_users": manifest.n_users,
                    },
                )
        finally:
            self._receiving.discard(manifest.task_digest)

    async def _require_budget(self, manifest: BatchManifest, task: Task) -> None:
        """Refuse, before a report is looked at, what would cost too much even if all were good."""
        try:
            await self._spending.require(task, manifest.n_users, 0, manifest.task_digest)
        except BudgetError as error:
            await self._store.give_up(manifest, str(error))
            raise

    async def _stage(
        self, manifest: BatchManifest, task: Task, chunks: AsyncIterator[bytes]
    ) -> None:
        received = position = 0
        staged = StagedHash(task.sealed_report_bytes)
        group: list[bytes] = []
        leaves = bytearray()
        async for chunk in chunks:
            reports, rest = divmod(len(chunk), task.sealed_report_bytes)
            received += reports
            if rest:
                raise ManifestError(
                    f"a chunk has {len(chunk)} bytes; it must hold whole reports of "
                    f"{task.sealed_report_bytes}"
                )
            if received > manifest.n_reports:
                raise ManifestError(f"{received} reports came; {manifest.n_reports} were announced")
            leaves += leaves_of(chunk, task.sealed_report_bytes)
            staged.add(chunk)
            group.append(chunk)
            if len(group) == _GROUP:
                await self._store.add_chunks(manifest.batch_id, position, group)
                position += len(group)
                group = []
        if received != manifest.n_reports:
            raise ManifestError(f"{received} reports came; {manifest.n_reports} were announced")
        await self._store.add_chunks(manifest.batch_id, position, group)
        # No earlier: whoever knew it could still send reports that all stand in one bucket.
        salt = self._rng.bytes(SALT_BYTES)
        commitment = await asyncio.to_thread(self._commit, manifest, leaves, salt)
        await self._store.finish_batch(
            manifest.batch_id, staged.digest(), commitment_to_bytes(commitment)
        )

    def _commit(self, manifest: BatchManifest, leaves: bytearray, salt: bytes) -> BatchCommitment:
        """Sign the root over all that arrived. In a thread."""
        tree = Tree.over(leaves, salt)
        return BatchCommitment.sign(
            self._identity, manifest.task_digest, manifest.batch_id, tree, salt
        )

    # --- releasing --------------------------------------------------------------------------------

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
        size, loop = task.sealed_report_bytes, asyncio.get_running_loop()
        sentinels = await self._store.sentinels(manifest.task_digest)
        staged_hash = await self._store.staged_hash(manifest.batch_id)
        delivered = manifest

        def chunks() -> Iterator[bytes]:
            return self._chunks(delivered, size, staged_hash, loop)

        sightings = await asyncio.to_thread(look, chunks(), size, sentinels)
        await asyncio.to_thread(judge, sightings, task)
        manifest = of_users_alone(delivered, sightings, task)
        # Again: what was released since the batch was staged may have left too little.
        await self._spending.require(task, manifest.n_users, 0, manifest.task_digest)
        mechanism = mechanism_of(task)
        started = time.perf_counter()
        intake = await asyncio.to_thread(
            take_in,
            without(chunks(), size, sightings),
            task,
            manifest.task_digest,
            mechanism,
            pool=self._pool,
            key=key,
        )
        intake.refused["repeated"] += sightings.n_repeated
        open_seconds = time.perf_counter() - started
        started = time.perf_counter()
        result = await asyncio.to_thread(conclude, manifest, task, mechanism, intake)
        judge_refusals(result, self._most_refused_share)
        result = dataclasses.replace(
            result,
            open_seconds=open_seconds,
            estimate_seconds=time.perf_counter() - started,
            n_sentinels=sightings.n_acknowledged,
            n_sentinels_missing=sightings.n_missing,
            n_sentinels_repeated=sightings.n_repeated,
        )
        await self._charge_and_release(manifest, task, intake, result)
        logs.event(
            "batch released",
            {
                **logs.batch_fields(manifest.task_digest, manifest.batch_id),
                "n_users": manifest.n_users,
                "refused": sum(intake.refused.values()),
            },
        )

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

    def _chunks(
        self,
        manifest: BatchManifest,
        size: int,
        expected: bytes | None,
        loop: asyncio.AbstractEventLoop,
    ) -> Iterator[bytes]:
        """Read staged chunks from a worker thread; after the last, check that it was all."""
        read, position = StagedHash(size), 0
        while True:
            reading = self._store.chunk(manifest.batch_id, position)
            chunk = asyncio.run_coroutine_threadsafe(reading, loop).result()
            if chunk is None:
                read.check(manifest.n_reports, expected)
                return
            read.add(chunk)
            yield chunk
            position += 1

    async def result(self, digest: TaskDigest) -> Result:
        """
        Give a released result.

        Raises:
            UnknownTaskError: There is no such task.
            NotReleasedError: Its batch has not been released yet.
            UnusableBatchError: It never will be.
        """
        await self._registry.get(digest)
        kept = await self._store.result(digest)
        if kept is not None:
            return await asyncio.to_thread(result_from_bytes, kept)  # may be of millions of items
        failure = await self._store.failure(digest)
        if failure is not None:
            raise UnusableBatchError(failure)
        raise NotReleasedError("the task's batch has not been released yet")

    async def ledger(self, after: int) -> list[LedgerEntry]:
        """Give what releases cost, from the entry after `after` on."""
        return await self._store.ledger(after)

    async def stop(self) -> None:
        """Leave off; what is staged is released after the next start."""
        releasing = list(self._releasing.values())
        for task in releasing:
            task.cancel()
        await asyncio.gather(*releasing, return_exceptions=True)


def _check_manifest(manifest: BatchManifest, task: Task) -> None:
    if manifest.n_users < task.n_min:
        raise ManifestError(
            f"the batch has {manifest.n_users} users; the task is released from {task.n_min} on"
        )
    least, most = task.batch_reports(manifest.n_users)
    if not least <= manifest.n_reports <= most:
        wanted = str(most) if least == most else f"{least} to {most}"
        raise ManifestError(
            f"{manifest.n_reports} reports are announced; a batch of {manifest.n_users} users has "
            f"{wanted}"
        )
