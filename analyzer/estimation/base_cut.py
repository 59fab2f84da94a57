"""Base-Cut: only shares that stand out from the noise are kept [WLLSL20]."""

from typing import Final

import numpy as np
from scipy import special

from analyzer.estimation.norm_sub import norm_sub
from common.mechanisms.randomizer import Vector

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
