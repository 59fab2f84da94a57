"""Whether a sum of many bounded, independent draws is as large as it should be: p-values."""

import math
from dataclasses import dataclass, field

_EXACT = 1e-9
"""Relative: what arithmetic in 53 bits may be off by, and no wrong formula is."""


@dataclass(slots=True)
class BoundedSum:
    """
    What is known of a sum: its mean, and bounds of its variance and of any one draw.

    Of a draw between low and high with mean μ the variance is at most (high - μ)(μ - low) [BD00],
    whatever its law, so that no law has to be known and no number of draws to be large.
    """

    low: float
    high: float
    mean: float = 0.0
    size: float = field(default=0.0, init=False)
    """Of all terms that were added to the mean: what rounding errors are relative to."""
    variance: float = field(default=0.0, init=False)
    reach: float = field(default=0.0, init=False)
    """How far apart two outcomes of one draw may lie."""

    def add(self, draws: float, mean: float) -> None:
        """Add so many draws, each with this mean and anywhere between low and high."""
        self.mean += draws * mean
        self.size += draws * max(abs(self.low), abs(self.high))
        self.variance += draws * max(0.0, (self.high - mean) * (mean - self.low))
        self.reach = max(self.reach, self.high - self.low)

    def add_certain(self, total: float) -> None:
        """Add what is not drawn."""
        self.mean += total
        self.size += abs(total)

    def add_drawn(self, mean: float, variance: float, reach: float) -> None:
        """Add a draw whose variance is known."""
        self.mean += mean
        self.size += abs(mean)
        self.variance += variance
        self.reach = max(self.reach, reach)

    def p_value(self, total: float) -> float:
        """
        Bound the probability of a total at least as far off, on both sides.

        Bernstein's inequality: 2·exp(-t² / 2(V + b·t/3)) for t off the mean, a variance of at most
        V, and draws that lie at most b from their means [BLM13, Section 2.8]. Where nothing was
        drawn, the total is the mean or it is wrong.
        """
        off = abs(total - self.mean)
        if off <= _EXACT * max(1.0, self.size):
            return 1.0
        if not self.variance:
            return 0.0
        return min(1.0, 2 * math.exp(-(off**2) / (2 * (self.variance + self.reach * off / 3))))
