"""
What the analyzer signed of a batch, and the leaves of what was sent: kept to be shown to devices.

Sorted hashes relate nothing to anybody, so they may outlive the batch's key. They are kept for a
while after the delivery, then deleted. Where the task lets the shuffler drop reports none are kept:
whether a report is there is the very secret that sampling protects by.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import numpy as np

from common.crypto.merkle import HASH_BYTES, Tree, leaves_of
from common.crypto.signing import PublicIdentity
from common.errors import DamagedStorageError, ProofError, StorageError, WireError
from common.messages.batch import BatchManifest
from common.messages.inclusion_proof import BatchCommitment, InclusionProof
from common.runtime import logs
from common.runtime.clock import Clock
from common.runtime.database import storage_failures
from common.runtime.state_directory import atomic_write
from common.task.task import Task
from common.task_digest import TaskDigest
from common.wire.evidence import commitment_from_bytes, commitment_to_bytes

_OWNER_ONLY: Final = 0o600
_TIME_BYTES: Final = 8
_BUCKETS_HELD: Final = 1 << 19
"""
Of all batches whose inner nodes are held in memory, some 150 bytes each; the leaves stay on the
disk. They are those of sixteen batches of ten million reports: who asks for many one after the
other makes others wait only where there are more.
"""
_LOOK_SECONDS: Final = 3600.0
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_UNFINISHED: Final = re.compile(r"\.[0-9a-f]{64}\.(leaves|commitment)\.[0-9]+")
"""What `atomic_write` writes to."""


class SentBatch:
    """The leaves of a delivery, hashed as its chunks go by."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._leaves = bytearray()

    async def passing(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Give the chunks on, and remember their leaves."""
        async for chunk in chunks:
            self._leaves += leaves_of(chunk, self._size)
            yield chunk

    async def whole(self, n_reports: int, chunks: AsyncIterator[bytes]) -> bytearray:
        """
        Give the leaves of all reports.

        Args:
            n_reports: How many there are.
            chunks: All of them once more: an analyzer that has the batch already answers before
                it has heard the end, and then the leaves are taken from here.

        Raises:
            DamagedStorageError: They are not as many.
        """
        leaves = self._leaves
        if len(leaves) != n_reports * HASH_BYTES:
            leaves = bytearray()  # another one: gRPC may still be writing what passed before
            async for chunk in chunks:
                leaves += leaves_of(chunk, self._size)
        if len(leaves) != n_reports * HASH_BYTES:
            raise DamagedStorageError(
                f"the permuted batch had {n_reports} reports; the disk gives "
                f"{len(leaves) // HASH_BYTES}"
            )
        return leaves


class InclusionProofs:
    """The proofs that this shuffler can show."""

    def __init__(
        self, *, directory: Path, identity: PublicIdentity, keep_seconds: float, clock: Clock
    ) -> None:
        """
        Open the directory, or make it.

        Args:
            directory: A file for leaves and one for the commitment, of each batch.
            identity: The pinned analyzer's.
            keep_seconds: For how long after its delivery, or its deadline, a batch is kept.
            clock: Tells when that is.

        Raises:
            StorageError: The disk is full, read-only or fails.
        """
        self._directory = directory
        self._identity = identity
        self._keep_seconds = keep_seconds
        self._clock = clock
        self._trees: OrderedDict[TaskDigest, tuple[BatchCommitment, Tree]] = OrderedDict()
        self._loading = asyncio.Lock()
        self._begin()

    @storage_failures()
    def _begin(self) -> None:
        """Make the directory; delete what a crash left half written, or without its other half."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        for path in self._directory.iterdir():
            alone = path.suffix == ".leaves" and not path.with_suffix(".commitment").exists()
            if _UNFINISHED.fullmatch(path.name) or (alone and _DIGEST.fullmatch(path.stem)):
                path.unlink()

    async def keep(
        self,
        manifest: BatchManifest,
        task: Task,
        commitment: BatchCommitment | None,
        leaves: bytearray,
    ) -> None:
        """
        Keep what the analyzer signed beside what was sent; when this returns it is on the disk.

        Where the two differ the signature is evidence against the analyzer, and is kept as such;
        the batch is delivered all the same. What is not signed by it is evidence of nothing. Of a
        task that samples the two are compared, and nothing is kept.
        """
        if commitment is None:
            _report("analyzer signed nothing", manifest, "WARNING")
            return
        try:
            commitment.check(self._identity, manifest.task_digest)
        except ProofError:
            _report("analyzer's commitment does not verify", manifest, "ERROR")
            return
        tree = await asyncio.to_thread(Tree.over, leaves, commitment.salt)
        if task.shuffler.kept == 1:
            await asyncio.to_thread(self._write, task.deadline, commitment, tree)
        if (manifest.batch_id, tree.root) != (commitment.batch_id, commitment.root):
            _report("analyzer signed other reports than were sent", manifest, "ERROR")

    def _write(self, deadline: int, commitment: BatchCommitment, tree: Tree) -> None:
        """Write both files, the one that says that they are whole last. In a thread."""
        digest = commitment.task_digest
        until = int(max(deadline, self._clock.now()) + self._keep_seconds)
        atomic_write(self._file(digest, "leaves"), tree.leaves.data, _OWNER_ONLY)
        kept = until.to_bytes(_TIME_BYTES) + commitment_to_bytes(commitment)
        atomic_write(self._file(digest, "commitment"), kept, _OWNER_ONLY)

    async def relay(
        self, digest: TaskDigest, prefix: int | None
    ) -> tuple[BatchCommitment | InclusionProof, int]:
        """
        Relay what the analyzer signed, and one bucket of the leaves that were sent.

        Returns:
            The commitment alone if no prefix is given; and the leaves of the fullest bucket, to
            the length of which every answer is filled up.

        Raises:
            ProofError: The task's batch has not been delivered, or too long ago.
            WireError: There is no such bucket.
        """
        commitment, tree = await self._tree(digest)
        if prefix is None:
            return commitment, tree.largest_bucket
        if prefix >> tree.bits:
            raise WireError(f"the prefix is {prefix}; there are {1 << tree.bits} buckets")
        return InclusionProof.of(tree, commitment, prefix), tree.largest_bucket

    async def _tree(self, digest: TaskDigest) -> tuple[BatchCommitment, Tree]:
        found = self._trees.get(digest)
        if found is None:
            async with self._loading:
                found = self._trees.get(digest)  # it may have come while others were read
                if found is None:
                    found = self._trees[digest] = await asyncio.to_thread(self._load, digest)
        self._trees.move_to_end(digest)
        while len(self._trees) > 1 and self._buckets_held() > _BUCKETS_HELD:
            self._trees.popitem(last=False)
        return found

    def _buckets_held(self) -> int:
        return sum(1 << tree.bits for _, tree in self._trees.values())

    def _load(self, digest: TaskDigest) -> tuple[BatchCommitment, Tree]:
        try:
            with storage_failures():
                return self._read(digest)
        except (ValueError, WireError) as error:  # an empty file, half a leaf, no commitment
            raise DamagedStorageError("what is kept of the task's proof is damaged") from error

    def _read(self, digest: TaskDigest) -> tuple[BatchCommitment, Tree]:
        try:
            kept = self._file(digest, "commitment").read_bytes()
            commitment = commitment_from_bytes(kept[_TIME_BYTES:])
            leaves = np.memmap(self._file(digest, "leaves"), dtype=np.uint8, mode="r")
        except FileNotFoundError as error:
            raise ProofError(
                "there is no proof for this task: its batch has not been delivered, or too long "
                "ago, or the task samples"
            ) from error
        if commitment is None:
            raise ProofError("there is no proof for this task: it was delivered without a salt")
        return commitment, Tree(np.asarray(leaves).reshape(-1, HASH_BYTES))

    async def keep_forgetting(self) -> None:
        """Delete what has been kept for long enough, for as long as the service runs."""
        while True:
            try:
                self.forget()
            except StorageError as error:  # the next look may do better
                logs.event("forgetting failed", {"error": type(error).__name__}, level="ERROR")
            await asyncio.sleep(_LOOK_SECONDS)

    @storage_failures()
    def forget(self) -> None:
        """
        Delete what has been kept for long enough; what was not put here stays.

        The commitment goes last: as long as it is there, the next look finds both.
        """
        for path in self._directory.glob("*.commitment"):
            if not _DIGEST.fullmatch(path.stem):
                continue
            if int.from_bytes(path.read_bytes()[:_TIME_BYTES]) < self._clock.now():
                self._trees.pop(TaskDigest(bytes.fromhex(path.stem)), None)
                path.with_suffix(".leaves").unlink(missing_ok=True)
                path.unlink()

    def _file(self, digest: TaskDigest, kind: str) -> Path:
        return self._directory / f"{digest.hex()}.{kind}"


def _report(event: str, manifest: BatchManifest, level: logs.Level) -> None:
    logs.event(event, logs.batch_fields(manifest.task_digest, manifest.batch_id), level=level)
