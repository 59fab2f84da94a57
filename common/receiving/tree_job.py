"""Build the tree over a batch's reports in parts, where it was sent and where it arrives."""

from dataclasses import dataclass, field

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
from common.runtime.parts.executor import Job

Rows = NDArray[np.uint8]
"""Byte strings of one length, shape (n, length)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeJob(Job):
    """What the tree is computed from. Its reports are in parts, its salted leaves in ranges."""

    report_bytes: int
    """Length of a sealed report."""
    salt: bytes = field(repr=False)
    n_parts: int
    """Parts of the delivery."""
    n_ranges: int
    """Ranges of the salted leaf."""
    bits: int = 0
    """Depth of the tree; set once all ranges are merged."""

    @property
    def n_subtrees(self) -> int:
        """Number of subtrees: ranges, joined if a bucket has several because of many repeats."""
        return min(self.n_ranges, 1 << self.bits)

    def ranges_of(self, subtree: int) -> range:
        """Return the numbers of a subtree's ranges."""
        joined = self.n_ranges // self.n_subtrees
        return range(subtree * joined, (subtree + 1) * joined)

    def leaves(self, sealed: bytes) -> Rows:
        """Return the salted leaves of sealed reports. Cost: 2 µs per report."""
        return salted_leaves(leaves_of(sealed, self.report_bytes), self.salt)

    def split_rows(self, rows: Rows, folder: str, part: int) -> int:
        """
        Split a part's rows, each of which begins with its leaf, into ranges; return the repeats.

        They are dropped here already: all copies of a report fall into one range, which would not
        fit into memory if somebody sent too many.
        """
        blocks, distinct = self.sealed_blocks(), distinct_rows(rows)
        for number, of_range in enumerate(split_ranges(distinct, self.n_ranges)):
            blocks.put(f"{folder}/{part}.{number}", of_range.tobytes())
        return len(rows) - len(distinct)

    def rows_of(self, folder: str, number: int, length: int) -> Rows:
        """Return a range's rows of this length, from all parts."""
        blocks = self.sealed_blocks()
        parts = [blocks.get(f"{folder}/{part}.{number}") for part in range(self.n_parts)]
        return rows_from(parts, length)

    def hashes_of(self, leaves: Rows) -> tuple[bytes, NDArray[np.int64]]:
        """Hash the buckets of a subtree; see `bucket_hashes`."""
        return bucket_hashes(leaves[:, :HASH_BYTES], (1 << self.bits) // self.n_subtrees, self.bits)


def rows_from(contents: list[bytes], length: int) -> Rows:
    """Join the contents of blocks, and divide them into rows."""
    return np.frombuffer(b"".join(contents), dtype=np.uint8).reshape(-1, length)
