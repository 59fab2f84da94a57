"""Norm-Mul: what is negative becomes 0, and the rest is scaled to sum to 1 [WLLSL20]."""

import numpy as np

from analyzer.estimation.norm_sub import norm_sub
from common.mechanisms.randomizer import Vector


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
