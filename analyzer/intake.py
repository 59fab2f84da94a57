"""
Take in a batch: check its sentinels, open it on all cores, and count it by cell. Pure.

A batch that fails a check is kept and not estimated. Two checks are statistical: the number of
sentinels that a sampling shuffler kept, and the order of sentinels. Each fails an honest shuffler
with probability FALSE_ALARM at most: an honest batch fails with at most that probability if every
report is kept, and twice that if reports are sampled. The other checks never fail an honest
shuffler. No check detects a leaked permutation.

Dropping repeated ciphertexts drops every repeat of a report, since no ciphertext can be changed
into another that opens: in each suite the keys are derived from the whole encapsulated key, and the
rest is authenticated [RFC9180, XWing].
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc

from analyzer.storage.task_table import Sentinel
from common.crypto import merkle
from common.crypto.hpke import HpkePrivateKey, report_context
from common.crypto.hpke_pool import HpkePool, in_order
from common.errors import SuspectBatchError, UnusableBatchError
from common.mechanisms.base import Counts, Randomizer, Reports, is_null
from common.messages.batch import BatchManifest
from common.messages.result import RefusalCause, Result
from common.sorted_index import SortedIndex
from common.task.task import Task
from common.task_digest import TaskDigest

FALSE_ALARM: Final = 1e-9
"""Two-sided false-alarm probability of each statistical check."""
_MIN_ORDERED: Final = 13
"""With fewer sentinels no order is significant: 2/13! is below FALSE_ALARM, 2/12! above."""
_MAX_ORDERED: Final = 400
"""Maximum number of sentinels in the exact test of order, whose cost is cubic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentinelMatches:
    """
    The sentinels found in a batch.

    A sentinel is an operator's test submission, which the shuffler cannot tell from a user's. The
    analyzer knows the leaves of its sealed reports, matches them before opening, and drops them
    before counting: they are no user's values and do not amplify privacy.
    """

    sentinels: tuple[Sentinel, ...]
    """In the order of sending."""
    places: dict[bytes, int]
    """First position in the batch of every sentinel leaf found."""
    n_repeated: int
    """Further copies of sentinels' reports."""

    @property
    def n_acknowledged(self) -> int:
        """Number of sentinels that the shuffler acknowledged."""
        return sum(sentinel.acknowledged for sentinel in self.sentinels)

    @property
    def n_missing(self) -> int:
        """Number of acknowledged sentinels with a report missing from the batch."""
        return sum(
            sentinel.acknowledged and not all(leaf in self.places for leaf in sentinel.leaves)
            for sentinel in self.sentinels
        )

    def n_users(self, *, sampled: bool) -> int:
        """
        Count the sentinels among the shuffler's number of users.

        Args:
            sampled: The shuffler drops reports by design. Then a planned sentinel that is not in
                the batch may have been submitted, and is counted: guarantees only err upward.
        """
        return sum(
            sentinel.acknowledged or sampled or any(leaf in self.places for leaf in sentinel.leaves)
            for sentinel in self.sentinels
        )

    def reports(self) -> tuple[int, int]:
        """Return the numbers of acknowledged sentinels' reports that were sent and that arrived."""
        leaves = [
            leaf for sentinel in self.sentinels if sentinel.acknowledged for leaf in sentinel.leaves
        ]
        return len(leaves), sum(leaf in self.places for leaf in leaves)

    def order(self) -> list[int]:
        """Return the first position of each sentinel in the batch, in the order of sending."""
        seen = (
            [self.places[leaf] for leaf in sentinel.leaves if leaf in self.places]
            for sentinel in self.sentinels
        )
        return [min(places) for places in seen if places]


def match_sentinels(
    chunks: Iterable[bytes], size: int, sentinels: Sequence[Sentinel]
) -> SentinelMatches:
    """
    Find sentinels in a batch without opening it. Run by the analyzer.

    `chunks` hold whole sealed reports of `size` bytes, in the order of delivery. Without sentinels
    the batch is not read.

    Cost: one hash a report, a microsecond.
    """
    wanted = {leaf for sentinel in sentinels for leaf in sentinel.leaves}
    places: dict[bytes, int] = {}
    repeated = 0
    for place, report in enumerate(_reports(chunks, size) if wanted else ()):
        if (found := merkle.leaf(report)) in wanted:
            repeated += found in places
            places.setdefault(found, place)
    return SentinelMatches(sentinels=tuple(sentinels), places=places, n_repeated=repeated)


def drop_sentinels(chunks: Iterable[bytes], size: int, matches: SentinelMatches) -> Iterator[bytes]:
    """Yield a batch's chunks without its sentinels' reports and their repeats."""
    for chunk in chunks:
        if not matches.places:
            yield chunk
            continue
        left = [
            report
            for report in _reports([chunk], size)
            if merkle.leaf(report) not in matches.places
        ]
        if left:
            yield b"".join(left)


def _reports(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    for chunk in chunks:
        for start in range(0, len(chunk), size):
            yield chunk[start : start + size]


def check_batch(sightings: SentinelMatches, task: Task) -> None:
    """
    Check a batch by its sentinels.

    A shuffler that keeps every report must deliver every sentinel. One that samples drops sentinels
    at a known rate: too few or too many are suspect, each with half of FALSE_ALARM.

    Raises:
        SuspectBatchError: A sentinel is missing, or their number or order is improbable.
    """
    sent, there = sightings.reports()
    kept = task.shuffler.kept
    if kept == 1 and there < sent:
        raise SuspectBatchError(
            f"{sightings.n_missing} of {sightings.n_acknowledged} sentinels are missing; the "
            "shuffler had acknowledged all of them, and drops no report of this task",
            n_missing=sightings.n_missing,
        )
    if kept < 1 and sent:
        chance = min(bdtr(there, sent, kept), bdtrc(there - 1, sent, kept) if there else 1.0)
        if chance < FALSE_ALARM / 2:
            raise SuspectBatchError(
                f"{there} of {sent} reports of sentinels arrived; a shuffler that keeps "
                f"{kept:.4g} of all reports delivers as few or as many with probability below "
                f"{FALSE_ALARM / 2:g}"
            )
    _check_order(sightings.order())


def _check_order(places: list[int]) -> None:
    """Check that the order of delivery is independent of the order of sending."""
    places = places[:_MAX_ORDERED]
    if len(places) < _MIN_ORDERED:
        return
    tested = scipy.stats.kendalltau(range(len(places)), places, method="exact")
    if tested.pvalue < FALSE_ALARM:
        raise SuspectBatchError(
            f"{len(places)} sentinels arrived in an order with probability below {FALSE_ALARM:g} "
            f"after a uniform permutation: Kendall's tau with the order of sending is "
            f"{tested.statistic:.2f}"
        )


def exclude_sentinels(
    manifest: BatchManifest, sightings: SentinelMatches, task: Task
) -> BatchManifest:
    """
    Return the manifest of a batch without its sentinels.

    Raises:
        UnusableBatchError: Fewer than n_min users remain.
    """
    n_sentinels = sightings.n_users(sampled=task.shuffler.kept < 1)
    n_users = manifest.n_users - n_sentinels
    if n_users < task.n_min:
        raise UnusableBatchError(
            f"the batch has {n_users} users beside {n_sentinels} sentinels; the task needs at "
            f"least {task.n_min} users"
        )
    # Further copies are not subtracted: they are refused as repeats, like those of any report.
    return replace(manifest, n_users=n_users, n_reports=manifest.n_reports - len(sightings.places))


def check_refusals(result: Result, most_refused_share: float) -> None:
    """
    Check the share of a batch's reports that were refused.

    Honest devices and an honest shuffler cause no refusals; a broken or malicious device causes
    those of its own reports.

    Raises:
        SuspectBatchError: The share exceeds the operator's limit.
    """
    refused = sum(result.refused.values())
    if refused > most_refused_share * result.n_reports:
        raise SuspectBatchError(
            f"{refused} of the batch's {result.n_reports} reports were refused; "
            f"most_refused_share is {most_refused_share}"
        )


_AHEAD: Final = 4
"""Chunks queued per worker."""
_HASH_BYTES: Final = 16
_TALLIED_AT_ONCE: Final = 2**19
"""Reports tallied together, since there may be many more cells than reports in a chunk."""


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
) -> Intake:
    """
    Drop repeats, open, check and count a batch. Run by the analyzer.

    A chunk holds some thousand whole sealed reports.

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
        if waiting >= _TALLIED_AT_ONCE:
            cells += mechanism.tally(np.concatenate(valid))
            counted, waiting, valid = counted + waiting, 0, []
        null += int(padding.sum())
        refused["unreadable"] += len(readable) - len(reports)
        refused["malformed"] += int((~fine & ~padding).sum())
    if waiting:
        cells += mechanism.tally(np.concatenate(valid))
    return Intake(cells=cells, counted=counted + waiting, null=null, refused=refused)
