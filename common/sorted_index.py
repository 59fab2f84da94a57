"""
A look-up of many million keys in few bytes: sorted runs of numbers, merged as they grow.

Python's own set of 16-byte strings takes some 100 bytes an entry, and a B-tree on the disk writes a
page for each random key. This takes 16 bytes an entry, all in two arrays a run.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_EVENNESS: Final = 2
"""A run is merged into the one before it unless that is more than so many times as long."""
_MANY: Final = 2**18
"""Entries that are sorted in at once."""


class SortedIndex:
    """
    Maps 64-bit keys to 64-bit values; a key may have several.

    Keys should be uniform, such as the first half of a keyed hash: then hardly any two are equal,
    and a look-up costs a binary search in each of some log2(n / batch) runs, about a microsecond
    at ten million entries, where many keys are looked up together.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[Words, Words]] = []
        self._fresh: list[tuple[Words, Words]] = []

    def __len__(self) -> int:
        return sum(len(keys) for keys, _ in self._runs + self._fresh)

    def add(self, keys: Words, values: Words) -> None:
        """Add entries, shape (n,) each. A few are cheap: the next look-up sorts them in."""
        if len(keys):
            self._fresh.append((keys, values))
        if sum(len(fresh) for fresh, _ in self._fresh) >= _MANY:
            self._sort_in()

    def find(self, keys: Words) -> tuple[NDArray[np.intp], Words]:
        """
        Find every entry whose key is among some.

        Args:
            keys: Shape (n,).

        Returns:
            A pair for each entry found, shape (m,) each: the key's place among `keys`, and the
            entry's value.
        """
        self._sort_in()
        order = np.argsort(keys)
        wanted = keys[order]  # searches in ascending order find the memory warm
        places: list[NDArray[np.intp]] = [np.empty(0, dtype=np.intp)]
        found: list[Words] = [np.empty(0, dtype=np.uint64)]
        for held, values in self._runs:
            starts = np.searchsorted(held, wanted)
            hits = np.flatnonzero(held[np.minimum(starts, len(held) - 1)] == wanted)
            ends = np.searchsorted(held, wanted[hits], side="right")
            for hit, end in zip(hits.tolist(), ends.tolist(), strict=True):
                start = int(starts[hit])
                places.append(np.full(end - start, order[hit]))
                found.append(values[start:end])
        return np.concatenate(places), np.concatenate(found)

    def _sort_in(self) -> None:
        if not self._fresh:
            return
        keys = np.concatenate([keys for keys, _ in self._fresh])
        values = np.concatenate([values for _, values in self._fresh])
        self._fresh = []
        order = np.argsort(keys, kind="stable")
        self._runs.append((keys[order], values[order]))
        while len(self._runs) > 1 and len(self._runs[-2][0]) <= _EVENNESS * len(self._runs[-1][0]):
            self._merge()

    def _merge(self) -> None:
        """Merge the last two runs, the keys first and then the values, to need less at once."""
        keys, values = self._runs.pop()
        into_keys, into_values = self._runs.pop()
        places = np.searchsorted(into_keys, keys, side="right")
        places += np.arange(len(keys))
        from_last = np.zeros(len(keys) + len(into_keys), dtype=np.bool_)
        from_last[places] = True
        into_keys = _interleaved(into_keys, keys, from_last)
        del keys
        self._runs.append((into_keys, _interleaved(into_values, values, from_last)))


def _interleaved(first: Words, second: Words, from_second: NDArray[np.bool_]) -> Words:
    both = np.empty(len(from_second), dtype=np.uint64)
    both[from_second] = second
    both[~from_second] = first
    return both
