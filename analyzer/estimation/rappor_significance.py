"""
Whether anybody holds a candidate: p-values over what its hash might have been.

That somebody holds a string shows in that the very bits it hashes to are fuller than what all
others explain. If nobody holds it, those bits are as good as drawn by lot, independently of all
reports: that is what a hash does. So the sum of what is left at its bits is compared with the
sums that h random bits a cohort would have had, a law that is known exactly [CFJL18].

Nothing else is assumed: neither that all strings are on the list, nor how noise falls, nor that
candidates were not chosen by these data, as long as what is left was made without the candidate's
own bits.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from analyzer.estimation.rappor_evidence import Matrix
from common.mechanisms.randomizer import Counts, Vector

_LIKELY: Final = 1.0
"""Standard deviations up to which the normal law will do: nothing is detected there."""
_FEW_DRAWS: Final = 8
"""Hashes in all cohorts together, below which the saddlepoint is no approximation."""
_FAR: Final = 1e6


def hash_p_value(left: Matrix, positions: NDArray[np.intp], chances: Vector) -> float:
    """
    Give the chance that random bits would have had as much left as a candidate's have.

    By the saddlepoint approximation [LR80], or by Chernoff's bound where there are few hashes.

    Args:
        left: What the other candidates leave, by cohort and bit, shape (c, k).
        positions: The candidate's bits, shape (c, h).
        chances: Of one hash for each bit, shape (k,).

    Returns:
        0 .. 1; 0 below the smallest float.

    Cost: some 20 passes over c·k numbers where the sum is large, one where it is not.
    """
    hashes = positions.shape[1]
    apart = left - (left @ chances)[:, None]
    deviation = math.sqrt(hashes * float((apart**2 @ chances).sum()))
    if deviation == 0:
        return 1.0
    apart = apart / deviation
    found = float(np.take_along_axis(apart, positions, axis=1).sum())
    if found <= _LIKELY:
        return float(stats.norm.sf(found))
    return _upper_tail(apart, chances, hashes, found)


def _upper_tail(apart: Matrix, chances: Vector, hashes: int, found: float) -> float:
    """Give P(sum of h draws a cohort ≥ found), for sums of mean 0 and variance 1."""

    def moments(tilt: float) -> tuple[float, float, float]:
        exponents = tilt * apart
        top = exponents.max(axis=1, keepdims=True)
        law = chances * np.exp(exponents - top)
        total = law.sum(axis=1, keepdims=True)
        law = law / total
        means = (law * apart).sum(axis=1)
        spreads = (law * apart**2).sum(axis=1) - means**2
        log = float((np.log(total) + top).sum())
        return hashes * log, hashes * float(means.sum()), hashes * float(spreads.sum())

    most = hashes * float(apart.max(axis=1).sum())
    high = 1.0
    while moments(high)[1] < found and high < _FAR:
        high *= 2
    if found >= most or high >= _FAR:
        # All draws are the largest: their own chance, with ties.
        ties = np.isclose(apart, apart.max(axis=1, keepdims=True))
        return float(np.exp(hashes * np.log(ties @ chances).sum()))
    tilt = float(optimize.brentq(lambda at: moments(at)[1] - found, 0.0, high))
    log, _, spread = moments(tilt)
    exponent = log - tilt * found
    chernoff = math.exp(min(0.0, exponent))
    if hashes * len(apart) < _FEW_DRAWS:
        return chernoff
    root = math.sqrt(max(0.0, -2 * exponent))
    slope = tilt * math.sqrt(spread)
    if root == 0 or slope == 0:
        return chernoff
    # sf(w) + φ(w)(1/u - 1/w), and φ(w) is Chernoff's bound over √2π.
    scaled = float(special.erfcx(root / math.sqrt(2))) / 2
    near = chernoff * (scaled + (1 / slope - 1 / root) / math.sqrt(2 * math.pi))
    return min(chernoff, max(0.0, near))


def noise_p_values(shown: Counts, n_reports: int, unset_chance: float) -> Vector:
    """
    Give, of labels, the chance that noise alone would have shown a bit so often.

    A label has a bit to itself: without anybody who holds it the count is binomial.
    """
    p_values: Vector = stats.binom.sf(shown - 1, n_reports, unset_chance)
    return p_values


def bonferroni(p_values: Vector, level: float) -> NDArray[np.bool_]:
    """Reject so that any false discovery at all has at most this chance."""
    rejected: NDArray[np.bool_] = p_values <= level / len(p_values)
    return rejected


def benjamini_hochberg(p_values: Vector, level: float) -> NDArray[np.bool_]:
    """Reject so that at most this share of the discoveries is expected to be false [BH95]."""
    order = np.argsort(p_values)
    within = p_values[order] <= level * np.arange(1, len(p_values) + 1) / len(p_values)
    rejected = np.zeros(len(p_values), dtype=np.bool_)
    if within.any():
        rejected[order[: int(np.nonzero(within)[0].max()) + 1]] = True
    return rejected
