"""
Shuffle a closed batch in bounded memory: drop reports, add dummies, permute, save.

All three are drawn once and saved together. A crash before the save leaves no trace of them.
"""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from common.crypto.hpke import HpkePublicKey, report_context
from common.crypto.hpke_pool import HpkePool, in_order
from common.errors import DamagedStorageError
from common.messages.submission import plain_reports
from common.task.task import Task
from common.task_digest import TaskDigest
from common.wire.batches import MAX_CHUNK_BYTES
from shuffler.dummies import draw_item_dummies, draw_kept
from shuffler.permutation import BUFFER_BYTES, ExternalPermutation, Reports, bucket_count
from shuffler.storage.batch_files import BatchFiles

T = TypeVar("T")

_CHUNK_REPORTS: Final = 1000
"""Sealed reports in a chunk, unless they are long; dummies sealed by one call."""
_AHEAD: Final = 4
"""Chunks queued for each worker that seals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleSummary:
    """Public facts about a shuffled batch."""

    n_reports: int
    """With the shuffler's dummies."""
    seconds: float
    """
    Time of the permutation alone. The time of making dummies is left out: where reports are dropped
    as well, it would reveal how many were kept, which the guarantee assumes hidden. Where none are
    dropped, the number of reports reveals that of dummies, and no guarantee relies on it.
    """


class BatchShuffler:
    """Shuffles one closed batch, in a thread of its own; `abandon` stops it from another."""

    def __init__(
        self,
        *,
        task: Task,
        digest: TaskDigest,
        n_users: int,
        files: BatchFiles,
        pool: HpkePool,
        rng: np.random.Generator,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self._task = task
        self._digest = digest
        self._n_users = n_users
        self._files = files
        self._pool = pool
        self._rng = rng
        self._buffer_bytes = buffer_bytes
        self._abandoned = threading.Event()

    def abandon(self) -> None:
        """Stop the shuffle soon, without a result."""
        self._abandoned.set()

    def shuffle(self, groups: Iterable[bytes]) -> ShuffleSummary:
        """
        Drop reports, add dummies, permute, and save the result.

        Args:
            groups: Sealed reports, each group those of whole submissions.

        Raises:
            DamagedStorageError: The number of reports is not that of the batch's users.
            StorageError: The disk is full, read-only or fails.

        Cost: a report is sealed and opened twice under the batch's key, moved three times, and
        written and read twice; some 0.5 microseconds. Memory as for ExternalPermutation, and the
        dummy counts of each item.
        """
        task, size = self._task, self._task.sealed_report_bytes
        self._files.begin()
        counts = draw_item_dummies(task.shuffler, task.domain_size, self._rng)
        expected = self._n_users * task.reports_per_user + int(counts.sum())
        permutation = ExternalPermutation(
            report_bytes=size,
            buckets=self._files,
            n_buckets=bucket_count(expected * size),
            rng=self._rng,
            buffer_bytes=self._buffer_bytes,
        )
        for reports in self._kept(groups):
            permutation.add(reports)
        for reports in self._dummies(np.cumsum(counts)):
            permutation.add(reports)
        together = min(_CHUNK_REPORTS, MAX_CHUNK_BYTES // size)
        self._files.save(
            chunk.tobytes() for chunk in self._until_abandoned(permutation.permuted(together))
        )
        return ShuffleSummary(n_reports=permutation.n_reports, seconds=permutation.seconds)

    def _kept(self, groups: Iterable[bytes]) -> Iterator[Reports]:
        """Yield the reports that are kept; raise at the end if any was lost on the disk."""
        arrived, size = 0, self._task.sealed_report_bytes
        for group in self._until_abandoned(groups):
            reports = np.frombuffer(group, dtype=np.uint8).reshape(-1, size)
            arrived += len(reports)
            if self._task.shuffler.idle:
                yield reports
            else:
                yield reports[draw_kept(self._task.shuffler, len(reports), self._rng)]
        expected = self._n_users * self._task.reports_per_user
        if arrived != expected:
            raise DamagedStorageError(
                f"the batch's users sent {expected} reports; {arrived} are on the disk"
            )

    def _dummies(self, ends: NDArray[np.int64]) -> Iterator[Reports]:
        """Yield the dummies, item by item, sealed by all workers."""
        task, context = self._task, report_context(self._digest)
        key = HpkePublicKey(task.suite, task.analyzer_key)
        sealing = (
            self._pool.seal(
                key,
                plain_reports(
                    np.searchsorted(
                        ends, np.arange(start, min(start + _CHUNK_REPORTS, ends[-1])), side="right"
                    )
                ).tobytes(),
                task.mechanism.report_bytes,
                context,
            )
            for start in range(0, int(ends[-1]), _CHUNK_REPORTS)
        )
        ahead = _AHEAD * self._pool.processes
        for sealed in self._until_abandoned(in_order(sealing, ahead=ahead)):
            yield np.frombuffer(sealed, dtype=np.uint8).reshape(-1, task.sealed_report_bytes)

    def _until_abandoned(self, parts: Iterable[T]) -> Iterator[T]:
        for part in parts:
            if self._abandoned.is_set():
                raise RuntimeError("the service stops")
            yield part
