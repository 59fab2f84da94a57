"""
How sure an audit is: one level for every statistical decision, and bounds on probabilities.

An audit that passes honest code must do so nearly always: with probability 1 - FAMILY_LEVEL a run.
Each decision errs with TEST_LEVEL at most, and a run makes no more than MOST_TESTS of them, so that
by the union bound the run errs with FAMILY_LEVEL at most, whatever depends on what.
"""

import math
from typing import Final

from scipy import stats

FAMILY_LEVEL: Final = 1e-4
MOST_TESTS: Final = 2000
TEST_LEVEL: Final = FAMILY_LEVEL / MOST_TESTS
CONFIDENCE: Final = 1 - TEST_LEVEL
"""Of every bound that is measured."""


def probability_lower(successes: int, trials: int, level: float = TEST_LEVEL) -> float:
    """Bound a probability from below by its Clopper-Pearson bound [CP34]; errs with `level`."""
    if successes == 0:
        return 0.0
    return float(stats.beta.ppf(level, successes, trials - successes + 1))


def probability_upper(successes: int, trials: int, level: float = TEST_LEVEL) -> float:
    """Bound a probability from above, likewise."""
    return 1.0 - probability_lower(trials - successes, trials, level)


def ceiling(trials: int, delta: float, level: float = TEST_LEVEL) -> float:
    """
    Give the ε that a distinguisher which is never wrong would be shown to reach.

    Args:
        trials: In each of the two worlds.
        delta: At which ε is bounded.
        level: Shared by the two bounds.
    """
    hits = probability_lower(trials, trials, level / 2)
    misses = probability_upper(0, trials, level / 2)
    return max(0.0, math.log(max(hits - delta, 1e-300)) - math.log(misses))
