"""
The shuffle, of batches that fit into memory and of such as do not. Pure.

A large batch is permuted in two passes [Rao61, San62]: each report is thrown into one of some
buckets, uniformly and apart from all others; then each bucket is permuted by itself, and the
buckets are laid one after the other.

The order is uniform. Give each report its bucket, and an independent uniform number within it to be
sorted by: the pair is one sort key a report, the keys are independent and alike in law, and ties
have probability 0, so every order of the keys, and of the reports, is equally likely. It takes
nothing else: not that the buckets be equally likely, but that no report's bucket depend on its
place or on another's.
"""

import time
from collections.abc import Iterator
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

Reports = NDArray[np.uint8]
"""Sealed reports, shape (n, length)."""

BUFFER_BYTES: Final = 32 * 1024 * 1024
"""Reports held before they are thrown into buckets."""
BUCKET_BYTES: Final = 8 * 1024 * 1024
"""What a bucket holds on average, unless there would be more than MOST_BUCKETS."""
MOST_BUCKETS: Final = 512


class Buckets(Protocol):
    """Where buckets lie meanwhile."""

    def append(self, bucket: int, reports: bytes) -> None:
        """Add a record to a bucket."""

    def take(self, bucket: int) -> list[bytes]:
        """Read a bucket's records, and remove it."""


def permute(reports: Reports, rng: np.random.Generator) -> Reports:
    """
    Put sealed reports into an order drawn uniformly from all n! orders. Run by the shuffler.

    The order is numpy's Fisher-Yates shuffle, whose bounded integers are exact (by rejection),
    over the generator that is passed in: ChaCha20 in production, so that no order can be told from
    a uniform one by anybody who does not break the cipher.

    Args:
        reports: Sealed reports, shape (n, length).
        rng: Source of randomness.

    Returns:
        The same rows in another order, shape (n, length).

    Cost: one pass of random reads; about 1.4 times numpy's own generator.
    """
    order: Reports = reports[rng.permutation(len(reports))]
    return order


def bucket_count(batch_bytes: int) -> int:
    """Give how many buckets a batch of about so many bytes is thrown into."""
    return min(MOST_BUCKETS, max(1, -(-batch_bytes // BUCKET_BYTES)))


class ExternalShuffle:
    """
    Permutes more reports than memory holds: add all, then read the order once.

    Memory: some four times `buffer_bytes`, or four buckets, whichever is more. A batch that fits
    into the buffer never touches a bucket.
    """

    def __init__(
        self,
        *,
        report_bytes: int,
        buckets: Buckets,
        n_buckets: int,
        rng: np.random.Generator,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self._report_bytes = report_bytes
        self._buckets = buckets
        self._n_buckets = n_buckets
        self._rng = rng
        self._room = buffer_bytes
        self._held: list[Reports] = []
        self._held_bytes = 0
        self._thrown = False
        self.n_reports = 0
        self.seconds = 0.0
        """What drawing and moving took so far, without the buckets' own reading and writing."""

    def add(self, reports: Reports) -> None:
        """Take some reports in; shape (n, report_bytes)."""
        self._held.append(reports)
        self._held_bytes += reports.nbytes
        self.n_reports += len(reports)
        if self._held_bytes > self._room:
            self._throw()

    def permuted(self, together: int) -> Iterator[Reports]:
        """
        Give the whole batch in its order, `together` reports at a time; only the last are fewer.

        Their number tells nothing of the buckets.
        """
        rest = np.empty((0, self._report_bytes), dtype=np.uint8)
        for bucket in self._each_bucket():
            started = time.perf_counter()
            ordered = permute(bucket, self._rng)
            self.seconds += time.perf_counter() - started
            ordered = np.concatenate([rest, ordered])
            whole = len(ordered) // together * together
            for start in range(0, whole, together):
                yield ordered[start : start + together]
            rest = ordered[whole:].copy()
        if len(rest):
            yield rest

    def _each_bucket(self) -> Iterator[Reports]:
        if not self._thrown:
            held, self._held = self._held, []
            yield self._joined(held)
            return
        self._throw()
        for bucket in range(self._n_buckets):
            records = self._buckets.take(bucket)
            yield np.frombuffer(b"".join(records), dtype=np.uint8).reshape(-1, self._report_bytes)

    def _throw(self) -> None:
        """Throw what is held into buckets, each report apart."""
        reports = self._joined(self._held)
        self._held, self._held_bytes, self._thrown = [], 0, True
        started = time.perf_counter()
        chosen = self._rng.integers(0, self._n_buckets, size=len(reports), dtype=np.uint16)
        reports = reports[np.argsort(chosen, kind="stable")]
        ends = np.cumsum(np.bincount(chosen, minlength=self._n_buckets))
        self.seconds += time.perf_counter() - started
        start = 0
        for bucket, end in enumerate(ends.tolist()):
            if end > start:
                self._buckets.append(bucket, reports[start:end].tobytes())
            start = end

    def _joined(self, held: list[Reports]) -> Reports:
        return np.concatenate([np.empty((0, self._report_bytes), dtype=np.uint8), *held])
