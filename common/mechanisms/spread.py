"""
How far what reports stand for is spread around people's numbers, and what their totals tell of it.

A report stands for a number in each coordinate, of which the expectation is the person's own.
"""

from dataclasses import dataclass

import numpy as np

from common.mechanisms.number import Moments, Numbers, rounding_variance
from common.mechanisms.randomizer import Vector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Totals:
    """Of what reports stand for, coordinate by coordinate: each of shape (coordinates,)."""

    count: Vector
    first: Vector
    """Their sum."""
    second: Vector
    """The sum of their squares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The expected square of what an answer stands for: level + slope · the square on the grid."""

    level: float
    slope: float
    """0 where answers tell nothing of the square."""
    steps: int
    """Of the grid; what rounding adds to the square counts with the slope."""

    def second_moment(self, numbers: Numbers) -> Numbers:
        """Give that of each number, exactly, rounding to the grid included; of the same shape."""
        if self.slope == 0:
            return np.full(numbers.shape, self.level)
        squares = numbers**2 + rounding_variance(numbers, self.steps)
        moment: Numbers = self.level + self.slope * squares
        return moment

    def moments(self, totals: Totals, n_reports: int, sampling: float) -> Moments:
        """
        Estimate means from totals, and how far they may be off.

        Where a report has an answer for a coordinate it stands for `sampling` times what that does,
        elsewhere for 0: Var = sampling·(level + slope·s) - s of one report, s the people's mean
        square. Where there is a slope the answers tell s, which is kept in 0 .. 1. Where not, s is
        taken for the square of the mean, and the variance is that of a sample: it errs upward, by
        how much people differ and by one part in the number of reports.

        Args:
            totals: Of all answers.
            n_reports: How many reports there were. Where that is too few to say anything, the
                variances are infinite.
            sampling: One over the share of coordinates that each of them tells.
        """
        means = sampling * totals.first / max(n_reports, 1)
        free = n_reports if self.slope > 0 else n_reports - 1
        if free <= 0:
            return Moments(means=means, variances=np.full(len(means), np.inf))
        if self.slope > 0:
            square = (sampling * totals.second / n_reports - self.level) / self.slope
        else:
            square = means**2
        square = np.clip(square, 0, 1)
        variances = (sampling * (self.level + self.slope * square) - square) / free
        return Moments(means=means, variances=variances)

    def variance(self, values: Numbers, sampling: float) -> Vector:
        """Give the exact variance of the means that `moments` estimates for these people."""
        own = sampling * self.second_moment(values) - values**2
        exact: Vector = own.sum(axis=0) / len(values) ** 2
        return exact
