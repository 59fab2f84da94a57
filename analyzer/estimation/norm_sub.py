"""Norm-Sub: the Euclidean projection onto the probability simplex [WLLSL20]."""

import numpy as np

from common.mechanisms.randomizer import Vector


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
