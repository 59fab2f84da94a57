"""A binomial law where it has any weight worth counting, with what is left out on either side."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from common.accounting.counts import Binomial, quantile, upper_quantile
from common.accounting.tails import RELATIVE_ERROR
from common.mechanisms.randomizer import Vector

ROUNDING: Final = 2.0**-52
"""Twice what one operation on floating-point numbers may add, relatively."""
_SPARE: Final = 64


@dataclass(frozen=True, slots=True)
class BinomialWindow:
    """P(X = k) for k = first .. first + len(masses) - 1, rounded up, and what lies beyond."""

    first: int
    masses: Vector
    """At least the true ones, by a relative 4·len·ROUNDING or so at most."""
    below: float
    """P(X < first), rounded up."""
    above: float
    """P(X > last), rounded up."""

    @classmethod
    def of(cls, law: Binomial, tail: float) -> "BinomialWindow":
        """
        Lay the window out so that at most `tail` lies beyond either side.

        Masses grow from the mode outward by P(X = k+1) / P(X = k) = (n-k)·c / ((k+1)(1-c)), which
        needs no special function: after j steps the relative error is below 5j roundings, and
        dividing by the sum, which is at most 1 in truth, can only enlarge them.
        """
        first, last = quantile(law, tail), upper_quantile(law, tail)
        mode = min(max(float(np.floor((law.trials + 1) * law.chance)), first), last)
        rising, falling = np.arange(mode, last), np.arange(mode, first, -1)
        odds = law.chance / (1 - law.chance) if law.chance < 1 else np.inf
        up = np.cumprod((law.trials - rising) / (rising + 1) * odds)
        down = np.cumprod(falling / (law.trials - falling + 1) / odds) if len(falling) else falling
        masses = np.concatenate([down[::-1], [1.0], up])
        masses /= masses.sum()
        masses *= 1 + (8 * len(masses) + _SPARE) * ROUNDING
        edges = np.array([first - 1, last])
        below, above = law.tails(edges)
        return cls(
            first=int(first),
            masses=masses,
            below=float(below[0]) * (1 + RELATIVE_ERROR),
            above=float(above[1]) * (1 + RELATIVE_ERROR),
        )

    @property
    def outcomes(self) -> Vector:
        """The whole numbers k of the masses."""
        return self.first + np.arange(len(self.masses), dtype=np.float64)
