"""
Match a batch's sentinels before it is opened, check the batch by them, and remove them.

A sentinel is an operator's test submission, which the shuffler cannot distinguish from a user's.
The analyzer knows the leaves of its sealed reports. Sentinels carry no user's value and do not
amplify privacy, so they are excluded from all counts.

A batch that fails a check is stored and not estimated. Two checks are statistical: the number of
sentinels that a sampling shuffler kept, and the order of sentinels. Each fails an honest shuffler
with probability FALSE_ALARM at most: an honest batch fails with at most that probability if every
report is kept, and twice that if reports are sampled. The third, that none is missing where every
report is kept, never fails an honest shuffler. No check detects a leaked permutation.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import scipy

from shuffledp.analyzer.storage.task_table import Sentinel
from shuffledp.common.crypto.hpke import split_every
from shuffledp.common.errors import SuspectBatchError, UnusableBatchError
from shuffledp.common.messages import inclusion_proof
from shuffledp.common.messages.batch import BatchManifest
from shuffledp.common.task.task import Task

FALSE_ALARM: Final = 1e-9
"""Two-sided false-alarm probability of each statistical check."""
_MIN_ORDERED: Final = 13
"""With fewer sentinels no order is significant: 2/13! is below FALSE_ALARM, but 2/12! above."""
_MAX_ORDERED: Final = 400
"""Maximum number of sentinels in the exact test of order, since its cost is cubic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartMatches:
    """The reports of sentinels in one part of a batch."""

    n_reports: int
    """Number of reports in the part."""
    positions: Mapping[bytes, int]
    """First position in the part of every sentinel leaf found."""
    n_found: int
    """Number of sentinels' reports, further copies included."""


def match_part(reports: bytes, size: int, leaves: Collection[bytes]) -> PartMatches:
    """
    Find sentinels' reports in a part of a batch without opening it. Run by the analyzer.

    `reports` holds the part's sealed reports of `size` bytes, in the order of delivery; `leaves`
    all leaves of sentinels. Cost: one hash per report, a microsecond.
    """
    wanted, sealed = frozenset(leaves), split_every(reports, size)
    found = [
        (leaf, at) for at, leaf in enumerate(map(inclusion_proof.leaf, sealed)) if leaf in wanted
    ]
    return PartMatches(n_reports=len(sealed), positions=dict(found[::-1]), n_found=len(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class SentinelMatches:
    """A task's sentinels, and the positions of their reports in its batch."""

    sentinels: tuple[Sentinel, ...]
    """All that were registered, in the order of sending."""
    positions: Mapping[bytes, int]
    """First position in the batch of every sentinel leaf found."""
    n_repeated: int = 0
    """Number of further copies of sentinels' reports in the batch."""

    @classmethod
    def joined(cls, sentinels: Sequence[Sentinel], parts: Iterable[PartMatches]) -> Self:
        """Join the matches of all parts, in order; of none if there are no sentinels."""
        positions: dict[bytes, int] = {}
        start = n_found = 0
        for part in parts:
            for leaf, position in part.positions.items():
                positions.setdefault(leaf, start + position)
            start, n_found = start + part.n_reports, n_found + part.n_found
        return cls(
            sentinels=tuple(sentinels), positions=positions, n_repeated=n_found - len(positions)
        )

    @property
    def n_acknowledged(self) -> int:
        """Number of sentinels that the shuffler acknowledged."""
        return sum(sentinel.acknowledged for sentinel in self.sentinels)

    @property
    def n_missing(self) -> int:
        """Number of acknowledged sentinels with a report missing from the batch."""
        return sum(
            sentinel.acknowledged and not all(leaf in self.positions for leaf in sentinel.leaves)
            for sentinel in self.sentinels
        )

    def counted(self, *, sampled: bool) -> list[Sentinel]:
        """
        Return the sentinels among the shuffler's users.

        If the shuffler drops reports by design (`sampled`), planned sentinels that are not in the
        batch are counted too, since they may have been submitted: guarantees only err upward. Each
        that was not makes n_users one too low, and shares too high.
        """
        return [
            sentinel
            for sentinel in self.sentinels
            if sentinel.acknowledged
            or sampled
            or any(leaf in self.positions for leaf in sentinel.leaves)
        ]

    def sent_and_arrived(self) -> tuple[int, int]:
        """Return how many reports of acknowledged sentinels were sent, and how many arrived."""
        leaves = [
            leaf for sentinel in self.sentinels if sentinel.acknowledged for leaf in sentinel.leaves
        ]
        return len(leaves), sum(leaf in self.positions for leaf in leaves)

    def order(self) -> list[int]:
        """Return the first position of each sentinel in the batch, in the order of sending."""
        positions_of_each = (
            [self.positions[leaf] for leaf in sentinel.leaves if leaf in self.positions]
            for sentinel in self.sentinels
        )
        return [min(positions) for positions in positions_of_each if positions]


def check_sentinels(matches: SentinelMatches, task: Task) -> None:
    """
    Check a batch by its sentinels.

    A shuffler that keeps every report must deliver every sentinel. One that samples keeps reports
    at a known rate, so too few or too many are suspect; each side has half of FALSE_ALARM.

    Raises SuspectBatchError if a sentinel is missing, or the number or order of those found is
    improbable.
    """
    sent, arrived = matches.sent_and_arrived()
    kept = task.shuffler.keep_probability
    if kept == 1 and arrived < sent:
        who = "the shuffler acknowledged all of them, and must keep every report of this task"
        if task.relay:
            who = (
                "the first shuffler acknowledged all of them, and both must keep every report of "
                "this task: shuffledp sentinels check tells which did not"
            )
        raise SuspectBatchError(
            f"{matches.n_missing} of {matches.n_acknowledged} sentinels are missing; {who}",
            n_missing=matches.n_missing,
        )
    if kept < 1 and sent:
        as_few = scipy.special.bdtr(arrived, sent, kept)
        as_many = scipy.special.bdtrc(arrived - 1, sent, kept) if arrived else 1.0
        if min(as_few, as_many) < FALSE_ALARM / 2:
            raise SuspectBatchError(
                f"{arrived} of {sent} reports of sentinels arrived; a shuffler that keeps "
                f"{kept:.4g} of all reports delivers as few or as many with probability below "
                f"{FALSE_ALARM / 2:g}"
            )
    _check_order(matches.order(), ": the second shuffler did not permute" * bool(task.relay))


def _check_order(positions: list[int], who: str) -> None:
    """Check that the order of delivery is independent of the order of sending."""
    positions = positions[:_MAX_ORDERED]
    if len(positions) < _MIN_ORDERED:
        return
    tested = scipy.stats.kendalltau(range(len(positions)), positions, method="exact")
    if tested.pvalue < FALSE_ALARM:
        raise SuspectBatchError(
            f"{len(positions)} sentinels arrived in an order with probability below "
            f"{FALSE_ALARM:g} after a uniform permutation: Kendall's tau with the order of sending "
            f"is {tested.statistic:.2f}{who}"
        )


def without_sentinels(
    delivered: BatchManifest, matches: SentinelMatches, task: Task
) -> BatchManifest:
    """
    Return the manifest of a delivered batch without its sentinels; discarded reports count.

    Raises UnusableBatchError if fewer than n_min users remain.
    """
    counted = matches.counted(sampled=task.shuffler.keep_probability < 1)
    n_sentinels = len(counted)
    n_users = delivered.n_users - n_sentinels
    if n_users < task.n_min:
        raise UnusableBatchError(
            f"the batch has {n_users} users besides {n_sentinels} sentinels; the task needs at "
            f"least {task.n_min} users"
        )
    # Further copies are not subtracted: they are refused as repeats, like those of any report.
    n_reports = delivered.n_reports + delivered.n_discarded - len(matches.positions)
    lengths = Counter(len(sentinel.leaves) for sentinel in counted)
    by_length = tuple(
        max(0, number - lengths[length])
        for length, number in zip(task.lengths, delivered.by_length, strict=False)
    )
    return replace(delivered, n_users=n_users, n_reports=n_reports, by_length=by_length)
