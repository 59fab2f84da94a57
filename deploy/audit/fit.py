"""
Whether what the running code draws has the law that it should have: p-values.

Each is the probability, if the law is right, of something at least as far off. A law that is off
by a hundredth is seen from some hundred thousand draws on; what no test here sees is said by none.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

_LEAST_EXPECTED: Final = 100.0
"""Cells of fewer expected draws are put together: below that, χ² is not a good law so far out."""


def of_chance(successes: int, trials: int, chance: float) -> float:
    """Test a probability by its exact binomial law, on both sides."""
    low = float(stats.binom.cdf(successes, trials, chance))
    high = float(stats.binom.sf(successes - 1, trials, chance))
    return min(1.0, 2 * min(low, high))


def of_shares(successes: Sequence[int], trials: int, chance: float) -> float:
    """Test several counts, each of so many trials of one chance: how they vary, and their sum."""
    seen = np.asarray(successes, dtype=np.float64)
    variance = trials * chance * (1 - chance)
    if variance < _LEAST_EXPECTED / 4 or len(seen) == 1:
        return of_chance(int(seen.sum()), trials * len(seen), chance)
    statistic = float(((seen - trials * chance) ** 2).sum() / variance)
    spread = float(
        2 * min(stats.chi2.sf(statistic, len(seen)), stats.chi2.cdf(statistic, len(seen)))
    )
    return min(1.0, 2 * min(spread, of_chance(int(seen.sum()), trials * len(seen), chance)))


def of_number(number: int, mean: float) -> float:
    """Test how often something rare happened, by the Poisson law of its number, on both sides."""
    low, high = float(stats.poisson.cdf(number, mean)), float(stats.poisson.sf(number - 1, mean))
    return min(1.0, 2 * min(low, high))


def of_cells(observed: NDArray[np.int64], chances: NDArray[np.float64]) -> float:
    """
    Test how draws fall into cells: exactly for two, by χ² for more [Pea00].

    Args:
        observed: Draws by cell, shape (cells,).
        chances: What they should be in proportion to; where one is 0, nothing may fall.
    """
    if observed[chances == 0].any():
        return 0.0
    total = int(observed.sum())
    seen, law = observed[chances > 0], chances[chances > 0] / chances.sum()
    order = np.argsort(law)[::-1]
    seen, law = seen[order], law[order]
    few = int(np.searchsorted(-law * total, -_LEAST_EXPECTED, side="right"))
    if few < len(law):
        seen = np.append(seen[:few], seen[few:].sum())
        law = np.append(law[:few], law[few:].sum())
        if law[-1] * total < _LEAST_EXPECTED and few:
            seen = np.append(seen[: few - 1], seen[few - 1 :].sum())
            law = np.append(law[: few - 1], law[few - 1 :].sum())
    if len(law) < 2:  # noqa: PLR2004  # one cell holds everything, whatever the law
        return 1.0
    if len(law) == 2:  # noqa: PLR2004
        return of_chance(int(seen[0]), total, float(law[0]))
    return float(stats.chisquare(seen, law / law.sum() * total).pvalue)


def of_two_samples(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """Test whether two samples, counted by cell, have one law: χ² of a table of two rows."""
    both = one + other
    share = one.sum() / max(1, both.sum())
    order = np.argsort(both)[::-1]
    kept = order[both[order] * min(share, 1 - share) >= _LEAST_EXPECTED]
    rest = np.setdiff1d(order, kept)
    table = np.array(
        [[*sample[kept], sample[rest].sum()] for sample in (one, other)], dtype=np.int64
    )
    table = table[:, table.sum(axis=0) > 0]
    if table.shape[1] < 2:  # noqa: PLR2004  # one cell holds everything
        return 1.0
    if table[:, -1].sum() * min(share, 1 - share) < _LEAST_EXPECTED:
        table[:, -2] += table[:, -1]
        table = table[:, :-1]
    if table.shape[1] < 2:  # noqa: PLR2004
        return 1.0
    return float(stats.chi2_contingency(table, correction=False).pvalue)


def of_table(counts: NDArray[np.int64]) -> float:
    """
    Test a table whose row and column sums are fixed and which should be even: positions of orders.

    Args:
        counts: Shape (n, n): how often what came at one place went to another.

    Each of n objects lands once in each order, so that the table has (n-1)² degrees of freedom, and
    its entries vary by (n-1)/n less than a binomial's [Knuth, TAOCP 2, 3.3.2].
    """
    n = len(counts)
    expected = counts.sum() / n**2
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(statistic * (n - 1) / n, (n - 1) ** 2))


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
    return float(stats.chi2.sf(statistic, (blocks - 1) ** 2))


def of_normal(value: float, mean: float, deviation: float) -> float:
    """Test a sum of very many draws by the normal law, on both sides."""
    return float(2 * stats.norm.sf(abs(value - mean) / deviation))
