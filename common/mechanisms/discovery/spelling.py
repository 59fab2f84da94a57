"""
Spell the texts whose hashes were found, from reports on their bytes. Run by the analyzer.

At each position the reports support a byte of each text. The texts are tried in the order of their
total support, until one has the hash.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.base import Counts, Reports
from common.mechanisms.discovery.prefix_hashing import PrefixHashing, code_of
from common.mechanisms.discovery.prefix_search import (
    BYTES,
    critical_count,
    estimates,
    found_values,
    next_counts,
    usable,
)
from common.messages.result import FoundValues

_MOST_TRIES: Final = 20_000
"""Maximum number of texts tried for a hash: .3 s, or a second for texts of 255 bytes."""
_MOST_TRIES_IN_ALL: Final = 1_000_000
_CHOICES: Final = 24
"""Bytes tried at each position, the best supported ones."""


def spell(mechanism: PrefixHashing, reports: Reports, codes: Sequence[str]) -> FoundValues:
    """
    Find the texts of these hashes, in hexadecimal.

    A text whose bytes all exceed the critical count of their level is found, by experience: few
    other bytes do, so that it is among the first texts tried. Cost: as `find_codes`, and up to a
    second for each hash, but no more than a minute.
    """
    labels = np.arange(1, len(codes) + 1)[:, np.newaxis]
    kept = [usable(mechanism, reports, level) for level in range(mechanism.levels)]
    by_level = [next_counts(mechanism, each, labels).astype(np.int32) for each in kept]
    tries = min(_MOST_TRIES, _MOST_TRIES_IN_ALL // max(1, len(codes)))
    supports = dict[bytes, float]()
    for code, counts in zip(codes, np.stack(by_level, axis=1), strict=True):
        for text in islice(_best_texts(counts), tries):
            if code_of(text, len(code) // 2).hex() == code:
                padded = text.ljust(mechanism.levels, b"\0")
                supports[text] = int(counts[np.arange(len(padded)), list(padded)].sum())
                break
    numbers = np.array([len(each) for each in kept])
    supports = _corrected(mechanism, supports, numbers)
    critical = [
        critical_count(number, BYTES, mechanism.buckets, last=True) for number in numbers.tolist()
    ]
    n_reports = int(numbers.sum())
    return found_values(mechanism, reports, numbers, critical, supports, n_reports=n_reports)


def _corrected(
    mechanism: PrefixHashing, supports: Mapping[bytes, float], numbers: Counts
) -> dict[bytes, float]:
    """Correct supports: texts that share a byte differ in their label; see `neighbour_shares`."""
    counts = np.array([*supports.values()], dtype=np.float64)
    shares, _ = estimates(mechanism, counts, float(numbers.sum()))
    padded = [text.ljust(mechanism.levels, b"\0") for text in supports]
    for level, lost in enumerate(numbers * (mechanism.p - mechanism.q) / (mechanism.buckets - 1)):
        own = np.array([text[level] for text in padded], dtype=np.int64)
        counts += lost * (np.bincount(own, shares, BYTES)[own] - shares)
    return dict(zip(supports, counts.tolist(), strict=True))


def _best_texts(counts: NDArray[Any]) -> Iterator[bytes]:
    """
    Yield byte strings by falling support, counts of shape (positions, 256).

    A string of length k has the support of its bytes and, from position k on, of zero bytes. Of
    the strings of one length, the best one comes first. Each later one differs from an earlier one
    by the next best byte at the last position changed, or at one after it.
    """
    ranked = np.argsort(-counts[:, 1:], axis=1, kind="stable")[:, :_CHOICES] + 1
    support = np.take_along_axis(counts, ranked, axis=1)
    ends = np.concatenate([np.cumsum(counts[::-1, 0])[::-1], [0]])
    best = np.concatenate([[0], np.cumsum(support[:, 0])])
    heap: list[tuple[int, int, tuple[int, ...], int]] = [
        (-int(best[length] + ends[length]), length, (0,) * length, 0)
        for length in range(len(counts) + 1)
    ]
    heapq.heapify(heap)
    while heap:
        cost, length, choices, first = heapq.heappop(heap)
        yield bytes(int(ranked[place, choice]) for place, choice in enumerate(choices))
        for place in range(first, length):
            following = choices[place] + 1
            if following < _CHOICES:
                lost = int(support[place, following - 1] - support[place, following])
                changed = (*choices[:place], following, *choices[place + 1 :])
                heapq.heappush(heap, (cost + lost, length, changed, place))
