"""Norm-Sub: the Euclidean projection onto the probability simplex [WLLSL20]."""

from typing import Final

import numpy as np
import scipy
from scipy import special

from common.mechanisms.base import Vector


def norm_sub(shares: Vector) -> Vector:
    """
    Give the non-negative shares that sum to 1 and lie closest to the given ones.

    Subtracts one constant from all and cuts at 0 [DSSC08].

    Args:
        shares: Debiased shares, shape (domain_size,).

    Returns:
        Shape (domain_size,), each at least 0, sum 1.

    Cost: one sort.
    """
    below = shares - shares.max()  # a constant changes nothing, and 1 is not lost in large shares
    descending = np.sort(below)[::-1]
    excess = np.cumsum(descending) - 1
    ranks = np.arange(1, len(shares) + 1)
    last = np.flatnonzero(descending * ranks > excess)[-1]
    projected: Vector = np.maximum(below - excess[last] / ranks[last], 0)
    return projected


def norm_mul(shares: Vector) -> Vector:
    """
    Give the positive shares, multiplied by one constant.

    Where no share is positive there is nothing to multiply: the closest distribution instead.

    Args:
        shares: Debiased shares, shape (domain_size,).

    Returns:
        Shape (domain_size,), each at least 0, sum 1.

    Cost: a pass.
    """
    positive: Vector = np.maximum(shares, 0)
    largest = float(positive.max())
    if largest <= 0:
        return norm_sub(shares)
    positive /= largest  # the sum neither overflows nor is denormal
    positive /= positive.sum()
    return positive


def norm_cut(shares: Vector) -> Vector:
    """
    Keep the largest shares up to the one that brings their sum to 1, and scale them to sum to 1.

    Shares equal to the last one that is kept are kept too, so that items are not told apart by
    their place. Where the positive shares together do not reach 1, all of them are kept; the paper
    leaves their sum below 1 then. Where none is positive: as Norm-Mul.

    Args:
        shares: Debiased shares, shape (domain_size,).

    Returns:
        Shape (domain_size,), each at least 0, sum 1.

    Cost: one sort.
    """
    descending = np.sort(shares)[::-1]
    reached = np.flatnonzero(np.cumsum(np.maximum(descending, 0)) >= 1)
    if not reached.size:
        return norm_mul(shares)
    return norm_mul(np.where(shares >= descending[reached[0]], shares, 0.0))


FALSE_ALARM: Final = 0.05
"""Chance that noise alone lifts any absent item over the threshold [WLLSL20]."""


def base_cut(shares: Vector, absent_errors: Vector, *, false_alarm: float = FALSE_ALARM) -> Vector:
    """
    Keep each share that reaches Φ⁻¹(1 - false_alarm / domain_size) standard errors of an absent
    item, and spread what is left of 1 evenly over the others.

    The paper leaves the others at 0, which makes no distribution. What the kept ones leave of 1
    belongs to the others, and nothing is known of how: an even spread favours none. So where
    nothing stands out, the answer is uniform. Where the kept ones exceed 1, or all are kept, they
    are projected onto the distributions (Norm-Sub), and the others are 0.

    Args:
        shares: Debiased shares, shape (domain_size,).
        absent_errors: Standard error of each share if nobody held its item, shape (domain_size,).
            Where it is 0, a share is kept if it is at least 0.
        false_alarm: Chance that noise alone lifts any absent item over the threshold, at most.

    Returns:
        Shape (domain_size,), each at least 0, sum 1.

    Cost: a pass, or one sort.
    """
    reach = -float(special.ndtri(false_alarm / len(shares)))
    kept = shares >= reach * absent_errors
    left = 1 - float(shares[kept].sum())
    refined = np.zeros(len(shares))
    if kept.all() or left < 0:
        refined[kept] = norm_sub(shares[kept])
        return refined
    refined[kept] = shares[kept]
    refined[~kept] = left / np.count_nonzero(~kept)
    return refined


_REACH: Final = 8.0
"""Standard errors to each side of a share, beyond which the noise is taken never to have come."""
_NODES: Final = 256
_ROWS: Final = 1 << 12
"""Distinct shares worked on at a time."""
_STEEPEST: Final = 3.0
"""Every mean of twice the least share or more has a power law that is less steep."""


def power_ns(shares: Vector, standard_errors: Vector, n_users: float) -> Vector:
    """
    Replace each share by its posterior mean under a fitted power law, and project the result.

    A share x has the prior x^-s on [least, 1], with least that of one user (of half a user's fair
    share where there are fewer than two users an item); s is such that the prior's mean is
    1 / domain_size, which is known without looking at anything. The noise is normal.

    Args:
        shares: Debiased shares, shape (domain_size,).
        standard_errors: Of each, shape (domain_size,). A share without error is left as it is.
        n_users: Users who were counted, above 0.

    Returns:
        Shape (domain_size,), each at least 0, sum 1.

    Cost: 256 exponentials for each pair of share and error that differs from all others (counts
    are integers: far fewer than items), and two sorts.
    """
    size = len(shares)
    least = min(1 / n_users, 1 / (2 * size))
    steepness = power_law(1 / size, least)
    pairs, where = np.unique(shares + 1j * standard_errors, return_inverse=True)
    means = np.concatenate(
        [
            _posterior_means(part.real, part.imag, steepness, least)
            for part in np.array_split(pairs, -(-len(pairs) // _ROWS))
        ]
    )
    return norm_sub(means[where.ravel()])


def power_law(mean: float, least: float) -> float:
    """
    Give the s at which the law x^-s on [least, 1] has this mean; 0 where none is as large.

    Args:
        mean: At least 2·least.
        least: Above 0.
    """

    def excess(steepness: float) -> float:
        return _moment(2 - steepness, least) / _moment(1 - steepness, least) - mean

    if excess(0.0) <= 0:
        return 0.0
    return float(scipy.optimize.brentq(excess, 0.0, _STEEPEST))


def _moment(power: float, least: float) -> float:
    """∫ x^(power-1) over [least, 1]; the logarithm where power is 0, and no cancellation near."""
    length = -float(np.log(least))
    return length * float(special.exprel(-power * length))


def _posterior_means(shares: Vector, errors: Vector, steepness: float, least: float) -> Vector:
    """
    The posterior mean of each share, by the trapezoidal rule on nodes of its own.

    They are evenly spaced within reach of a share that is far from 0, and by their logarithms
    otherwise, where the prior has its weight.
    """
    seen = np.minimum(shares, 1.0)
    exact = errors <= 0
    sigma = np.where(exact, 1.0, errors)
    top = np.minimum(np.maximum(seen, 0) + _REACH * sigma, 1.0)
    low = seen - _REACH * sigma
    far = (low > least)[:, None]
    low, top = np.maximum(low, least)[:, None], np.maximum(top, 2 * least)[:, None]
    steps = np.linspace(0, 1, _NODES)
    logs = np.log(low) + steps * (np.log(top) - np.log(low))
    nodes = np.where(far, low + steps * (top - low), np.exp(logs))
    # A density times the width of its step: of x itself, or of its logarithm.
    weights = -(((nodes - seen[:, None]) / sigma[:, None]) ** 2) / 2
    weights += (np.where(far, 0.0, 1.0) - steepness) * np.log(nodes)
    weights = np.exp(weights - weights.max(axis=1, keepdims=True))
    weights[:, [0, -1]] /= 2
    means: Vector = (weights * nodes).sum(axis=1) / weights.sum(axis=1)
    return np.where(exact, shares, means)
