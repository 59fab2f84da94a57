"""Norm-Cut: the largest shares until they sum to 1, and nothing of the others [WLLSL20]."""

import numpy as np

from analyzer.estimation.norm_mul import norm_mul
from common.mechanisms.randomizer import Vector


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
