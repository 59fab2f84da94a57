"""
Inclusion proofs: the analyzer's commitment to a batch, and the leaves of the delivered reports.

Sorted hashes link no report to a user, so they may outlive the batch's key; they are deleted
`keep_seconds` after the delivery or deadline. A task that samples reports has no proofs: its
guarantee assumes that nobody learns which reports were kept.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import numpy as np

from common.crypto.signing import PublicIdentity
from common.errors import DamagedStorageError, ProofError, StorageError, WireError
from common.messages.batch import BatchManifest
from common.messages.inclusion_proof import (
    HASH_BYTES,
    BatchCommitment,
    InclusionProof,
    Tree,
    leaves_of,
)
from common.runtime import logs
from common.runtime.clock import Clock
from common.runtime.database import storage_failures
from common.runtime.state_directory import atomic_write
from common.task.task import Task
from common.task_digest import TaskDigest
from common.wire.batches import commitment_from_bytes, commitment_to_bytes

_OWNER_ONLY: Final = 0o600
_TIME_BYTES: Final = 8
_MAX_BUCKETS_HELD: Final = 1 << 19
"""Maximum number of buckets of all trees in memory, about 150 bytes each; enough for 16 batches of
ten million reports. A single tree may exceed it. The leaves stay on the disk."""
_SWEEP_SECONDS: Final = 3600.0
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_UNFINISHED: Final = re.compile(r"\.[0-9a-f]{64}\.(leaves|commitment)\.[0-9]+")
"""Temporary files of `atomic_write`."""


class SentBatch:
    """Computes the leaves of a batch while its chunks are delivered."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._leaves = bytearray()

    async def record(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the chunks unchanged, and record their leaves."""
        async for chunk in chunks:
            self._leaves += leaves_of(chunk, self._size)
            yield chunk

    async def leaves(self, n_reports: int, chunks: AsyncIterator[bytes]) -> bytearray:
        """
        Return the leaves of all reports.

        Args:
            n_reports: Number of reports in the batch.
            chunks: The whole batch again, read only if the analyzer had it already and answered
                before every chunk was sent.
        """
        if len(self._leaves) == n_reports * HASH_BYTES:
            return self._leaves
        leaves = bytearray()  # a new one: gRPC may still be reading the first chunks
        async for chunk in chunks:
            leaves += leaves_of(chunk, self._size)
        return leaves


class InclusionProofs:
    """Stores and serves inclusion proofs."""

    def __init__(
        self, *, directory: Path, identity: PublicIdentity, keep_seconds: float, clock: Clock
    ) -> None:
        """
        Open or create the directory, which holds two files per batch, or raise StorageError.

        Proofs are deleted `keep_seconds` after the delivery or deadline, whichever is later.
        """
        self._directory = directory
        self._identity = identity
        self._keep_seconds = keep_seconds
        self._clock = clock
        self._trees: OrderedDict[TaskDigest, tuple[BatchCommitment, Tree]] = OrderedDict()
        self._loading = asyncio.Lock()
        self._open()

    @storage_failures()
    def _open(self) -> None:
        """Create the directory; delete unfinished files, and leaves without a commitment."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        for path in self._directory.iterdir():
            orphan = path.suffix == ".leaves" and not path.with_suffix(".commitment").exists()
            if _UNFINISHED.fullmatch(path.name) or (orphan and _DIGEST.fullmatch(path.stem)):
                path.unlink()

    async def keep(
        self,
        manifest: BatchManifest,
        task: Task,
        commitment: BatchCommitment | None,
        leaves: bytearray,
    ) -> None:
        """
        Store the analyzer's commitment and the sent leaves durably.

        A commitment to other reports is evidence against the analyzer, so it is stored too; the
        batch counts as delivered. If the commitment is None or its signature is invalid, nothing is
        stored. For a task that samples, the commitment and leaves are only compared.
        """
        if commitment is None:
            _report("analyzer signed nothing", manifest, "WARNING")
            return
        try:
            commitment.verify(self._identity, manifest.task_digest)
        except ProofError:
            _report("analyzer's commitment does not verify", manifest, "ERROR")
            return
        tree = await asyncio.to_thread(Tree.over, leaves, commitment.salt)
        if task.shuffler.keep_probability == 1:
            await asyncio.to_thread(self._write, task.deadline, commitment, tree)
        if (manifest.batch_id, tree.root) != (commitment.batch_id, commitment.root):
            _report("analyzer signed other reports than were sent", manifest, "ERROR")

    def _write(self, deadline: int, commitment: BatchCommitment, tree: Tree) -> None:
        """Write both files, the commitment last, since it marks them complete. Run in a thread."""
        digest = commitment.task_digest
        until = int(max(deadline, self._clock.now()) + self._keep_seconds)
        atomic_write(self._file(digest, "leaves"), tree.leaves.data, _OWNER_ONLY)
        kept = until.to_bytes(_TIME_BYTES) + commitment_to_bytes(commitment)
        atomic_write(self._file(digest, "commitment"), kept, _OWNER_ONLY)

    async def relay(
        self, digest: TaskDigest, prefix: int | None
    ) -> tuple[BatchCommitment | InclusionProof, int]:
        """
        Return the proof for one bucket, or only the commitment if no prefix is given.

        Returns:
            The proof or commitment, and the number of leaves in the fullest bucket, to which every
            answer is padded.

        Raises:
            ProofError: The batch has not been delivered, its proof expired, or the task samples.
            StorageError: The stored proof is damaged or cannot be read.
            WireError: There is no such bucket.
        """
        commitment, tree = await self._tree(digest)
        if prefix is None:
            return commitment, tree.largest_bucket
        if prefix >> tree.bits:
            raise WireError(f"the prefix is {prefix}; there are {1 << tree.bits} buckets")
        return InclusionProof.of(tree, commitment, prefix), tree.largest_bucket

    async def _tree(self, digest: TaskDigest) -> tuple[BatchCommitment, Tree]:
        loaded = self._trees.get(digest)
        if loaded is None:
            async with self._loading:
                loaded = self._trees.get(digest)  # another call may have loaded it
                if loaded is None:
                    loaded = self._trees[digest] = await asyncio.to_thread(self._load, digest)
        self._trees.move_to_end(digest)
        buckets = sum(1 << tree.bits for _, tree in self._trees.values())
        while len(self._trees) > 1 and buckets > _MAX_BUCKETS_HELD:
            _, (_, dropped) = self._trees.popitem(last=False)
            buckets -= 1 << dropped.bits
        return loaded

    def _load(self, digest: TaskDigest) -> tuple[BatchCommitment, Tree]:
        try:
            with storage_failures():
                return self._read(digest)
        except (ValueError, WireError) as error:  # an empty or truncated file
            raise DamagedStorageError("the task's stored proof is damaged") from error

    def _read(self, digest: TaskDigest) -> tuple[BatchCommitment, Tree]:
        try:
            kept = self._file(digest, "commitment").read_bytes()
            commitment = commitment_from_bytes(kept[_TIME_BYTES:])
            leaves = np.memmap(self._file(digest, "leaves"), dtype=np.uint8, mode="r")
        except FileNotFoundError as error:
            raise ProofError(
                "there is no proof for this task: its batch has not been delivered, its proof has "
                "expired, or the task samples"
            ) from error
        if commitment is None:
            raise ProofError("there is no proof for this task: it was delivered without a salt")
        return commitment, Tree(np.asarray(leaves).reshape(-1, HASH_BYTES))

    async def run(self) -> None:
        """Delete expired proofs for as long as the service runs."""
        while True:
            try:
                self.delete_expired()
            except StorageError as error:  # retried at the next sweep
                logs.event(
                    "expired proofs not deleted yet", {"error": type(error).__name__}, level="ERROR"
                )
            await asyncio.sleep(_SWEEP_SECONDS)

    @storage_failures()
    def delete_expired(self) -> None:
        """
        Delete expired proofs; leave unknown files.

        The commitment is deleted last, so that after a crash the next sweep completes the deletion.
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
