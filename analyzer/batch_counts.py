"""Open a batch's reports on all cores, refuse invalid ones, and count the others by cell."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from analyzer.repeat_filter import RepeatFilter
from common.crypto.hpke import HpkePrivateKey, report_context
from common.crypto.hpke_pool import HpkePool
from common.errors import SuspectBatchError, UnusableBatchError
from common.mechanisms.base import Counts, Randomizer, Reports, is_null
from common.messages.result import RefusalCause
from common.task.task import Task
from common.task_digest import TaskDigest

_TALLY_SIZE: Final = 2**19
"""Minimum number of reports tallied together; a chunk may have far fewer reports than cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """Counts of an opened batch, without its sentinels."""

    cells: Counts
    """Reports by cell of the task's mechanism, shape (cells,)."""
    counted: int
    """Reports in `cells`."""
    null: int
    """Null reports: padding, discarded."""
    refused: Mapping[RefusalCause, int]
    """Reports not counted, by cause; further copies of sentinels' reports are repeats."""
    open_seconds: float
    """Duration of opening and counting."""

    @property
    def n_refused(self) -> int:
        """Reports refused for any cause."""
        return sum(self.refused.values())


def open_and_count(
    chunks: Iterable[bytes],
    task: Task,
    digest: TaskDigest,
    mechanism: Randomizer,
    *,
    pool: HpkePool,
    key: HpkePrivateKey,
) -> BatchCounts:
    """
    Drop repeats, open, check and count a batch's reports. Run by the analyzer.

    `chunks` hold whole sealed reports, a few thousand each.

    Returns:
        Counts, and refusals by cause. Only totals are returned: outcomes of single reports would
        let a shuffler recognise a report that it has tampered with.

    Cost: one X25519 operation per report, and one of ML-KEM in the hybrid suite, spread over the
    workers; memory of two tallies and a RepeatFilter.
    """
    started = time.perf_counter()
    context, size = report_context(digest), task.sealed_report_bytes
    repeats = RepeatFilter(size)
    valid: list[Reports] = []
    cells = mechanism.tally(np.empty(0, dtype=mechanism.report_dtype))
    refused: dict[RefusalCause, int] = {"repeated": 0, "unreadable": 0, "malformed": 0}
    null = counted = waiting = 0

    def fresh_chunks() -> Iterator[bytes]:
        for chunk in chunks:
            fresh = repeats.filter(chunk)
            refused["repeated"] += (len(chunk) - len(fresh)) // size
            yield fresh

    opening = (pool.open(key, chunk, size, context) for chunk in fresh_chunks())
    for opened in pool.in_order(opening):
        readable = np.frombuffer(opened.readable, dtype=np.bool_)
        reports: Reports = np.frombuffer(opened.plaintexts, dtype=mechanism.report_dtype)[readable]
        padding, fine = is_null(reports), mechanism.valid(reports)
        valid.append(reports[fine])
        waiting += len(valid[-1])
        if waiting >= _TALLY_SIZE:
            cells += mechanism.tally(np.concatenate(valid))
            counted, waiting, valid = counted + waiting, 0, []
        null += int(padding.sum())
        refused["unreadable"] += len(readable) - len(reports)
        refused["malformed"] += int((~fine & ~padding).sum())
    if waiting:
        cells += mechanism.tally(np.concatenate(valid))
    return BatchCounts(
        cells=cells,
        counted=counted + waiting,
        null=null,
        refused=refused,
        open_seconds=time.perf_counter() - started,
    )


def add_batch_refusals(
    counts: BatchCounts, task: Task, *, n_users: int, n_repeated: int
) -> BatchCounts:
    """
    Add the refusals that only the whole batch reveals: sentinels' repeats and excess null reports.

    `n_repeated` repeats of sentinels' reports were dropped before opening. Null reports pad each
    submission to the task's maximum number of dummies, unless that number is fixed.
    Null reports beyond what `n_users` users can send are malformed.
    """
    room = n_users * (task.dummies.maximum - task.dummies.per_user)
    excess = max(0, counts.null - room)
    refused: dict[RefusalCause, int] = {
        **counts.refused,
        "repeated": counts.refused["repeated"] + n_repeated,
        "malformed": counts.refused["malformed"] + excess,
    }
    return replace(counts, null=counts.null - excess, refused=refused)


def check_counts(counts: BatchCounts, n_reports: int, most_refused_share: float) -> None:
    """
    Check that enough of a batch's `n_reports` reports were counted to estimate its result.

    Honest devices and an honest shuffler cause no refusals; a broken or malicious device causes
    refusals of its own reports only.

    Raises:
        UnusableBatchError: No report was counted.
        SuspectBatchError: The share of refused reports exceeds the operator's limit.
    """
    if counts.counted == 0:
        raise UnusableBatchError(f"none of the batch's {n_reports} reports could be counted")
    if counts.n_refused > most_refused_share * n_reports:
        raise SuspectBatchError(
            f"{counts.n_refused} of the batch's {n_reports} reports were refused; "
            f"most_refused_share is {most_refused_share}"
        )
