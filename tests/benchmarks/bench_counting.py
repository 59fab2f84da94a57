"""Decoding, permuting and inclusion proofs of large batches, against the bare operations."""

from typing import Final

import numpy as np
import pytest

from shuffledp.common.crypto.randomness import secure_generator
from shuffledp.common.mechanisms.hashing.local_hashing import LocalHashing, family_for
from shuffledp.common.mechanisms.weights import ResponseWeights
from shuffledp.common.messages.inclusion_proof import (
    SALT_BYTES,
    bits_for,
    bucket_hashes,
    distinct_rows,
    range_count,
    salted_leaves,
    split_ranges,
)
from shuffledp.shuffler.permutation import permute
from tests.benchmarks.conftest import Best, Line, best_of

_ITEMS: Final = 41_270
_DECODED: Final = 2_000_000
_LEAVES: Final = 1_000_000
_MOVED: Final = 2_000_000
_SIZE: Final = 60
"""Bytes of a sealed report."""


@pytest.mark.parametrize("buckets", [3, 5, 17, 53, 101, 211, 1009])
def test_decoding(buckets: int, best: Best, line: Line) -> None:
    """Two million reports over 41,270 items; one pass of `np.bincount` reads each report once."""
    rng, weights = np.random.default_rng(1), ResponseWeights.for_epsilon(4.0)
    mechanism = LocalHashing(_ITEMS, family_for(_ITEMS, buckets), weights, b"n" * 32)
    reports = mechanism.dummies(_DECODED, rng)
    cells = mechanism.tally(reports)
    mechanism.support_counts(cells)
    spread = rng.choice(len(cells), _DECODED, p=cells / cells.sum())
    bincount = best_of(7, lambda: np.bincount(spread, minlength=len(cells)))
    histogram = best(7, lambda: mechanism.tally(reports))
    transform = best_of(7, lambda: mechanism.support_counts(cells))
    line(
        "decoding",
        buckets=buckets,
        digits=mechanism.family.t,
        reports=_DECODED,
        items=_ITEMS,
        bincount_ms=1e3 * bincount,
        histogram_over_bincount=histogram / bincount,
        transform_over_histogram=transform / histogram,
    )


def test_permuting(best: Best, line: Line) -> None:
    """Sealed reports moved into a drawn order."""
    ours, numpy_rng = secure_generator(), np.random.default_rng(1)
    reports = numpy_rng.integers(0, 256, (_MOVED, _SIZE), dtype=np.uint8)
    numpy_s = best_of(5, lambda: reports[numpy_rng.permutation(_MOVED)])
    moved = best(5, lambda: permute(reports, ours))
    name = "permuting with 60-byte reports"
    line(name, reports=_MOVED, numpy_s=numpy_s, over_numpy=moved / numpy_s)


def test_prefix_tree(best: Best, line: Line) -> None:
    """The salted tree over a million reports, by ranges as in a large batch."""
    leaves, n_ranges = np.random.default_rng(1).bytes(32 * _LEAVES), range_count(_LEAVES)
    salt = best_of(3, lambda: salted_leaves(leaves, bytes(SALT_BYTES)))
    rows = salted_leaves(leaves, bytes(SALT_BYTES))
    split = best_of(3, lambda: split_ranges(rows, n_ranges))
    ranges = split_ranges(rows, n_ranges)
    sort = best_of(3, lambda: [distinct_rows(found) for found in ranges])
    bits = bits_for(_LEAVES)
    buckets = (1 << bits) // n_ranges
    hashed = best(3, lambda: [bucket_hashes(found, buckets, bits) for found in ranges])
    line("prefix tree", reports=_LEAVES, salt_s=salt, split_s=split, sort_s=sort, hash_s=hashed)
