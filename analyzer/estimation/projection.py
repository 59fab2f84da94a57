"""
Refine debiased shares to a distribution [WLLSL20].

Each refinement takes debiased shares, shape (domain_size,), and returns a distribution: the same
shape, each share at least 0, sum 1.
"""

from typing import Final

import numpy as np
import scipy
from scipy import special

from shuffledp.common.mechanisms.base import Vector


def norm_sub(shares: Vector) -> Vector:
    """Subtract one constant from all shares and truncate at 0 [DSSC08] (Norm-Sub). One sort."""
    below = shares - shares.max()  # same projection, but the 1 is not lost to rounding
    descending = np.sort(below)[::-1]
    excess = np.cumsum(descending) - 1
    ranks = np.arange(1, len(shares) + 1)
    last = np.flatnonzero(descending * ranks > excess)[-1]
    return np.asarray(np.maximum(below - excess[last] / ranks[last], 0))


def norm_mul(shares: Vector) -> Vector:
    """Scale the positive shares to sum 1, in one pass (Norm-Mul); if none is, use Norm-Sub."""
    positive: Vector = np.maximum(shares, 0)
    largest = float(positive.max())
    if largest <= 0:
        return norm_sub(shares)
    positive /= largest  # the sum then neither overflows nor becomes denormal
    positive /= positive.sum()
    return positive


def norm_cut(shares: Vector) -> Vector:
    """
    Keep the largest shares until their sum reaches 1, and scale them to sum 1 (Norm-Cut).

    Ties with the last share kept are kept too, so that the order of items does not matter. If the
    positive shares sum to less than 1, all are kept and scaled; the paper leaves their sum below 1.
    If none is positive, use Norm-Mul. Cost: one sort.
    """
    descending = np.sort(shares)[::-1]
    reached = np.flatnonzero(np.cumsum(np.maximum(descending, 0)) >= 1)
    if not reached.size:
        return norm_mul(shares)
    return norm_mul(np.where(shares >= descending[reached[0]], shares, 0.0))


SIGNIFICANCE: Final = 0.05
"""Bound on the probability that noise lifts any absent item over the threshold [WLLSL20]."""


def base_cut(shares: Vector, absent_errors: Vector) -> Vector:
    """
    Keep significant shares, and spread the rest of 1 evenly over the others (Base-Cut).

    A share is significant if it is at least Φ⁻¹(1 - SIGNIFICANCE / domain_size) standard errors of
    an absent item. The paper sets the others to 0, so the shares need not sum to 1; an even spread
    favours no item, and gives the uniform distribution if no share is significant. If the
    significant shares sum to more than 1, or all are significant, they are projected by Norm-Sub
    and the others are 0.

    `absent_errors` holds the standard error of each share if no user held its item, shape
    (domain_size,). Where it is 0, a share is kept if it is at least 0. Cost: one pass, or one sort.
    """
    threshold = -float(special.ndtri(SIGNIFICANCE / len(shares)))
    significant = shares >= threshold * absent_errors
    left = 1 - float(shares[significant].sum())
    refined = np.zeros(len(shares))
    if significant.all() or left < 0:
        refined[significant] = norm_sub(shares[significant])
        return refined
    refined[significant] = shares[significant]
    refined[~significant] = left / np.count_nonzero(~significant)
    return refined


_REACH: Final = 8.0
"""Number of standard errors beyond which noise is neglected, on each side: Φ(-8) = 6e-16."""
_NODES: Final = 256
"""Nodes of the integral for a posterior mean: its relative error is below 1e-4."""
_MAX_ROWS: Final = 1 << 12
"""Maximum number of distinct shares processed together, to bound memory."""
_MAX_STEEPNESS: Final = 3.0
"""Upper bound on the exponent: x^-3 on [least, 1] has the mean 2·least / (1 + least), and
`power_law` is called only for means of at least 2·least."""


def power_ns(shares: Vector, standard_errors: Vector, n_users: float) -> Vector:
    """
    Replace each share by its posterior mean under a fitted power law, and project the result
    (Power-NS).

    A share x has the prior x^-s on [least, 1], where `least` is the share of one user, or half of
    1 / domain_size if that is smaller; s makes the prior's mean 1 / domain_size, which holds for
    every distribution. The noise is normal.

    A share with standard error 0 is unchanged. `n_users` is above 0. Cost: 256 exponentials for
    each distinct pair of share and error (counts are integers: far fewer than items), and two
    sorts.
    """
    size = len(shares)
    least = min(1 / n_users, 1 / (2 * size))
    steepness = power_law(1 / size, least)
    pairs, where = np.unique(shares + 1j * standard_errors, return_inverse=True)
    means = np.concatenate(
        [
            _posterior_means(part.real, part.imag, steepness, least)
            for part in np.array_split(pairs, -(-len(pairs) // _MAX_ROWS))
        ]
    )
    return norm_sub(means[where.ravel()])


def power_law(mean: float, least: float) -> float:
    """Return the s for which x^-s on [least, 1] has this `mean` ≥ 2·least; 0 if there is none."""

    def excess(steepness: float) -> float:
        return _moment(2 - steepness, least) / _moment(1 - steepness, least) - mean

    if excess(0.0) <= 0:
        return 0.0
    return float(scipy.optimize.brentq(excess, 0.0, _MAX_STEEPNESS))


def _moment(power: float, least: float) -> float:
    """Return ∫ x^(power-1) over [least, 1], without cancellation near power = 0."""
    length = -float(np.log(least))
    return length * float(special.exprel(-power * length))


def _posterior_means(shares: Vector, errors: Vector, steepness: float, least: float) -> Vector:
    """
    Return the posterior mean of each share, by the trapezoidal rule.

    The nodes are evenly spaced around a share far from 0, and logarithmically spaced otherwise,
    where the prior has its weight.
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
    # The density times the step width: of x, or of its logarithm.
    weights = -(((nodes - seen[:, None]) / sigma[:, None]) ** 2) / 2
    weights += (np.where(far, 0.0, 1.0) - steepness) * np.log(nodes)
    weights = np.exp(weights - weights.max(axis=1, keepdims=True))
    weights[:, [0, -1]] /= 2
    means: Vector = (weights * nodes).sum(axis=1) / weights.sum(axis=1)
    return np.where(exact, shares, means)
