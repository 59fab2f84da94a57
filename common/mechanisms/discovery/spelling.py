"""
Spell the texts whose hashes were found, from reports on their bytes. Run by the analyzer.

At each position the reports support a byte of each text. The texts are tried in the order of their
total support, until one has the hash.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.base import Reports
from common.mechanisms.discovery.prefix_hashing import PrefixHashing, code_of
from common.mechanisms.discovery.prefix_search import (
    BYTES,
    LevelReports,
    Threshold,
    critical_shares,
    estimates,
    sure_share,
)
from common.messages.result import FoundValues

_MOST_TRIES: Final = 20_000
"""Maximum number of texts tried for a hash: .3 s."""
_MOST_TRIES_IN_ALL: Final = 1_000_000
_CHOICES: Final = 24
"""Bytes tried at each position, the best supported ones."""


def spell(mechanism: PrefixHashing, reports: Reports, codes: Sequence[str]) -> FoundValues:
    """
    Find the texts of these hashes, in hexadecimal.

    Cost: as `find_codes`, and up to .3 s for each hash, but no more than half a minute.
    """
    g, labels = mechanism.buckets, np.arange(1, len(codes) + 1)[:, np.newaxis]
    levels = [LevelReports.of(reports, mechanism, level) for level in range(mechanism.levels)]
    found = [level.next_counts(labels, g).astype(np.int32) for level in levels]
    counts, tries = np.stack(found, axis=1), _MOST_TRIES_IN_ALL // max(1, len(codes))
    texts = [_text_of(code, support, tries) for code, support in zip(codes, counts, strict=True)]
    spelled = [label for label, text in enumerate(texts) if text is not None]
    values = [text for text in texts if text is not None]
    supports = [
        sum(
            int(counts[label, place, byte])
            for place, byte in enumerate(text.ljust(mechanism.levels, b"\0"))
        )
        for label, text in zip(spelled, values, strict=True)
    ]
    shares, errors = estimates(mechanism, np.array(supports, dtype=np.int64), len(reports))
    order = np.argsort(-shares, kind="stable").tolist()
    thresholds = [Threshold.of(each.number, BYTES, g, last=True) for each in levels]
    return FoundValues(
        values=tuple(values[place] for place in order),
        shares=shares[order],
        standard_errors=errors[order],
        reports=np.array([level.number for level in levels]),
        kept=np.full(len(levels), len(codes)),
        critical_shares=critical_shares(mechanism, thresholds),
        sure_share=sure_share(thresholds, mechanism.p, mechanism.q),
        expected_false=0.0,
        not_spelled=tuple(sorted(set(range(len(codes))) - set(spelled))),
    )


def _text_of(code: str, counts: NDArray[np.int32], tries: int) -> bytes | None:
    """Return the best supported text with this hash; None if it is not among the first tries."""
    tried = islice(_best_texts(counts), min(tries, _MOST_TRIES))
    return next((text for text in tried if code_of(text, len(code) // 2).hex() == code), None)


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
        yield _string(ranked, choices)
        for place in range(first, length):
            following = choices[place] + 1
            if following < _CHOICES:
                lost = int(support[place, following - 1] - support[place, following])
                changed = (*choices[:place], following, *choices[place + 1 :])
                heapq.heappush(heap, (cost + lost, length, changed, place))


def _string(ranked: NDArray[np.int64], choices: Sequence[int]) -> bytes:
    return bytes(int(ranked[place, choice]) for place, choice in enumerate(choices))
