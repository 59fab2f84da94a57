"""Both tails of a law, each with the digits it needs."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.randomizer import Vector

RELATIVE_ERROR: Final = 1e-9
"""
Above the error of the tails below: at most 3e-11 against 60-digit sums, up to 10^9 trials.

The library's own binomial distribution function loses eight digits at small chances; of the
incomplete beta and gamma functions that it rests on, the one that gives the smaller tail does not.
"""


def smaller_tail(
    at_most: Callable[..., Any],
    more_than: Callable[..., Any],
    parameters: tuple[Any, ...],
    *,
    inside: NDArray[np.bool_],
    low: NDArray[np.bool_],
    below: Vector,
) -> tuple[Vector, Vector]:
    """
    Give P(X ≤ k) and P(X > k), the smaller one computed and the other as what is left.

    Args:
        at_most: Ufunc that gives P(X ≤ k), accurate where k is below the mean.
        more_than: Ufunc that gives P(X > k), accurate where it is not.
        parameters: Of both.
        inside: Where k can be exceeded and reached.
        low: Where k is below the mean.
        below: P(X ≤ k) outside; overwritten inside.
    """
    above: Vector = 1 - below
    at_most(*parameters, out=below, where=inside & low)
    more_than(*parameters, out=above, where=inside & ~low)
    np.subtract(1, below, out=above, where=inside & low)
    np.subtract(1, above, out=below, where=inside & ~low)
    return below, above


def masses_between(below: Vector, above: Vector) -> Vector:
    """
    Give the mass between neighbouring points, from both tails at each, along the last axis.

    Differences are taken in the tail that is small, so that they keep their digits.
    """
    lower_half = below[..., 1:] < above[..., :-1]
    masses: Vector = np.where(lower_half, np.diff(below, axis=-1), -np.diff(above, axis=-1))
    return np.maximum(masses, 0)
