"""
The shuffler's permutation against numpy's own, for ten million reports.

Both are Fisher-Yates over the same random reads; the difference is ChaCha20 for PCG64. Run as
`python -m tests.benchmarks.permuting`.
"""

import numpy as np

from common.crypto.randomness import secure_generator
from shuffler.permutation import permute
from tests.benchmarks.measure import best_of, line

_DRAWN = 10_000_000
_MOVED = 2_000_000
_RUNS = 5


def main() -> None:
    """Measure drawing an order, and moving sealed reports into it."""
    ours, theirs = secure_generator(), np.random.default_rng(1)
    numpy_draw = best_of(_RUNS, lambda: theirs.permutation(_DRAWN))
    secure_draw = best_of(_RUNS, lambda: ours.permutation(_DRAWN))
    line("permuting", reports=_DRAWN, numpy_s=numpy_draw, over_numpy=secure_draw / numpy_draw)
    reports = theirs.integers(0, 256, (_MOVED, 60), dtype=np.uint8)
    numpy_move = best_of(_RUNS, lambda: reports[theirs.permutation(_MOVED)])
    secure_move = best_of(_RUNS, lambda: permute(reports, ours))
    line(
        "permuting with 60-byte reports",
        reports=_MOVED,
        numpy_s=numpy_move,
        over_numpy=secure_move / numpy_move,
    )


if __name__ == "__main__":
    main()
