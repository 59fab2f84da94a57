"""Faults of the permutation."""

import random
from contextlib import AbstractContextManager
from typing import Final

import numpy as np

from deploy.audit.faults import planting
from shuffler.permutation import Reports, permute

_CHUNK: Final = 1000
_SMALL_CHUNK: Final = 10


def identity() -> AbstractContextManager[None]:
    """Plant no permutation at all."""

    def other(reports: Reports, rng: np.random.Generator) -> Reports:
        rng.permutation(len(reports))  # drawn, and not used
        return reports.copy()

    return planting.function(permute, other)


def biased() -> AbstractContextManager[None]:
    """Plant the naive shuffle, whose n^n outcomes cannot spread evenly over n! orders."""

    def other(reports: Reports, rng: np.random.Generator) -> Reports:
        order = np.arange(len(reports))
        for place, chosen in enumerate(rng.integers(0, max(1, len(order)), size=len(order))):
            order[[place, chosen]] = order[[chosen, place]]
        return reports[order]

    return planting.function(permute, other)


def within_chunks() -> AbstractContextManager[None]:
    """Plant a shuffler that does not wait for the whole batch."""

    def other(reports: Reports, rng: np.random.Generator) -> Reports:
        starts = range(0, max(1, len(reports)), _CHUNK)
        parts = [reports[start : start + _CHUNK] for start in starts]
        return np.concatenate([part[rng.permutation(len(part))] for part in parts])

    return planting.function(permute, other)


def whole_chunks() -> AbstractContextManager[None]:
    """Plant a shuffler that moves chunks, not reports."""

    def other(reports: Reports, rng: np.random.Generator) -> Reports:
        if len(reports) <= _SMALL_CHUNK:
            return reports[rng.permutation(len(reports))]
        parts = np.array_split(reports, -(-len(reports) // _SMALL_CHUNK))
        rng.permutation(len(reports))  # as many bits as an honest one takes
        return np.concatenate([parts[place] for place in rng.permutation(len(parts))])

    return planting.function(permute, other)


def mersenne_twister() -> AbstractContextManager[None]:
    """Plant a generator that can be predicted from what it drew [MN98]."""

    def other(reports: Reports, rng: np.random.Generator) -> Reports:
        twister = np.random.Generator(np.random.MT19937(int(rng.integers(2**32))))
        return reports[twister.permutation(len(reports))]

    return planting.function(permute, other)


def python_random() -> AbstractContextManager[None]:
    """Plant a generator that no composition root hands in."""

    def other(reports: Reports, rng: np.random.Generator) -> Reports:
        del rng
        order = list(range(len(reports)))
        random.shuffle(order)
        return reports[np.array(order, dtype=np.int64)]

    return planting.function(permute, other)
