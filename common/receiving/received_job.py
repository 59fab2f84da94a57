"""
The tree over a batch's reports, built in parts. The shuffler builds it for its inclusion proofs
from the job TreeJob, and the analyzer, which receives the batch, from ReceivedJob.

A part draws nothing at random: computed again, it writes the same blocks, so that parts which have
read its first output lose nothing. Splitting by the salted leaf brings all copies of a report
together, in the order of the tree that the receiver commits to.

Dropping repeated ciphertexts drops every repeat of a report, since no ciphertext can be changed
into another that opens: in each suite the keys are derived from the whole encapsulated key, and the
rest is authenticated [RFC9180, XWing]. Sealing draws a fresh key for each report, so honest
ciphertexts differ.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import DamagedStorageError, UnusableBatchError
from shuffledp.common.messages import inclusion_proof
from shuffledp.common.messages.batch import CONTENT_HASH_BYTES
from shuffledp.common.receiving.delivery_table import Delivery
from shuffledp.common.runtime.blocks import StagedBlocks
from shuffledp.common.runtime.parts.executor import Job
from shuffledp.common.task_digest import TaskDigest

ARRIVED: Final = "arrived"
"""Subfolder of the parts as they were delivered, the only blocks that are not computed."""
SPLIT: Final = "split"
"""Subfolder of parts split into ranges, which are not needed once they are merged."""
MERGED: Final = "merged"
"""Subfolder of the reports without repeats, by slice."""
_SLICE_REPORTS: Final = 2048
"""Average number of reports that are opened together in a batch of up to _FEW_SLICES slices."""
_FEW_SLICES: Final = 64
"""Enough slices for many workers; in a batch with more, a slice has four times as many reports, so
that an engine's delay of some 0.01 s for each slice does not show."""
_MAX_SLICES: Final = 16
"""Maximum number of slices of a range."""


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
        leaves = inclusion_proof.leaves_of(sealed, self.report_bytes)
        return inclusion_proof.salted_leaves(leaves, self.salt)

    def split_rows(self, rows: Rows, folder: str, part: int) -> int:
        """
        Split a part's rows, each of which begins with its leaf, into ranges; return the repeats.

        They are dropped here already: all copies of a report fall into one range, which would not
        fit into memory if somebody sent too many.
        """
        blocks, distinct = self.sealed_blocks(), inclusion_proof.distinct_rows(rows)
        for number, of_range in enumerate(inclusion_proof.split_ranges(distinct, self.n_ranges)):
            blocks.put(f"{folder}/{part}.{number}", of_range.tobytes())
        return len(rows) - len(distinct)

    def rows_of(self, folder: str, number: int, length: int) -> Rows:
        """Return a range's rows of this length, from all parts."""
        blocks = self.sealed_blocks()
        parts = [blocks.get(f"{folder}/{part}.{number}") for part in range(self.n_parts)]
        return rows_from(parts, length)

    def hashes_of(self, leaves: Rows) -> tuple[bytes, NDArray[np.int64]]:
        """Hash the buckets of a subtree; see `bucket_hashes`."""
        leaves, buckets = leaves[:, : inclusion_proof.HASH_BYTES], 1 << self.bits
        return inclusion_proof.bucket_hashes(leaves, buckets // self.n_subtrees, self.bits)


def rows_from(contents: list[bytes], length: int) -> Rows:
    """Join the contents of blocks, and divide them into rows."""
    return np.frombuffer(b"".join(contents), dtype=np.uint8).reshape(-1, length)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedJob(TreeJob):
    """The job of a batch that arrived, whose methods are run by worker processes."""

    task_digest: TaskDigest
    task_bytes: bytes = field(repr=False)
    n_reports: int
    content_hashes: bytes = field(repr=False)
    """SHA-256 of every part, concatenated."""
    slices_per_range: int
    """Slices of a range, which are opened one by one."""

    @classmethod
    def plan(
        cls,
        delivery: Delivery,
        *,
        task_bytes: bytes,
        report_bytes: int,
        salt: bytes,
        blocks: StagedBlocks,
    ) -> Self:
        """Divide a batch, all of whose parts have arrived, into ranges and slices."""
        manifest, arrived = delivery.manifest, delivery.arrived
        n_ranges = inclusion_proof.range_count(manifest.n_reports)
        n_slices = manifest.n_reports / _SLICE_REPORTS
        slices_per_range = int(max(min(n_slices, _FEW_SLICES), n_slices / 4) / n_ranges)
        return cls(
            batch_id=manifest.batch_id,
            task_digest=manifest.task_digest,
            task_bytes=task_bytes,
            report_bytes=report_bytes,
            key=blocks.key(manifest.batch_id).private_bytes(),
            salt=salt,
            blocks=blocks.blocks,
            n_reports=manifest.n_reports,
            n_parts=delivery.n_parts,
            content_hashes=b"".join(arrived[part].content_hash for part in sorted(arrived)),
            n_ranges=n_ranges,
            slices_per_range=min(_MAX_SLICES, max(1, slices_per_range)),
        )

    @property
    def n_slices(self) -> int:
        """Number of slices of all ranges."""
        return self.n_ranges * self.slices_per_range

    def split(self, part: int) -> int:
        """
        Split an arrived part's reports, each behind its salted leaf; return the repeats dropped.

        Cost: 2 µs per report.
        """
        sealed = self.arrived(part)
        rows = np.hstack([self.leaves(sealed), rows_from([sealed], self.report_bytes)])
        return self.split_rows(rows, SPLIT, part)

    def merge(self, number: int) -> tuple[int, int]:
        """Drop the repeats of one range; return its numbers of distinct and of repeated reports."""
        blocks, rows = self.sealed_blocks(), self.rows_of(SPLIT, number, self._row_bytes)
        distinct = inclusion_proof.distinct_rows(rows)
        for slice_number, of_slice in zip(
            self._slices_of(number), np.array_split(distinct, self.slices_per_range), strict=True
        ):
            blocks.put(f"{MERGED}/{slice_number}", of_slice.tobytes())
        return len(distinct), len(rows) - len(distinct)

    def hash_buckets(self, subtree: int) -> bytes:
        """Return the root of one subtree, over the hashes of its buckets."""
        numbers = self.ranges_of(subtree)
        rows = self.distinct(*(one for number in numbers for one in self._slices_of(number)))
        hashes, _ = self.hashes_of(rows)
        return inclusion_proof.Tree(len(rows), hashes).root

    def distinct(self, *slices: int) -> Rows:
        """Return the distinct reports of these slices, each behind its salted leaf."""
        blocks = self.sealed_blocks()
        contents = [blocks.get(f"{MERGED}/{slice_number}") for slice_number in slices]
        return rows_from(contents, self._row_bytes)

    def check_arrived(self) -> None:
        """Raise UnusableBatchError if an arrived part is missing or damaged here."""
        for part in range(self.n_parts):
            self.arrived(part)

    def arrived(self, part: int) -> bytes:
        """Return a part's reports; raise UnusableBatchError if it is missing or damaged here."""
        damage = f"part {part} of the batch's {self.n_parts} staged parts is damaged on the disk"
        try:
            content = self.sealed_blocks().get(f"{ARRIVED}/{part}")
        except DamagedStorageError as error:  # there is no copy to compute it from
            raise UnusableBatchError(damage) from error
        # An earlier block of this number, under the same key, opens as well.
        if (
            hashlib.sha256(content).digest()
            != self.content_hashes[CONTENT_HASH_BYTES * part : CONTENT_HASH_BYTES * (part + 1)]
        ):
            raise UnusableBatchError(damage)
        return content

    @property
    def _row_bytes(self) -> int:
        return inclusion_proof.HASH_BYTES + self.report_bytes

    def _slices_of(self, number: int) -> range:
        """Return the numbers of a range's slices."""
        return range(number * self.slices_per_range, (number + 1) * self.slices_per_range)
