"""
Sentinels: an operator's test submissions, registered, recognised by hash, excluded from counts.

A sentinel travels like every submission, so no shuffler can tell it apart. The analyzer knows the
leaves of its sealed reports, matches them before anything is opened, and removes them before
anything is counted: they are no user's values, and nobody hides among them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from analyzer.storage.sentinel_table import Sentinel
from common.crypto.merkle import leaf


@dataclass(frozen=True, slots=True, kw_only=True)
class SentinelMatches:
    """Which sentinels a batch holds."""

    sentinels: tuple[Sentinel, ...]
    """In the order in which they were sent."""
    places: dict[bytes, int]
    """Of every leaf of a sentinel that was seen, its first place in the batch."""
    n_repeated: int
    """Further copies of sentinels' reports."""

    @property
    def n_acknowledged(self) -> int:
        """Sentinels that an honest shuffler had."""
        return sum(sentinel.acknowledged for sentinel in self.sentinels)

    @property
    def n_missing(self) -> int:
        """Acknowledged sentinels of which at least one report is not there."""
        return sum(
            sentinel.acknowledged and not all(leaf in self.places for leaf in sentinel.leaves)
            for sentinel in self.sentinels
        )

    def n_users(self, *, sampled: bool) -> int:
        """
        Count the sentinels that the shuffler's number of users holds.

        Args:
            sampled: The shuffler drops reports by design. Then one that was planned and is not
                there may have been among the users, and is taken to have been: the guarantee may
                only err upward.
        """
        return sum(
            sentinel.acknowledged or sampled or any(leaf in self.places for leaf in sentinel.leaves)
            for sentinel in self.sentinels
        )

    def reports(self) -> tuple[int, int]:
        """Give how many reports of acknowledged sentinels were sent, and how many are there."""
        leaves = [
            leaf for sentinel in self.sentinels if sentinel.acknowledged for leaf in sentinel.leaves
        ]
        return len(leaves), sum(leaf in self.places for leaf in leaves)

    def order(self) -> list[int]:
        """Give the first place of each sentinel that is there, in the order of sending."""
        seen = (
            [self.places[leaf] for leaf in sentinel.leaves if leaf in self.places]
            for sentinel in self.sentinels
        )
        return [min(places) for places in seen if places]


def match_sentinels(
    chunks: Iterable[bytes], size: int, sentinels: Sequence[Sentinel]
) -> SentinelMatches:
    """
    Look through a batch without opening it. Run by the analyzer.

    Args:
        chunks: Sealed reports in the order of their delivery, whole ones.
        size: Bytes of a sealed report.
        sentinels: What to look for; without any the batch is not read.

    Cost: one hash a report, a microsecond.
    """
    wanted = {leaf for sentinel in sentinels for leaf in sentinel.leaves}
    places: dict[bytes, int] = {}
    repeated = 0
    for place, report in enumerate(_reports(chunks, size) if wanted else ()):
        if (found := leaf(report)) in wanted:
            repeated += found in places
            places.setdefault(found, place)
    return SentinelMatches(sentinels=tuple(sentinels), places=places, n_repeated=repeated)


def drop_sentinels(
    chunks: Iterable[bytes], size: int, sightings: SentinelMatches
) -> Iterator[bytes]:
    """Give a batch's chunks without its sentinels' reports, repeats of them included."""
    for chunk in chunks:
        if not sightings.places:
            yield chunk
            continue
        left = [
            report for report in _reports([chunk], size) if leaf(report) not in sightings.places
        ]
        if left:
            yield b"".join(left)


def _reports(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    for chunk in chunks:
        for start in range(0, len(chunk), size):
            yield chunk[start : start + size]
