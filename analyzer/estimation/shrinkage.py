"""
Means of many attributes at once, shrunk together. Run by the analyzer.

An unbiased mean errs by its noise, and where there are many of them the noise can be most of what
is seen. Moving all of them towards one point takes noise off and adds a bias; how far to go can be
told from the means themselves. Pure.
"""

from typing import Final

from common.mechanisms.base import Vector
from common.mechanisms.numeric.number import Moments

_TO_A_POINT: Final = 2
"""Attributes that James and Stein's rule does not count, towards a point that is given."""
_TO_THE_MEAN: Final = 3
"""And towards the mean of the attributes, which costs one more."""


def shrink_to_zero(moments: Moments) -> Vector:
    """
    Shrink means towards 0, the middle of the range: James and Stein's rule, its positive part.

    The factor is 1 - (1 - 2/d)·Σσ² / Σx², and 0 at least [JS61], [EM73]. With one variance for all
    the expected squared error is below that of the means as they are, whatever the true ones, from
    three attributes on; with different variances nearly so, unless a few are most of their sum.

    Args:
        moments: Of d attributes; with fewer than three the answer is the means as they are.

    Returns:
        Shape (d,). Biased, and without intervals.
    """
    return moments.means * _factor(moments.means, moments.variances, _TO_A_POINT)


def shrink_to_common_mean(moments: Moments) -> Vector:
    """
    Shrink means towards their own mean [EM73]: the better, the more alike the attributes are.

    The factor is that of `shrink_to_zero` for distances from the mean, with 1 - 3/d: it needs at
    least four attributes.

    Args:
        moments: Of d attributes; with fewer than four the answer is the means as they are.

    Returns:
        Shape (d,). Biased, and without intervals.
    """
    centre = moments.means.mean()
    apart = moments.means - centre
    shrunk: Vector = centre + apart * _factor(apart, moments.variances, _TO_THE_MEAN)
    return shrunk


def _factor(apart: Vector, variances: Vector, uncounted: int) -> float:
    """Give how much of each distance is kept, 0 .. 1."""
    counted = len(apart) - uncounted
    if counted <= 0 or not variances.any():
        return 1.0
    seen = float(apart @ apart)
    noise = float(variances.mean()) * counted
    return 0.0 if noise >= seen else 1 - noise / seen
