"""
Open a batch on all cores and count it by cell; refuse what is not a report, by cause. Pure.

Dropping ciphertexts that came before drops every repeat of a report, because nobody can change one
into another that opens: in each suite the encapsulated key, every bit of it, is part of what the
keys are derived from, and the rest is authenticated [RFC9180, XWing].
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from analyzer.deduplication import RepeatFilter
from common.crypto.hpke import HpkePrivateKey, report_context
from common.crypto.hpke_pool import HpkePool, in_order
from common.mechanisms.base import Counts, Randomizer, Reports, is_null
from common.messages.result import RefusalCause
from common.task.task import Task
from common.task_digest import TaskDigest

_AHEAD: Final = 4
"""Chunks handed out ahead for each worker, so that none waits."""
_TALLIED_AT_ONCE: Final = 2**19
"""Reports counted together: cells may be many more than a chunk's reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """What a batch came to."""

    cells: Counts
    """Reports by cell of the task's mechanism."""
    counted: int
    """Reports in `cells`."""
    null: int
    """Null reports: padding, discarded."""
    refused: dict[RefusalCause, int]


def open_and_count(
    chunks: Iterable[bytes],
    task: Task,
    digest: TaskDigest,
    mechanism: Randomizer,
    *,
    pool: HpkePool,
    key: HpkePrivateKey,
    tallied_at_once: int = _TALLIED_AT_ONCE,
) -> Intake:
    """
    Drop repeats, open, check and count a batch. Run by the analyzer.

    Args:
        chunks: Sealed reports, whole ones, in chunks of some thousand.
        task: The task they belong to.
        digest: Its digest, which every report is bound to.
        mechanism: The task's mechanism.
        pool: Opens chunks elsewhere.
        key: What the task's reports are sealed to.
        tallied_at_once: Reports counted by cell together.

    Returns:
        Counts, and refusals by cause. Only totals: an answer for a single report would tell a
        shuffler that tampered with it which one it was.

    Cost: one X25519 operation a report, and one of ML-KEM in the hybrid suite, spread over the
    workers; 16 bytes of memory a report
    for finding repeats (24 for moments), and what two tallies take.
    """
    context, size = report_context(digest), task.sealed_report_bytes
    repeats = RepeatFilter(size)
    valid: list[Reports] = []
    cells = mechanism.tally(np.empty(0, dtype=mechanism.report_dtype))
    refused: dict[RefusalCause, int] = {"repeated": 0, "unreadable": 0, "malformed": 0}
    null = counted = waiting = 0

    def fresh_chunks() -> Iterator[bytes]:
        for chunk in chunks:
            fresh = repeats.without(chunk)
            refused["repeated"] += (len(chunk) - len(fresh)) // size
            yield fresh

    opening = (pool.open(key, chunk, size, context) for chunk in fresh_chunks())
    for opened in in_order(opening, ahead=_AHEAD * pool.processes):
        readable = np.frombuffer(opened.readable, dtype=np.bool_)
        reports: Reports = np.frombuffer(opened.plaintexts, dtype=mechanism.report_dtype)[readable]
        padding, fine = is_null(reports), mechanism.valid(reports)
        valid.append(reports[fine])
        waiting += len(valid[-1])
        if waiting >= tallied_at_once:
            cells += mechanism.tally(np.concatenate(valid))
            counted, waiting, valid = counted + waiting, 0, []
        null += int(padding.sum())
        refused["unreadable"] += len(readable) - len(reports)
        refused["malformed"] += int((~fine & ~padding).sum())
    if waiting:
        cells += mechanism.tally(np.concatenate(valid))
    return Intake(cells=cells, counted=counted + waiting, null=null, refused=refused)
