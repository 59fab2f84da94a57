"""
Inclusion proofs: the next party's commitment to a batch, and the leaves of the delivered reports.

With a relay, it is the relay's commitment, and the leaves are of layers: asked about the report
inside, the analyzer would learn whose it is.

Sorted hashes link no report to a user, so they may outlive the batch's key; they are deleted
`keep_seconds` after the delivery or deadline. A task that samples reports has no proofs: its
guarantee assumes that nobody learns which reports were kept.

A batch's proofs are blocks of one folder: the sorted leaves of each range, the hashes of the
buckets with their numbers of leaves, and last the commitment, which marks them complete.
"""

import asyncio
import re
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import DamagedStorageError, ProofError, WireError
from shuffledp.common.messages import inclusion_proof
from shuffledp.common.messages.batch import BatchManifest
from shuffledp.common.messages.inclusion_proof import HASH_BYTES, BatchCommitment, InclusionProof
from shuffledp.common.receiving.received_job import TreeJob, rows_from
from shuffledp.common.runtime import logs
from shuffledp.common.runtime.blocks import Blocks
from shuffledp.common.runtime.clock import Clock, repeat
from shuffledp.common.runtime.parts.executor import Executor
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire.batches import commitment_from_bytes, commitment_to_wire
from shuffledp.shuffler.delivery_client import ReceivingParty
from shuffledp.shuffler.shuffle_job import PERMUTED

_FOLDERS: Final = re.compile("proof-([0-9a-f]{64})")
_BUCKETS: Final = np.dtype([("hash", f"V{HASH_BYTES}"), ("n_leaves", "<u4")])
"""A bucket's hash and its number of leaves, as they are stored."""
_TIME_BYTES: Final = 8
_RANGES_BYTES: Final = 4
_MAX_BUCKETS_HELD: Final = 1 << 19
"""Maximum number of buckets of all trees in memory, about 150 bytes each; enough for 16 batches of
ten million reports. A single tree may exceed it. The leaves stay in their blocks."""
_SWEEP_SECONDS: Final = 3600.0
LEAVES: Final = "leaves"
"""Subfolder of the batch's salted leaves, by part and range."""


def proof_folder(digest: TaskDigest) -> str:
    """Return the folder of a task's proofs."""
    return f"proof-{digest.hex()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofJob(TreeJob):
    """The job of a delivered batch's proofs, whose methods are run by worker processes."""

    proof_folder: str
    """Folder of the leaves, which are not sealed, since they outlive the batch's key."""

    def split(self, part: int) -> None:
        """Salt the leaves of one part's reports, and split them into ranges. Cost: 2 µs each."""
        sealed = self.sealed_blocks().get(f"{PERMUTED}/{part}")
        self.split_rows(self.leaves(sealed), LEAVES, part)

    def merge(self, number: int) -> int:
        """Store one range's distinct leaves in ascending order; return how many there are."""
        leaves = inclusion_proof.distinct_rows(self.rows_of(LEAVES, number, HASH_BYTES))
        name = f"{self.proof_folder}/leaves.{number}"
        self.blocks.put(name, leaves.tobytes(), durable=True)
        return len(leaves)

    def hash_buckets(self, subtree: int) -> tuple[bytes, list[int]]:
        """Return the hashes of one subtree's buckets, concatenated, and their numbers of leaves."""
        folder, numbers = self.proof_folder, self.ranges_of(subtree)
        leaves = [self.blocks.get(f"{folder}/leaves.{number}") for number in numbers]
        hashes, sizes = self.hashes_of(rows_from(leaves, HASH_BYTES))
        return hashes, sizes.tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """A batch's proofs, but for the leaves."""

    commitment: BatchCommitment
    tree: inclusion_proof.Tree
    n_ranges: int
    edges: NDArray[np.int64]
    """Number of leaves before each bucket, and in all."""
    largest_bucket: int
    """Number of leaves in the fullest bucket."""


@dataclass(kw_only=True)
class InclusionProofs:
    """Stores and serves inclusion proofs."""

    blocks: Blocks
    keep_seconds: float | None
    """Seconds after the delivery or deadline, whichever is later, at which proofs are deleted; None
    at a relay, which no device asks, to only compare commitments with what was sent."""
    clock: Clock

    def __post_init__(self) -> None:
        self._held: OrderedDict[TaskDigest, _Stored] = OrderedDict()
        self._loading = asyncio.Lock()

    async def keep(
        self,
        manifest: BatchManifest,
        task: Task,
        commitment: BatchCommitment,
        job: ProofJob,
        *,
        executor: Executor,
        receiver: ReceivingParty,
    ) -> None:
        """
        Store the receiver's commitment and the leaves, before the batch's key is destroyed.

        A commitment to other reports is evidence against the receiver, so it is stored too; the
        batch counts as delivered. If its signature is invalid, nothing is stored. For a task that
        samples, and at a relay, the commitment and leaves are only compared.
        """
        try:
            commitment.verify(receiver.identity, manifest.task_digest, manifest.n_reports)
        except ProofError:
            _report(f"{receiver.name}'s commitment does not verify", manifest)
            return
        await executor.run(ProofJob.split, job, range(job.n_parts))
        n_leaves = sum(await executor.run(ProofJob.merge, job, range(job.n_ranges)))
        job = replace(job, bits=inclusion_proof.bits_for(n_leaves))
        subtrees = await executor.run(ProofJob.hash_buckets, job, range(job.n_subtrees))
        hashes = b"".join(hashed for hashed, _ in subtrees)
        sizes = [size for _, of_subtree in subtrees for size in of_subtree]
        if task.shuffler.keep_probability == 1 and self.keep_seconds is not None:
            until = int(max(task.deadline, self.clock.now()) + self.keep_seconds)
            header = until.to_bytes(_TIME_BYTES) + job.n_ranges.to_bytes(_RANGES_BYTES)
            buckets = np.empty(len(sizes), dtype=_BUCKETS)
            buckets["hash"] = np.frombuffer(hashes, dtype=_BUCKETS["hash"])
            buckets["n_leaves"] = sizes
            put = partial(self.blocks.put, durable=True)
            await asyncio.to_thread(put, f"{job.proof_folder}/buckets", buckets.tobytes())
            kept = header + commitment_to_wire(commitment).SerializeToString()
            await asyncio.to_thread(put, f"{job.proof_folder}/commitment", kept)
        else:
            await asyncio.to_thread(self.blocks.delete, job.proof_folder)
        root = inclusion_proof.Tree(n_leaves, hashes).root
        if (manifest.batch_id, root) != (commitment.batch_id, commitment.root):
            _report(f"{receiver.name} signed other reports than were sent", manifest)

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
        stored = await self._stored(digest)
        if prefix is None:
            return stored.commitment, stored.largest_bucket
        if prefix >> stored.tree.bits:
            raise WireError(f"the prefix is {prefix}; there are {1 << stored.tree.bits} buckets")
        bucket = await asyncio.to_thread(self._bucket, digest, stored, prefix)
        path = stored.tree.path(prefix)
        if inclusion_proof.root_of(bucket, prefix, path) != stored.tree.root:
            raise DamagedStorageError("the task's stored proof is damaged")
        proof = InclusionProof(commitment=stored.commitment, bucket=bucket, path=path)
        return proof, stored.largest_bucket

    def _bucket(self, digest: TaskDigest, stored: _Stored, prefix: int) -> bytes:
        """Read a bucket: a piece of one range's leaves or, in a shallow tree, several ranges."""
        folder, n_buckets = proof_folder(digest), 1 << stored.tree.bits
        if n_buckets < stored.n_ranges:
            joined = stored.n_ranges // n_buckets
            numbers = range(prefix * joined, (prefix + 1) * joined)
            return b"".join(self.blocks.get(f"{folder}/leaves.{number}") for number in numbers)
        number, within = divmod(prefix, n_buckets // stored.n_ranges)
        first, start, end = stored.edges[[prefix - within, prefix, prefix + 1]].tolist()
        name = f"{folder}/leaves.{number}"
        return self.blocks.get(name, (start - first) * HASH_BYTES, (end - start) * HASH_BYTES)

    async def _stored(self, digest: TaskDigest) -> _Stored:
        held = self._held.get(digest)
        if held is None:
            async with self._loading:
                held = self._held.get(digest)  # another call may have loaded it
                if held is None:
                    held = self._held[digest] = await asyncio.to_thread(self._load, digest)
        self._held.move_to_end(digest)
        buckets = sum(1 << stored.tree.bits for stored in self._held.values())
        while len(self._held) > 1 and buckets > _MAX_BUCKETS_HELD:
            _, dropped = self._held.popitem(last=False)
            buckets -= 1 << dropped.tree.bits
        return held

    def _load(self, digest: TaskDigest) -> _Stored:
        folder = proof_folder(digest)
        try:
            kept = self.blocks.get(f"{folder}/commitment")
        except DamagedStorageError as error:
            raise ProofError(
                "there is no proof for this task: its batch has not been delivered, its proof has "
                "expired, or the task samples"
            ) from error
        try:
            buckets = np.frombuffer(self.blocks.get(f"{folder}/buckets"), dtype=_BUCKETS)
            header = _TIME_BYTES + _RANGES_BYTES
            commitment = commitment_from_bytes(kept[header:])
        except (ValueError, WireError) as error:  # an empty or truncated block
            raise DamagedStorageError("the task's stored proof is damaged") from error
        n_ranges = int.from_bytes(kept[_TIME_BYTES:header])
        n_leaves = int(buckets["n_leaves"].sum(dtype=np.int64))
        whole = len(buckets) == 1 << inclusion_proof.bits_for(n_leaves)
        if not whole or n_ranges.bit_count() != 1:
            raise DamagedStorageError("the task's stored proof is damaged")
        edges = np.concatenate([[0], np.cumsum(buckets["n_leaves"], dtype=np.int64)])
        return _Stored(
            commitment=commitment,
            tree=inclusion_proof.Tree(n_leaves, buckets["hash"].tobytes()),
            n_ranges=n_ranges,
            edges=edges,
            largest_bucket=int(buckets["n_leaves"].max()),
        )

    async def run(self) -> None:
        """Delete expired proofs for as long as the service runs."""
        sweep = partial(asyncio.to_thread, self.delete_expired)
        await repeat(sweep, _SWEEP_SECONDS, "expired proofs not deleted yet")

    def delete_expired(self, *, incomplete: bool = False) -> None:
        """Delete expired proofs and, at start, those that a crash left `incomplete`."""
        for folder in self.blocks.folders():
            named = _FOLDERS.fullmatch(folder)
            if named is None:
                continue
            try:
                kept = self.blocks.get(f"{folder}/commitment", length=_TIME_BYTES)
                expired = int.from_bytes(kept) < self.clock.now()
            except DamagedStorageError:  # it has no commitment yet
                expired = incomplete
            if expired:
                self._held.pop(TaskDigest(bytes.fromhex(named[1])), None)
                self.blocks.delete(folder)


def _report(event: str, manifest: BatchManifest) -> None:
    logs.event(event, logs.batch_fields(manifest.task_digest, manifest.batch_id), level="ERROR")
