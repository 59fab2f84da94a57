"""
From the submissions of a closed batch to its permuted order on the disk, in bounded memory.

What a task lets the shuffler drop and add is drawn on the way: once, with the order, and saved with
it. A crash before it is saved leaves no trace of any of it.
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
from shuffler.permutation import BUFFER_BYTES, ExternalShuffle, Reports, bucket_count
from shuffler.storage.batch_files import BatchFiles

T = TypeVar("T")

_CHUNK_REPORTS: Final = 1000
"""Sealed reports stored and delivered together, unless they are long; dummies sealed together."""
_AHEAD: Final = 4
"""Chunks handed out ahead for each worker that seals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffleSummary:
    """What is told of a permuted batch."""

    n_reports: int
    """The shuffler's dummies included."""
    seconds: float
    """
    How long the permutation alone took. Not the time of making dummies: where reports are dropped
    too, it would tell how many were kept, which the guarantee takes to be hidden. Where none are,
    the number of all reports tells the dummies' to everybody, and no guarantee rests on it.
    """


class BatchShuffler:
    """Mixes one closed batch. In a thread of its own; `abandon` ends it from another."""

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
        """Let it end soon, without an order."""
        self._abandoned.set()

    def mix(self, groups: Iterable[bytes]) -> ShuffleSummary:
        """
        Draw what is dropped and added, and the order, and save them.

        Args:
            groups: Sealed reports of some submissions each, whole ones.

        Raises:
            DamagedStorageError: They are not those of the batch's users.
            StorageError: The disk is full, read-only or fails.

        Cost: a report is sealed and opened twice under the batch's key, moved three times, and
        written and read twice; some 0.5 microseconds. Memory as for ExternalShuffle, and the dummy
        counts of each item.
        """
        task, size = self._task, self._task.sealed_report_bytes
        self._files.begin()
        counts = draw_item_dummies(task.shuffler, task.domain_size, self._rng)
        expected = self._n_users * task.reports_per_user + int(counts.sum())
        shuffle = ExternalShuffle(
            report_bytes=size,
            buckets=self._files,
            n_buckets=bucket_count(expected * size),
            rng=self._rng,
            buffer_bytes=self._buffer_bytes,
        )
        for reports in self._kept(groups):
            shuffle.add(reports)
        for reports in self._dummies(np.cumsum(counts)):
            shuffle.add(reports)
        together = min(_CHUNK_REPORTS, MAX_CHUNK_BYTES // size)
        self._files.save(chunk.tobytes() for chunk in self._going(shuffle.permuted(together)))
        return ShuffleSummary(n_reports=shuffle.n_reports, seconds=shuffle.seconds)

    def _kept(self, groups: Iterable[bytes]) -> Iterator[Reports]:
        """Give the reports that are kept; fail at the end if some were lost on the disk."""
        arrived, size = 0, self._task.sealed_report_bytes
        for group in self._going(groups):
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
        """Make the dummies, item after item, and seal them by all workers."""
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
        for sealed in self._going(in_order(sealing, ahead=ahead)):
            yield np.frombuffer(sealed, dtype=np.uint8).reshape(-1, task.sealed_report_bytes)

    def _going(self, parts: Iterable[T]) -> Iterator[T]:
        for part in parts:
            if self._abandoned.is_set():
                raise RuntimeError("the service stops")
            yield part
