"""
Permute a batch uniformly, in memory or, if it is too large, through buckets on disk. Pure.

A large batch is permuted in two passes [Rao61, San62]: each report is assigned to a bucket,
uniformly and independently of all others; then each bucket is permuted, and the buckets are
concatenated.

The permutation is uniform. Assign to each report the pair of its bucket and an independent uniform
number to sort by within the bucket: these sort keys are independent and identically distributed,
and ties have probability 0, so every order of the keys, and of the reports, is equally likely. The
proof does not need buckets to be equally likely, only that no report's bucket depends on its
position or on another report.
"""

import time
from collections.abc import Iterator
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

SealedReports = NDArray[np.uint8]
"""Sealed reports, shape (n, length)."""

BUFFER_BYTES: Final = 32 * 1024 * 1024
"""Bytes of reports held before they are assigned to buckets."""
BUCKET_BYTES: Final = 8 * 1024 * 1024
"""Average size of a bucket, unless there would be more than MAX_BUCKETS."""
MAX_BUCKETS: Final = 512


class Buckets(Protocol):
    """Storage of buckets."""

    def append(self, bucket: int, reports: bytes) -> None:
        """Append a record to a bucket."""

    def take(self, bucket: int) -> list[bytes]:
        """Return a bucket's records, and remove the bucket."""


def permute(reports: SealedReports, rng: np.random.Generator) -> SealedReports:
    """
    Permute sealed reports uniformly at random. Run by the shuffler.

    This is numpy's Fisher-Yates shuffle, which draws exact bounded integers by rejection. The
    generator is ChaCha20 in production: distinguishing its permutations from uniform ones would
    mean breaking the cipher.

    Reports and result have shape (n, length).

    Cost: one pass of random reads; 1.4 times as long as with numpy's default generator.
    """
    order: SealedReports = reports[rng.permutation(len(reports))]
    return order


def bucket_count(batch_bytes: int) -> int:
    """Return the number of buckets for a batch of about `batch_bytes` bytes."""
    return min(MAX_BUCKETS, max(1, -(-batch_bytes // BUCKET_BYTES)))


class ExternalPermutation:
    """
    Permutes more reports than fit into memory: add all reports, then read `permuted` once.

    Memory: about four times `buffer_bytes`, or four buckets, whichever is more. A batch that fits
    into the buffer uses no buckets.
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
        self._buffer_bytes = buffer_bytes
        self._held: list[SealedReports] = []
        self._held_bytes = 0
        self._scattered = False
        self.n_reports = 0
        self.seconds = 0.0
        """Seconds spent so far on drawing and moving reports, not on reading or writing buckets."""

    def add(self, reports: SealedReports) -> None:
        """Add reports, shape (n, report_bytes)."""
        self._held.append(reports)
        self._held_bytes += reports.nbytes
        self.n_reports += len(reports)
        if self._held_bytes > self._buffer_bytes:
            self._scatter()

    def permuted(self, together: int) -> Iterator[SealedReports]:
        """
        Yield the permuted batch, `together` reports at a time; the last chunk may have fewer.

        The sizes of chunks reveal nothing about the buckets.
        """
        rest = np.empty((0, self._report_bytes), dtype=np.uint8)
        for bucket in self._iter_buckets():
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

    def _iter_buckets(self) -> Iterator[SealedReports]:
        if not self._scattered:
            held, self._held = self._held, []
            yield self._joined(held)
            return
        self._scatter()
        for bucket in range(self._n_buckets):
            records = self._buckets.take(bucket)
            yield np.frombuffer(b"".join(records), dtype=np.uint8).reshape(-1, self._report_bytes)

    def _scatter(self) -> None:
        """Assign each report in the buffer to a bucket, independently."""
        reports = self._joined(self._held)
        self._held, self._held_bytes, self._scattered = [], 0, True
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

    def _joined(self, held: list[SealedReports]) -> SealedReports:
        return np.concatenate([np.empty((0, self._report_bytes), dtype=np.uint8), *held])
