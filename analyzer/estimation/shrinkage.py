"""
Shrink the means of many attributes together. Run by the analyzer. Pure.

With many attributes, noise can dominate unbiased means. Moving all of them towards one point
reduces the noise and adds a bias; the means themselves determine by how much.
"""

from typing import Final

from common.mechanisms.base import Vector
from common.mechanisms.numeric.number import Moments

_TO_A_POINT: Final = 2
"""Degrees of freedom that James and Stein's rule loses towards a fixed point."""
_TO_THE_MEAN: Final = 3
"""Degrees of freedom that it loses towards the mean of the attributes."""


def shrink_to_zero(moments: Moments) -> Vector:
    """
    Shrink means towards 0, the middle of the range: James and Stein's rule, its positive part.

    The factor is 1 - (1 - 2/d)·Σσ² / Σx², at least 0 [JS61], [EM73]. With equal variances and three
    or more attributes the expected squared error is below that of the unbiased means, whatever the
    true means; with unequal variances nearly so, unless a few make up most of their sum.

    Args:
        moments: Moments of d attributes; with fewer than three the means are unchanged.

    Returns:
        Shape (d,). Biased, and without intervals.
    """
    return moments.means * _factor(moments.means, moments.variances, _TO_A_POINT)


def shrink_to_common_mean(moments: Moments) -> Vector:
    """
    Shrink means towards their common mean [EM73]; best where the attributes are similar.

    The factor is that of `shrink_to_zero` for distances from the mean, with 1 - 3/d: it needs at
    least four attributes.

    Args:
        moments: Moments of d attributes; with fewer than four the means are unchanged.

    Returns:
        Shape (d,). Biased, and without intervals.
    """
    centre = moments.means.mean()
    apart = moments.means - centre
    shrunk: Vector = centre + apart * _factor(apart, moments.variances, _TO_THE_MEAN)
    return shrunk


def _factor(apart: Vector, variances: Vector, uncounted: int) -> float:
    """Return the factor to shrink distances by, in 0 .. 1."""
    counted = len(apart) - uncounted
    if counted <= 0 or not variances.any():
        return 1.0
    seen = float(apart @ apart)
    noise = float(variances.mean()) * counted
    return 0.0 if noise >= seen else 1 - noise / seen
