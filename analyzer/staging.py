"""
Receive batches, store them until they are released, and detect damage when they are read back.

SQLite has no checksums: a flipped bit in a page of ciphertexts would appear as reports that do not
open. So each batch is stored with a hash.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from analyzer.budgets import ReleaseBudgets
from analyzer.metrics import ReleaseMetrics
from analyzer.registry import Registry
from analyzer.storage.store import Store
from common.crypto.signing import SigningIdentity
from common.errors import (
    AccountingError,
    BudgetError,
    DamagedStorageError,
    DeliveryUnderWayError,
    LedgerError,
    TaskError,
    UnusableBatchError,
    WireError,
)
from common.messages.batch import BatchManifest
from common.messages.inclusion_proof import SALT_BYTES, BatchCommitment, leaves_of, tree_over
from common.runtime import logs
from common.task.task import Task
from common.task_digest import TaskDigest
from common.wire.batches import commitment_to_bytes

_HASH_BYTES: Final = 32


class StagedHash:
    """Hashes and counts a batch's reports, chunk by chunk. Cost: 1 to 2 ns per byte."""

    def __init__(self, report_bytes: int) -> None:
        self._report_bytes = report_bytes
        self._hash = hashlib.blake2b(digest_size=_HASH_BYTES)
        self._n_reports = 0

    def add(self, chunk: bytes) -> None:
        """Add the next chunk of whole reports. The division into chunks does not matter."""
        self._hash.update(chunk)
        self._n_reports += len(chunk) // self._report_bytes

    def digest(self) -> bytes:
        """Return the hash of all chunks added."""
        return self._hash.digest()

    def check(self, n_reports: int, expected: bytes | None) -> None:
        """
        Check a batch that was read back, after its last chunk.

        Args:
            n_reports: Number of reports that were staged.
            expected: The hash stored with the reports; None, if it is missing, never matches.

        Raises:
            UnusableBatchError: The number of reports or the hash differs; no copy is left.
        """
        if self._n_reports != n_reports:
            raise UnusableBatchError(
                f"{n_reports} reports of the batch were staged; {self._n_reports} are on the disk"
            )
        if expected != self.digest():
            raise UnusableBatchError(
                "the batch's staged reports, or the hash stored with them, are damaged on the disk"
            )


_CHUNKS_AT_ONCE: Final = 64
"""Chunks stored per transaction."""


class Staging:
    """Stages batches until they are released."""

    def __init__(
        self,
        *,
        store: Store,
        registry: Registry,
        budgets: ReleaseBudgets,
        identity: SigningIdentity,
        rng: np.random.Generator,
        metrics: ReleaseMetrics,
    ) -> None:
        """`identity` signs commitments, and `rng` draws their salts."""
        self._metrics = metrics
        self._store = store
        self._registry = registry
        self._budgets = budgets
        self._identity = identity
        self._rng = rng
        self._receiving: set[TaskDigest] = set()

    async def receive(
        self,
        manifest: BatchManifest,
        chunks: AsyncIterator[bytes],
        ask_for_reports: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """
        Stage a batch durably before returning, unless it is staged already.

        `ask_for_reports` is called once the manifest is accepted, before `chunks` is read; it is
        not called for a batch that is staged already.

        Raises:
            UnknownTaskError: No task has this digest.
            ConflictError: Another batch was delivered for this task, or this one for another task.
            WireError: There are fewer than n_min users, a chunk has part of a report, or the number
                of reports contradicts the manifest or the task.
            DeliveryUnderWayError: Another call is delivering the same batch.
            BudgetError: The release would exceed the population's privacy budget.
            AccountingError: No guarantee exists for the batch's number of users.
            DamagedStorageError: The analyzer's own tasks or ledger cannot be read; safe to retry.
        """
        with _own_failures():
            task = await self._registry.task(manifest.task_digest)
        _check_manifest(manifest, task)
        if manifest.task_digest in self._receiving:
            raise DeliveryUnderWayError("this batch is being delivered by another call")
        self._receiving.add(manifest.task_digest)
        try:
            if await self._store.begin_batch(manifest):
                await self._check_budgets(manifest, task)
                if ask_for_reports is not None:
                    await ask_for_reports()
                await self._stage(manifest, task, chunks)
                self._metrics.record_staged(manifest.task_digest)
                logs.event(
                    "batch staged",
                    {
                        **logs.batch_fields(manifest.task_digest, manifest.batch_id),
                        "n_users": manifest.n_users,
                    },
                )
        finally:
            self._receiving.discard(manifest.task_digest)

    async def _check_budgets(self, manifest: BatchManifest, task: Task) -> None:
        """Mark a batch unusable, and raise, if it exceeds a budget even if every report counts."""
        try:
            with _own_failures():
                await self._budgets.check(task, manifest.n_users, manifest.task_digest)
        except (BudgetError, AccountingError) as error:
            await self._store.mark_unusable(manifest, str(error))
            self._metrics.record_unusable(manifest.task_digest, quarantined=False)
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
                raise WireError(
                    f"a chunk has {len(chunk)} bytes; it must hold whole reports of "
                    f"{task.sealed_report_bytes}"
                )
            if received > manifest.n_reports:
                raise WireError(f"{received} reports arrived; {manifest.n_reports} were announced")
            leaves += leaves_of(chunk, task.sealed_report_bytes)
            staged.add(chunk)
            group.append(chunk)
            if len(group) == _CHUNKS_AT_ONCE:
                await self._store.add_chunks(manifest.batch_id, position, group)
                position += len(group)
                group = []
        if received != manifest.n_reports:
            raise WireError(f"{received} reports arrived; {manifest.n_reports} were announced")
        await self._store.add_chunks(manifest.batch_id, position, group)
        # Drawn last: a shuffler that knew the salt could send reports whose salted hashes all fall
        # into one bucket of the inclusion proofs.
        salt = self._rng.bytes(SALT_BYTES)
        commitment = await asyncio.to_thread(self._commit, manifest, leaves, salt)
        await self._store.finish_batch(
            manifest.batch_id, staged.digest(), commitment_to_bytes(commitment)
        )

    def _commit(self, manifest: BatchManifest, leaves: bytearray, salt: bytes) -> BatchCommitment:
        """Sign the root over all reports that arrived. Run in a thread."""
        tree, _ = tree_over(leaves, salt)
        return BatchCommitment.sign(
            self._identity, manifest.task_digest, manifest.batch_id, tree, salt
        )

    async def reader(self, manifest: BatchManifest, size: int) -> Callable[[], Iterator[bytes]]:
        """
        Return a function that reads a staged batch of `size`-byte reports, chunk by chunk.

        Call it in a thread. It raises UnusableBatchError after the last chunk if the batch is
        damaged.
        """
        expected = await self._store.staged_hash(manifest.batch_id)
        loop = asyncio.get_running_loop()

        def read() -> Iterator[bytes]:
            seen, position = StagedHash(size), 0
            while True:
                reading = self._store.chunk(manifest.batch_id, position)
                chunk = asyncio.run_coroutine_threadsafe(reading, loop).result()
                if chunk is None:
                    seen.check(manifest.n_reports, expected)
                    return
                seen.add(chunk)
                yield chunk
                position += 1

        return read


@contextmanager
def _own_failures() -> Generator[None]:
    """
    Convert failures to read the analyzer's tasks or ledger to DamagedStorageError.

    The shuffler retries after that error, but quarantines a batch that the analyzer refuses.
    """
    try:
        yield
    except (TaskError, LedgerError) as error:
        raise DamagedStorageError(f"the analyzer cannot read its own storage: {error}") from error


def _check_manifest(manifest: BatchManifest, task: Task) -> None:
    if manifest.n_users < task.n_min:
        raise WireError(
            f"the batch has {manifest.n_users} users; the task needs at least {task.n_min}"
        )
    minimum, maximum = task.batch_reports(manifest.n_users)
    if not minimum <= manifest.n_reports <= maximum:
        allowed = str(maximum) if minimum == maximum else f"{minimum} to {maximum}"
        raise WireError(
            f"{manifest.n_reports} reports are announced; a batch of {manifest.n_users} users must "
            f"have {allowed}"
        )
