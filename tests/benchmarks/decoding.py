"""
Decoding two million reports over 41,270 items, against one `np.bincount` pass over their cells.

The limit is memory bandwidth: one pass reads each report once. Run as
`python -m tests.benchmarks.decoding`.
"""

import numpy as np

from common.mechanisms.hashing.local_hashing import LocalHashing, family_for
from common.mechanisms.weights import ResponseWeights
from tests.benchmarks.measure import best_of, line

_ITEMS = 41_270
_REPORTS = 2_000_000
_RUNS = 7


def main() -> None:
    """Measure for small, middle and large numbers of buckets."""
    rng = np.random.default_rng(1)
    for buckets in (3, 5, 17, 53, 101, 211, 1009):
        mechanism = LocalHashing(
            _ITEMS, family_for(_ITEMS, buckets), ResponseWeights.for_epsilon(4.0), b"n" * 32
        )
        reports = mechanism.dummies(_REPORTS, rng)
        cells = mechanism.tally(reports)
        mechanism.support_counts(cells)
        spread = rng.choice(len(cells), _REPORTS, p=cells / cells.sum())
        bincount = best_of(_RUNS, lambda: np.bincount(spread, minlength=len(cells)))  # noqa: B023
        histogram = best_of(_RUNS, lambda: mechanism.tally(reports))  # noqa: B023
        transform = best_of(_RUNS, lambda: mechanism.support_counts(cells))  # noqa: B023
        line(
            "decoding",
            buckets=buckets,
            digits=mechanism.family.t,
            reports=_REPORTS,
            items=_ITEMS,
            bincount_ms=1e3 * bincount,
            histogram_over_bincount=histogram / bincount,
            transform_over_histogram=transform / histogram,
        )


if __name__ == "__main__":
    main()
