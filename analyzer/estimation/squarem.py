"""SQUAREM: a leap along two steps of a slow map towards where it is going [VR08]."""

from typing import Final

import numpy as np

from common.mechanisms.randomizer import Vector

_TINY: Final = 1e-300
_LEAST: Final = 0.1
"""Share of the second image that a leap leaves of each item, before all is scaled back."""


def leap(start: Vector, first: Vector, second: Vector) -> Vector:
    """
    Extrapolate from a distribution and its first and second image, by scheme S3 [VR08].

    Whoever leaps must check where it lands: a leap keeps no promise that the map makes.

    Args:
        start: A distribution, shape (domain_size,).
        first: The map's image of it.
        second: The map's image of that.

    Returns:
        A distribution: what would fall below a tenth of the second image is held there, and all
        is scaled back. A map that multiplies, as that of EM does, never raises a share from 0.
    """
    step, bend = first - start, second - 2 * first + start
    length = min(-1.0, -float(np.sqrt((step @ step) / max(float(bend @ bend), _TINY))))
    landed: Vector = np.maximum(start - 2 * length * step + length**2 * bend, _LEAST * second)
    landed /= landed.sum()
    return landed
