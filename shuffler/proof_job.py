"""The parts of one batch's inclusion proofs: the tree over all reports that were delivered."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.messages.inclusion_proof import (
    HASH_BYTES,
    bucket_hashes,
    distinct_rows,
    leaves_of,
    salted_leaves,
    split_ranges,
)
from common.runtime.executor import Job
from shuffler.shuffle_job import PERMUTED

LEAVES: Final = "leaves"
"""Subfolder of the batch's salted leaves, by part and range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofJob(Job):
    """The job of a delivered batch's proofs, whose methods are run by worker processes."""

    proof_folder: str
    """Folder of the leaves, which are not sealed, since they outlive the batch's key."""
    report_bytes: int
    salt: bytes
    n_parts: int
    n_ranges: int
    bits: int = 0
    """Depth of the tree; set once all ranges are merged."""

    def split(self, part: int) -> None:
        """Salt the leaves of one part's reports, and split them into ranges. Cost: 2 µs each."""
        blocks = self.sealed_blocks()
        leaves = leaves_of(blocks.get(f"{PERMUTED}/{part}"), self.report_bytes)
        # All copies of a leaf fall into one range, which must fit into memory.
        distinct = distinct_rows(salted_leaves(leaves, self.salt))
        ranges = split_ranges(distinct, self.n_ranges)
        for number, rows in enumerate(ranges):
            blocks.put(f"{LEAVES}/{part}.{number}", rows.tobytes())

    def merge(self, number: int) -> int:
        """Store one range's distinct leaves in ascending order; return how many there are."""
        blocks = self.sealed_blocks()
        parts = [blocks.get(f"{LEAVES}/{part}.{number}") for part in range(self.n_parts)]
        leaves = distinct_rows(_rows(b"".join(parts)))
        name = f"{self.proof_folder}/leaves.{number}"
        self.blocks.put(name, leaves.tobytes(), durable=True)
        return len(leaves)

    @property
    def n_subtrees(self) -> int:
        """Number of parts of the last stage: ranges, joined if a bucket has several."""
        return min(self.n_ranges, 1 << self.bits)

    def hash_buckets(self, subtree: int) -> tuple[bytes, list[int]]:
        """Return the hashes of one subtree's buckets, concatenated, and their numbers of leaves."""
        joined = self.n_ranges // self.n_subtrees
        blocks = self.blocks
        leaves = b"".join(
            blocks.get(f"{self.proof_folder}/leaves.{number}")
            for number in range(subtree * joined, (subtree + 1) * joined)
        )
        hashes, sizes = bucket_hashes(_rows(leaves), (1 << self.bits) // self.n_subtrees, self.bits)
        return hashes, sizes.tolist()


def _rows(leaves: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(leaves, dtype=np.uint8).reshape(-1, HASH_BYTES)
