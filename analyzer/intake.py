"""
Open a batch on all cores and count it by cell; refuse what is not a report, by cause. Pure.

Dropping ciphertexts that came before drops every repeat of a report, because nobody can change one
into another that opens: in each suite the encapsulated key, every bit of it, is part of what the
keys are derived from, and the rest is authenticated [RFC9180, XWing].
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from common.hpke import HpkePrivateKey, report_context
from common.hpke_pool import Pool, in_order
from common.mechanisms.mechanism import Counts, Mechanism, Reports, is_null
from common.result import RefusalCause
from common.task import Task
from common.task_digest import TaskDigest

_AHEAD: Final = 4
"""Chunks handed out ahead for each worker, so that none waits."""


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


def take_in(
    chunks: Iterable[bytes],
    task: Task,
    digest: TaskDigest,
    mechanism: Mechanism,
    *,
    pool: Pool,
    key: HpkePrivateKey,
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

    Returns:
        Counts, and refusals by cause. Only totals: an answer for a single report would tell a
        shuffler that tampered with it which one it was.

    Cost: one X25519 operation a report, and one of ML-KEM in the hybrid suite, spread over the
    workers; about .2 kB of memory a report for finding repeats.
    """
    context, size = report_context(digest), task.sealed_report_bytes
    seen: set[bytes] = set()
    valid: list[Reports] = [np.empty(0, dtype=mechanism.report_dtype)]
    refused: dict[RefusalCause, int] = {"repeated": 0, "unreadable": 0, "malformed": 0}
    null = 0

    def fresh_chunks() -> Iterator[bytes]:
        for chunk in chunks:
            fresh = _without_repeats(chunk, size, seen)
            refused["repeated"] += (len(chunk) - len(fresh)) // size
            yield fresh

    opening = (pool.open(key, chunk, size, context) for chunk in fresh_chunks())
    for opened in in_order(opening, ahead=_AHEAD * pool.processes):
        readable = np.frombuffer(opened.readable, dtype=np.bool_)
        reports: Reports = np.frombuffer(opened.plaintexts, dtype=mechanism.report_dtype)[readable]
        padding, fine = is_null(reports), mechanism.valid(reports)
        valid.append(reports[fine])
        null += int(padding.sum())
        refused["unreadable"] += len(readable) - len(reports)
        refused["malformed"] += int((~fine & ~padding).sum())
    counted = np.concatenate(valid)
    return Intake(cells=mechanism.tally(counted), counted=len(counted), null=null, refused=refused)


def _without_repeats(chunk: bytes, size: int, seen: set[bytes]) -> bytes:
    """Drop sealed reports that were seen before, and remember the others."""
    fresh = []
    for start in range(0, len(chunk), size):
        report = chunk[start : start + size]
        name = hashlib.sha256(report).digest()  # reports of the hybrid suite have over a kilobyte
        if name not in seen:
            seen.add(name)
            fresh.append(report)
    return b"".join(fresh)
