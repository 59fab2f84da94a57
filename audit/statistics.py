"""
The statistics of an audit: its significance level, confidence bounds, and p-values.

A run raises a false alarm with probability at most FAMILY_LEVEL by the union bound: it makes at
most MAX_TESTS, each of which errs with probability at most TEST_LEVEL. Detecting a relative error
of 1% in a probability p takes about 700,000·(1 - p)/p draws. A p-value is None if there are too few
draws for the test to fail.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Numbers = NDArray[np.float64] | float

FAMILY_LEVEL: Final = 1e-4
MAX_TESTS: Final = 2000
TEST_LEVEL: Final = FAMILY_LEVEL / MAX_TESTS
CONFIDENCE: Final = 1 - TEST_LEVEL
"""Confidence of every measured bound."""


def probability_lower(successes: Numbers, trials: int, level: float = TEST_LEVEL) -> Numbers:
    """Return Clopper-Pearson lower bounds [CP34], each wrong with probability at most `level`."""
    return np.asarray(stats.beta.ppf(level, np.maximum(successes, 1e-9), trials - successes + 1))


def probability_upper(successes: Numbers, trials: int, level: float = TEST_LEVEL) -> Numbers:
    """Return Clopper-Pearson upper bounds [CP34], each wrong with probability at most `level`."""
    return np.asarray(1 - probability_lower(trials - successes, trials, level))


def epsilon_bounds(counts: NDArray[np.float64], trials: int, delta: float) -> Numbers:
    """Return lower bounds on ε at δ from right guesses, counts[0], and wrong ones, counts[1]."""
    true = probability_lower(counts[0], trials, TEST_LEVEL / 2) - delta
    false = probability_upper(counts[1], trials, TEST_LEVEL / 2)
    return np.asarray(np.log(np.maximum(true, 1e-300) / false))


def delta_bounds(counts: NDArray[np.float64], trials: int, epsilon: float) -> Numbers:
    """Return lower bounds on δ at ε from right guesses, counts[0], and wrong ones, counts[1]."""
    true = probability_lower(counts[0], trials, TEST_LEVEL / 2)
    return np.asarray(true - np.exp(epsilon) * probability_upper(counts[1], trials, TEST_LEVEL / 2))


def ceiling(trials: int, delta: float) -> float:
    """Return the lower bound on ε at δ that a perfect attack reaches in this number of trials."""
    return max(0.0, float(epsilon_bounds(np.array([trials, 0.0]), trials, delta)))


_MIN_EXPECTED: Final = 100.0
"""Minimum expected draws of a cell; smaller neighbouring cells are merged."""
_CHI_SQUARE_CELLS: Final = 20
"""Minimum number of cells for a χ² test beside the exact test of each cell."""
_CHI_SQUARE_FACTOR: Final = 2.0
"""Factor on χ² p-values, which are too small in the far tail: with 20 cells of 100 expected draws,
the true probability of exceeding the 5e-8 quantile is 9e-8."""


def p_binomial(successes: int, trials: int, chance: float) -> float:
    """Test a count by the exact binomial distribution, two-sided."""
    return _both_sides(stats.binom(trials, chance), successes)


def p_poisson(number: int, mean: float) -> float:
    """Test a count of rare events by the Poisson distribution, two-sided."""
    return _both_sides(stats.poisson(mean), number)


def _both_sides(distribution: Any, number: int) -> float:  # noqa: ANN401  # scipy has no public class
    low, high = float(distribution.cdf(number)), float(distribution.sf(number - 1))
    return min(1.0, 2 * min(low, high))


def p_shares(successes: Sequence[int], trials: int, chance: float) -> float:
    """Test several counts of successes in `trials` trials each, and their sum."""
    total = p_binomial(sum(successes), trials * len(successes), chance)
    return joint_p([total, joint_p([p_binomial(number, trials, chance) for number in successes])])


def joint_p(levels: Sequence[float]) -> float:
    """Return the joint p-value of dependent tests (Bonferroni)."""
    return min(1.0, len(levels) * min(levels))


def p_cells(observed: NDArray[np.int64], chances: NDArray[np.float64]) -> float | None:
    """
    Test counts of draws per cell: each exactly, and many cells also by χ² [Pea00].

    A cell of probability 0 must be empty. Neighbours are merged until each expects enough draws.
    """
    if observed[chances == 0].any():
        return 0.0
    possible, total = chances > 0, int(observed.sum())
    ends, expected = [0], 0.0
    for place, share in enumerate((chances[possible] / chances.sum()).tolist(), start=1):
        expected += share * total
        if expected >= _MIN_EXPECTED:
            ends.append(place)
            expected = 0.0
    starts = ends[:-1] or [0]  # the remainder joins the last cell
    seen = np.add.reduceat(observed[possible], starts)
    shares = np.add.reduceat(chances[possible], starts) / chances.sum()
    if len(shares) < 2:  # noqa: PLR2004  # a single cell cannot fail
        return None
    low, high = stats.binom.cdf(seen, total, shares), stats.binom.sf(seen - 1, total, shares)
    levels = [len(shares) * 2 * float(np.minimum(low, high).min())]
    if len(shares) >= _CHI_SQUARE_CELLS:
        levels.append(_CHI_SQUARE_FACTOR * float(stats.chisquare(seen, shares * total).pvalue))
    return joint_p(levels)


Places = NDArray[np.int64]
"""Arrival index of each report, in delivery order; shape (n,)."""
_BLOCK_CELL: Final = 50
"""Minimum expected reports in a cell of the table of blocks."""
_MAX_BLOCKS: Final = 10


def p_rank(before: Places) -> float:
    """Test Kendall's rank correlation of delivery order with arrival order."""
    if len(before) < 2:  # noqa: PLR2004  # a single report has no rank correlation
        return 1.0
    return float(stats.kendalltau(np.arange(len(before)), before).pvalue)


def p_successions(before: Places) -> float:
    """Test the number of delivered neighbours that arrived as neighbours; the mean is 2(N-1)/N."""
    number = int((np.abs(np.diff(_ranks(before))) == 1).sum())
    return p_poisson(number, 2 * max(1, len(before) - 1) / max(1, len(before)))


def p_neighbours(owners: Places) -> float:
    """Test the number of neighbours with the same owner; `owners` has the owner of each report."""
    n = len(owners)
    _, counts = np.unique(owners, return_counts=True)
    mean = float((counts * (counts - 1)).sum()) / max(1, n)
    same = int((np.diff(owners) == 0).sum())
    return p_poisson(same, mean) if mean else float(same == 0)


def p_blocks(before: Places, most: int = _MAX_BLOCKS) -> float | None:
    """
    Test by χ² whether each block of the arrivals spreads evenly over the blocks of the delivery.

    The margins of the b x b table are fixed, so each count is hypergeometric: its variance is
    (1 - 1/b)²·N/(N-1) times its mean. There are (b-1)² degrees of freedom.
    """
    n = len(before)
    blocks = min(most, int(np.sqrt(n / _BLOCK_CELL)))
    if blocks < 2:  # noqa: PLR2004  # a single block cannot fail
        return None
    table = np.zeros((blocks, blocks), dtype=np.int64)
    np.add.at(table, (_ranks(before) * blocks // n, np.arange(n) * blocks // n), 1)
    expected = n / blocks**2
    statistic = float(((table - expected) ** 2 / expected).sum()) * (n - 1) / n
    return min(1.0, _CHI_SQUARE_FACTOR * float(stats.chi2.sf(statistic, (blocks - 1) ** 2)))


def p_rank_sum(marked: NDArray[np.bool_]) -> float:
    """Test by rank sum whether marked reports are earlier or later than the others."""
    if marked.all() or not marked.any():
        return 1.0
    places = np.flatnonzero(marked), np.flatnonzero(~marked)
    return float(stats.mannwhitneyu(*places, method="asymptotic").pvalue)


def p_group_order(groups: Sequence[Places]) -> float:
    """Test whether groups of reports, in disk order, follow the order of arrival or its reverse."""
    ranks = _ranks(np.array([float(group.mean()) for group in groups if len(group)]))
    return min(1.0, 2 * min(p_rank(ranks), p_successions(ranks)))


def _ranks(places: NDArray[Any]) -> Places:
    return np.argsort(np.argsort(places, kind="stable"), kind="stable").astype(np.int64)
