"""
Open a batch on all cores and count it by cell; refuse invalid reports, by cause. Pure.

Dropping repeated ciphertexts drops every repeat of a report, since no ciphertext can be changed
into another that opens: in each suite the keys are derived from the whole encapsulated key, and the
rest is authenticated [RFC9180, XWing].
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.crypto.hpke import HpkePrivateKey, report_context
from common.crypto.hpke_pool import HpkePool, in_order
from common.mechanisms.base import Counts, Randomizer, Reports, is_null
from common.messages.result import RefusalCause
from common.sorted_index import SortedIndex
from common.task.task import Task
from common.task_digest import TaskDigest

_AHEAD: Final = 4
"""Chunks queued for each worker."""
_HASH_BYTES: Final = 16
_TALLIED_AT_ONCE: Final = 2**19
"""Reports counted together: there may be many more cells than reports in a chunk."""


class RepeatFilter:
    """Drops repeated sealed reports of one batch, in 16 bytes of memory a report."""

    def __init__(self, report_bytes: int) -> None:
        self._report_bytes = report_bytes
        self._seen = SortedIndex()
        """Maps the first half of a hash to the second."""

    def without(self, chunk: bytes) -> bytes:
        """
        Drop sealed reports seen before, in this chunk or an earlier one; remember the others.

        Sealing draws a fresh key for each report, so honest ciphertexts differ, and two of 10^7
        have the same 16-byte BLAKE2b by chance with probability below 10^-24. To get a given
        honest report dropped takes a second preimage, 2^128 trials; a collision, 2^64 trials,
        drops only one of the attacker's own.

        Cost: a hash and a look-up a report, some 2 microseconds.
        """
        size, view = self._report_bytes, memoryview(chunk)
        hashes = [
            hashlib.blake2b(view[start : start + size], digest_size=_HASH_BYTES).digest()
            for start in range(0, len(chunk), size)
        ]
        halves = np.frombuffer(b"".join(hashes), dtype="<u8").reshape(-1, 2)
        heads, rests = halves[:, 0].copy(), halves[:, 1].copy()
        places, found = self._seen.find(heads)
        fresh = _firsts(hashes, heads)
        fresh[places[rests[places] == found]] = False
        self._seen.add(heads[fresh], rests[fresh])
        if fresh.all():
            return chunk
        return np.frombuffer(chunk, dtype=np.uint8).reshape(-1, size)[fresh].tobytes()


def _firsts(hashes: list[bytes], heads: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Mark the first occurrence of each hash in the chunk."""
    if len(np.unique(heads)) == len(heads):
        return np.ones(len(heads), dtype=np.bool_)
    first = dict[bytes, int]()
    for place, one in enumerate(hashes):
        first.setdefault(one, place)
    firsts = np.zeros(len(hashes), dtype=np.bool_)
    firsts[list(first.values())] = True
    return firsts


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """Counts of an opened batch."""

    cells: Counts
    """Reports by cell of the task's mechanism, shape (cells,)."""
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
        chunks: Sealed reports, some thousand whole ones a chunk.
        task: Their task.
        digest: Its digest, which every report is bound to.
        mechanism: The task's mechanism.
        pool: Opens chunks in its workers.
        key: The private key that the reports are sealed to.
        tallied_at_once: Reports counted by cell together.

    Returns:
        Counts, and refusals by cause. Only totals: an answer for a single report would let a
        shuffler that tampered with it identify it.

    Cost: one X25519 operation a report, and one of ML-KEM in the hybrid suite, spread over the
    workers; memory of two tallies, and 16 bytes a report to find repeats (24 while merging).
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
