"""Shrink the means of many attributes by James and Stein's rule. Run by the analyzer."""

from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.numeric.number import Moments


def shrink_to_zero(moments: Moments) -> Vector:
    """
    Shrink means towards 0, the middle of the range, by the positive-part James-Stein rule.

    The factor is 1 - (1 - 2/d)·Σσ² / Σx², at least 0 [JS61], [EM73]. With equal variances and three
    or more attributes the expected squared error is below that of the unbiased means, whatever the
    true means. With unequal variances this nearly holds, unless a few make up most of their sum.
    Fewer than three means are unchanged. The result, shape (d,), is biased and has no intervals.
    """
    return moments.means * shrinkage_factor(moments.means, moments.variances, lost_degrees=2)


def shrinkage_factor(apart: Vector, variances: Vector, lost_degrees: int) -> float:
    """Return the factor to shrink distances by, in 0 .. 1."""
    counted = len(apart) - lost_degrees
    if counted <= 0 or not variances.any():
        return 1.0
    seen = float(apart @ apart)
    noise = float(variances.mean()) * counted
    return 0.0 if noise >= seen else 1 - noise / seen
