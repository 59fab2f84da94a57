"""
The parts of one batch at the analyzer: split, drop repeats, hash buckets; match, open and count.

A part draws nothing at random: computed again, it writes the same blocks, so that parts which have
read its first output lose nothing. Splitting by the salted leaf brings all copies of a report
together, in the order of the tree that the analyzer commits to.

Dropping repeated ciphertexts drops every repeat of a report, since no ciphertext can be changed
into another that opens: in each suite the keys are derived from the whole encapsulated key, and the
rest is authenticated [RFC9180, XWing]. Sealing draws a fresh key for each report, so honest
ciphertexts differ.
"""

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from analyzer.batch_counts import PartCounts, count_reports
from analyzer.sentinels import PartMatches, match_part
from common.crypto.batch_key import BatchKey
from common.crypto.hpke import HpkePrivateKey, report_context
from common.crypto.hpke_pool import open_each
from common.errors import DamagedStorageError, UnusableBatchError
from common.mechanisms.base import Randomizer, Tally
from common.messages.batch import CONTENT_HASH_BYTES, BatchManifest
from common.messages.inclusion_proof import (
    HASH_BYTES,
    Tree,
    bucket_hashes,
    distinct_rows,
    leaves_of,
    range_count,
    salted,
    salted_leaves,
    split,
    split_ranges,
)
from common.runtime.blocks import Blocks
from common.runtime.executor import Job
from common.task.task import Task, cached_task
from common.task_digest import TaskDigest

ARRIVED: Final = "arrived"
"""Subfolder of the parts as they were delivered, the only blocks that are not computed."""
SPLIT: Final = "split"
"""Subfolder of parts split into ranges, which are not needed once they are merged."""
_MERGED: Final = "merged"
_COUNTS: Final = "counts"
_SLICE_REPORTS: Final = 2048
"""Average number of reports that are opened together in a batch of up to _FEW_SLICES slices."""
_FEW_SLICES: Final = 64
"""Enough slices for many workers; in a batch with more, a slice has four times as many reports, so
that an engine's delay of some 0.01 s for each slice does not show."""
_MAX_SLICES: Final = 16
"""Maximum number of slices of a range."""
_TASKS_HELD: Final = 8

Rows = NDArray[np.uint8]
"""Byte strings of one length, shape (n, length)."""


@lru_cache(maxsize=_TASKS_HELD)
def _mechanism_of(task_bytes: bytes) -> Randomizer:
    from common.mechanisms.registry import randomizer_of  # noqa: PLC0415  # only to count

    return randomizer_of(cached_task(task_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class CountJob(Job):
    """The job of a batch, whose methods are run by worker processes."""

    task_digest: TaskDigest
    task_bytes: bytes = field(repr=False)
    salt: bytes = field(repr=False)
    n_reports: int
    n_parts: int
    """Parts of the delivery."""
    content_hashes: bytes = field(repr=False)
    """SHA-256 of every part, concatenated."""
    n_ranges: int
    """Ranges of the salted leaf."""
    slices_per_range: int
    """Slices of a range, which are opened one by one."""
    bits: int = 0
    """Depth of the tree; set once all ranges are merged."""
    private_key: bytes = field(default=b"", repr=False)
    """Key that the reports are sealed to; set for the release."""
    sentinel_leaves: bytes = field(default=b"", repr=False)
    """Leaves of all sentinels, concatenated; set for the release."""

    @classmethod
    def plan(
        cls,
        manifest: BatchManifest,
        *,
        n_parts: int,
        task_bytes: bytes,
        key: BatchKey,
        salt: bytes,
        blocks: Blocks,
        content_hashes: bytes,
    ) -> Self:
        """Divide a batch that has arrived in `n_parts` parts into ranges and slices."""
        n_ranges = range_count(manifest.n_reports)
        n_slices = manifest.n_reports / _SLICE_REPORTS
        slices_per_range = int(max(min(n_slices, _FEW_SLICES), n_slices / 4) / n_ranges)
        return cls(
            batch_id=manifest.batch_id,
            task_digest=manifest.task_digest,
            task_bytes=task_bytes,
            key=key.private_bytes(),
            salt=salt,
            blocks=blocks,
            n_reports=manifest.n_reports,
            n_parts=n_parts,
            content_hashes=content_hashes,
            n_ranges=n_ranges,
            slices_per_range=min(_MAX_SLICES, max(1, slices_per_range)),
        )

    @property
    def task(self) -> Task:
        """The task, parsed once per process."""
        return cached_task(self.task_bytes)

    @property
    def n_subtrees(self) -> int:
        """Number of subtrees: ranges, joined if a bucket has several because of many repeats."""
        return min(self.n_ranges, 1 << self.bits)

    @property
    def n_slices(self) -> int:
        """Number of slices of all ranges."""
        return self.n_ranges * self.slices_per_range

    def split(self, part: int) -> int:
        """
        Split an arrived part's reports, each behind its salted leaf; return the repeats dropped.

        They are dropped here already: all copies of a report fall into one range, which would not
        fit into memory if somebody sent too many.

        Cost: 2 µs per report.
        """
        size, sealed, blocks = (
            self.task.sealed_report_bytes,
            self._arrived(part),
            self.sealed_blocks(),
        )
        leaves = salted_leaves(leaves_of(sealed, size), self.salt)
        rows = np.hstack([leaves, _rows(sealed, size)])
        distinct = distinct_rows(rows)
        for number, of_range in enumerate(split_ranges(distinct, self.n_ranges)):
            blocks.put(f"{SPLIT}/{part}.{number}", of_range.tobytes())
        return len(rows) - len(distinct)

    def merge(self, number: int) -> tuple[int, int]:
        """Drop the repeats of one range; return its numbers of distinct and of repeated reports."""
        blocks = self.sealed_blocks()
        parts = [blocks.get(f"{SPLIT}/{part}.{number}") for part in range(self.n_parts)]
        rows = self._leaves_and_reports(parts)
        distinct = distinct_rows(rows)
        for slice_number, of_slice in zip(
            self._slices_of(number), np.array_split(distinct, self.slices_per_range), strict=True
        ):
            blocks.put(f"{_MERGED}/{slice_number}", of_slice.tobytes())
        return len(distinct), len(rows) - len(distinct)

    def hash_buckets(self, subtree: int) -> bytes:
        """Return the root of one subtree, over the hashes of its buckets."""
        blocks, joined = self.sealed_blocks(), self.n_ranges // self.n_subtrees
        slices = [
            blocks.get(f"{_MERGED}/{slice_number}")
            for number in range(subtree * joined, (subtree + 1) * joined)
            for slice_number in self._slices_of(number)
        ]
        leaves = self._leaves_and_reports(slices)[:, :HASH_BYTES]
        hashes, _ = bucket_hashes(leaves, (1 << self.bits) // self.n_subtrees, self.bits)
        return Tree(len(leaves), hashes).root

    def match(self, part: int) -> PartMatches:
        """Find the sentinels' reports in an arrived part."""
        size = self.task.sealed_report_bytes
        return match_part(self._arrived(part), size, split(self.sentinel_leaves))

    def count(self, slice_number: int) -> PartCounts:
        """
        Open, check and count the reports of one slice, without sentinels' reports.

        The counts by cell go into a block, which holds only the cells that are not zero: a slice
        may have far fewer reports than there are cells. Reports of open dictionaries stay reports.

        Cost: one X25519 operation per report, and one of ML-KEM in the hybrid suite.
        """
        blocks, task = self.sealed_blocks(), self.task
        rows = self._leaves_and_reports([blocks.get(f"{_MERGED}/{slice_number}")])
        sealed = self._without_sentinels(rows)[:, HASH_BYTES:]
        opened = open_each(
            HpkePrivateKey(task.suite, self.private_key),
            sealed.tobytes(),
            task.sealed_report_bytes,
            report_context(self.task_digest),
        )
        mechanism = _mechanism_of(self.task_bytes)
        found, counts = count_reports(opened, mechanism)
        if counts.dtype != mechanism.report_dtype:
            [cells] = counts.reshape(-1).nonzero()
            counts = np.stack([cells, counts.reshape(-1)[cells]])
        blocks.put(f"{_COUNTS}/{slice_number}", counts.tobytes())
        return found

    def cells(self) -> Tally:
        """Add up the counts of all slices, or join their reports. Run by the coordinator."""
        mechanism, blocks = _mechanism_of(self.task_bytes), self.sealed_blocks()
        none = mechanism.tally(np.empty(0, dtype=mechanism.report_dtype))
        contents = (
            np.frombuffer(blocks.get(f"{_COUNTS}/{slice_number}"), dtype=none.dtype)
            for slice_number in range(self.n_slices)
        )
        if none.dtype == mechanism.report_dtype:
            return np.concatenate([none, *contents])
        total = np.zeros(none.size, dtype=np.int64)
        for content in contents:
            cells, counts = content.reshape(2, -1)
            total[cells] += counts
        return total.reshape(none.shape)

    def check_arrived(self) -> None:
        """Raise UnusableBatchError if an arrived part is missing or damaged here."""
        for part in range(self.n_parts):
            self._arrived(part)

    def _arrived(self, part: int) -> bytes:
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

    def _slices_of(self, number: int) -> range:
        """Return the numbers of a range's slices."""
        return range(number * self.slices_per_range, (number + 1) * self.slices_per_range)

    def _leaves_and_reports(self, contents: list[bytes]) -> Rows:
        return _rows(b"".join(contents), HASH_BYTES + self.task.sealed_report_bytes)

    def _without_sentinels(self, rows: Rows) -> Rows:
        if not self.sentinel_leaves:
            return rows
        gone = {salted(self.salt, leaf) for leaf in split(self.sentinel_leaves)}
        kept = [leaf.tobytes() not in gone for leaf in rows[:, :HASH_BYTES]]
        return rows[np.array(kept, dtype=np.bool_)]


def _rows(content: bytes, length: int) -> Rows:
    return np.frombuffer(content, dtype=np.uint8).reshape(-1, length)
