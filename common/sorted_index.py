"""
A compact index of many millions of keys: sorted runs of numbers, merged as they grow.

A Python set of 16-byte strings takes about 100 bytes per entry, and a B-tree on disk writes a page
for each random key. This index takes 16 bytes per entry, in two arrays per run.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_RUN_RATIO: Final = 2
"""A run is merged with new entries unless it is more than this many times as long."""
_SORT_AT: Final = 2**18
"""Number of unsorted entries at which `add` sorts them; fewer are sorted by the next look-up."""
_MAX_RECENT: Final = 2**12
"""Number of keys in the dictionary at which its entries are queued for sorting."""
_MAX_SMALL_ADDITION: Final = 64
"""Maximum size of an addition that goes to the dictionary."""


class SortedIndex:
    """
    Maps 64-bit keys to 64-bit values; a key may have several.

    Keys should be uniform, such as the first half of a keyed hash, so that hardly any two are
    equal. A look-up is a binary search in each run; n entries, added b at a time, form about
    log2(n / b) runs. With ten million entries, looking up many keys takes about 1 µs per key.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[Words, Words]] = []
        self._fresh: list[tuple[Words, Words]] = []
        self._recent: dict[int, list[int]] = {}

    def add(self, keys: Words, values: Words) -> None:
        """
        Add entries: keys and values of shape (n,) each.

        Small additions go to a dictionary. Others are sorted at the next look-up, or once _SORT_AT
        entries wait.
        """
        if len(keys) > _MAX_SMALL_ADDITION:
            self._fresh.append((keys, values))
        else:
            for key, value in zip(keys.tolist(), values.tolist(), strict=True):
                self._recent.setdefault(key, []).append(value)
        if len(self._recent) >= _MAX_RECENT:
            pairs = [(key, value) for key, several in self._recent.items() for value in several]
            keys, values = np.array(pairs, dtype=np.uint64).T
            self._fresh.append((keys, values))
            self._recent = {}
        if sum(len(fresh) for fresh, _ in self._fresh) >= _SORT_AT:
            self._sort_in()

    def find(self, keys: Words) -> tuple[NDArray[np.intp], Words]:
        """
        Find every entry whose key is in `keys`, an array of shape (n,).

        Returns:
            Two arrays of shape (m,), one element per entry: the key's index in `keys`; the value.
        """
        self._sort_in()
        order = keys.argsort()
        wanted = keys[order]  # searching in ascending order uses the cache
        places: list[NDArray[np.intp]] = [np.empty(0, dtype=np.intp)]
        found: list[Words] = [np.empty(0, dtype=np.uint64)]
        for held, values in self._runs:
            starts = held.searchsorted(wanted)
            hits = (held[np.minimum(starts, len(held) - 1)] == wanted).nonzero()[0]
            for hit in hits.tolist():
                start = int(starts[hit])
                end = int(held.searchsorted(wanted[hit], side="right"))
                places.append(np.full(end - start, order[hit]))
                found.append(values[start:end])
        for place, key in enumerate(keys.tolist()) if self._recent else ():
            if key in self._recent:
                recent = self._recent[key]
                places.append(np.full(len(recent), place))
                found.append(np.array(recent, dtype=np.uint64))
        return np.concatenate(places), np.concatenate(found)

    def _sort_in(self) -> None:
        """Merge the waiting entries, and runs that are not much longer, into one run."""
        if not self._fresh:
            return
        merged, self._fresh = self._fresh, []
        size = sum(len(keys) for keys, _ in merged)
        while self._runs and len(self._runs[-1][0]) <= _RUN_RATIO * size:
            merged.insert(0, self._runs.pop())
            size += len(merged[0][0])
        values = np.concatenate([values for _, values in merged])
        keys = np.concatenate([keys for keys, _ in merged])
        merged.clear()  # to save memory
        order = keys.argsort(kind="stable")  # merges sorted runs in linear time
        self._runs.append((keys[order], values[order]))
