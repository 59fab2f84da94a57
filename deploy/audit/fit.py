"""
Whether what the running code draws has the law that it should have: p-values.

Each is at least the probability, if the law is right, of something as far off. A chance p that is
off by a hundredth of itself is seen from some 700,000·(1 - p)/p draws on; what no test here sees is
said by none. A test is None where there are too few draws for it to fail whatever they are.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

_LEAST_EXPECTED: Final = 100.0
"""Draws that a cell must expect: neighbours of fewer are put together."""
_MANY: Final = 20
"""Cells from which χ² is tested beside each cell's own exact law."""
_TOO_SURE: Final = 2.0
"""By what χ² is multiplied so far out: of 20 cells of 100 expected draws each, the exact chance of
passing its 5e-8 quantile is 1.8 times that, of 800 of 50 each 1.2 times."""


def of_chance(successes: int, trials: int, chance: float) -> float:
    """Test a probability by its exact binomial law, on both sides."""
    low = float(stats.binom.cdf(successes, trials, chance))
    high = float(stats.binom.sf(successes - 1, trials, chance))
    return min(1.0, 2 * min(low, high))


def of_shares(successes: Sequence[int], trials: int, chance: float) -> float:
    """Test several counts, each of so many trials of one chance: each, how they vary, their sum."""
    seen = np.asarray(successes, dtype=np.int64)
    levels = [
        of_chance(int(seen.sum()), trials * len(seen), chance),
        len(seen) * min(of_chance(int(one), trials, chance) for one in seen),
    ]
    variance = trials * chance * (1 - chance)
    if variance >= _LEAST_EXPECTED and len(seen) >= _MANY:
        statistic = float(((seen - trials * chance) ** 2).sum() / variance)
        law = stats.chi2(len(seen))
        levels.append(_TOO_SURE * 2 * float(min(law.sf(statistic), law.cdf(statistic))))
    return _any_of(levels)


def _any_of(levels: Sequence[float]) -> float:
    """Give the p-value of several tests together, whatever depends on what."""
    return min(1.0, len(levels) * min(levels))


def of_sum(value: float, mean: float, deviation: float, step: float) -> float:
    """
    Test a sum of independent parts, on both sides, by Bennett's inequality [Ben62].

    Args:
        value: The sum.
        mean: Of it.
        deviation: Its standard deviation.
        step: The most by which one part is off its own mean.

    It holds for sums of any size, however unlike their parts are; for sums of many it costs half a
    standard deviation of what the normal law would see.
    """
    off = abs(value - mean)
    if deviation == 0:
        return float(off == 0)
    ratio = step * off / deviation**2
    bulk = (1 + ratio) * math.log1p(ratio) - ratio
    return min(1.0, 2 * math.exp(-((deviation / step) ** 2) * bulk))


def of_squares(standardized: Sequence[float]) -> float:
    """
    Test how sums of many draws vary that were divided by their standard deviations: χ², both sides.

    A count of 50 draws or more is near enough to a normal number.
    """
    law, total = stats.chi2(len(standardized)), float(np.square(standardized).sum())
    return min(1.0, _TOO_SURE * 2 * float(min(law.sf(total), law.cdf(total))))


def of_number(number: int, mean: float) -> float:
    """Test how often something rare happened, by the Poisson law of its number, on both sides."""
    low, high = float(stats.poisson.cdf(number, mean)), float(stats.poisson.sf(number - 1, mean))
    return min(1.0, 2 * min(low, high))


def of_cells(observed: NDArray[np.int64], chances: NDArray[np.float64]) -> float | None:
    """
    Test how draws fall into cells: each by its exact law, and many by χ² as well [Pea00].

    Args:
        observed: Draws by cell, shape (cells,).
        chances: What they should be in proportion to; where one is 0, nothing may fall.

    Returns:
        None where there are too few draws for two cells.
    """
    if observed[chances == 0].any():
        return 0.0
    total = int(observed.sum())
    seen, law = _pooled(observed[chances > 0], chances[chances > 0] / chances.sum(), total)
    if len(law) < 2:  # noqa: PLR2004  # one cell holds everything, whatever the law
        return None
    low, high = stats.binom.cdf(seen, total, law), stats.binom.sf(seen - 1, total, law)
    levels = [len(law) * 2 * float(np.minimum(low, high).min())]
    if len(law) >= _MANY:
        levels.append(_TOO_SURE * float(stats.chisquare(seen, law * total).pvalue))
    return _any_of(levels)


def _pooled(
    seen: NDArray[np.int64], law: NDArray[np.float64], total: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Put neighbouring cells together until each expects enough draws."""
    ends, held = list[int](), 0.0
    for place, chance in enumerate(law.tolist(), start=1):
        held += chance * total
        if held >= _LEAST_EXPECTED:
            ends.append(place)
            held = 0.0
    starts = [0, *ends[:-1]] if ends else [0]  # what is left over goes to the last
    parts = np.add.reduceat(law, starts)
    return np.add.reduceat(seen, starts), parts / parts.sum()


def of_two_samples(one: NDArray[np.int64], other: NDArray[np.int64]) -> float | None:
    """
    Test whether two samples, counted by cell, have one law: each cell's share, hypergeometric.

    Returns:
        None where one cell holds everything.
    """
    both = one + other
    drawn, first = int(both.sum()), int(one.sum())
    cells = np.flatnonzero(both)
    if len(cells) < 2 or not 0 < first < drawn:  # noqa: PLR2004  # one cell, or one sample
        return None
    low = stats.hypergeom.cdf(one[cells], drawn, both[cells], first)
    high = stats.hypergeom.sf(one[cells] - 1, drawn, both[cells], first)
    return min(1.0, len(cells) * 2 * float(np.minimum(low, high).min()))


def of_table(counts: NDArray[np.int64]) -> float:
    """
    Test a table whose row and column sums are fixed and which should be even: positions of orders.

    Args:
        counts: Shape (n, n): how often what came at one place went to another.

    Of m orders the entries vary by m(1/n)(1-1/n), a binomial's. Rows and columns of a permutation
    matrix add up to 1, which leaves (n-1)² dimensions; what is left of it there has a covariance
    that no relabelling of rows or columns changes, so that it is the same in all of them: its trace
    m(n-1) is spread over (n-1)², m/(n-1) in each. So Σ(entry - m/n)²·(n-1)/m is χ² of (n-1)².
    """
    n = len(counts)
    expected = counts.sum() / n**2
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return min(1.0, _TOO_SURE * float(stats.chi2.sf(statistic * (n - 1) / n, (n - 1) ** 2)))


def of_blocks(counts: NDArray[np.int64]) -> float:
    """
    Test how blocks of one order fall into blocks of another, by χ²; all sums are fixed.

    Args:
        counts: Shape (b, b), of n objects in all. Entries are hypergeometric, whose variance is
            (1 - 1/b)²·n/(n-1) times their mean; there are (b-1)² degrees of freedom.
    """
    blocks, n = len(counts), int(counts.sum())
    expected = n / blocks**2
    statistic = float(((counts - expected) ** 2 / expected).sum()) * (n - 1) / n
    return min(1.0, _TOO_SURE * float(stats.chi2.sf(statistic, (blocks - 1) ** 2)))


def of_normal(value: float, mean: float, deviation: float) -> float:
    """Test a sum of very many draws by the normal law, on both sides."""
    return float(2 * stats.norm.sf(abs(value - mean) / deviation))
