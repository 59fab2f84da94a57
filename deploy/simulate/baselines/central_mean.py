"""Means of numbers by a trusted collector: noise on the sum of each coordinate."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from common.errors import AccountingError, ValueRangeError
from common.mechanisms.base import Vector
from common.mechanisms.numeric.number import Numbers, check_numbers, to_grid
from deploy.simulate.baselines.central_guarantee import CentralGuarantee
from deploy.simulate.baselines.noise import GaussianNoise, LaplaceNoise, Noise

STEPS: Final = 2**20
"""Intervals of the range: rounding to them adds next to no error, whole steps of noise neither."""
MAX_DIMENSIONS: Final = 8192


@dataclass(frozen=True)
class CentralMean:
    """
    Add noise to the sums of people's numbers, each in -1 .. 1 as everywhere.

    Replacing one person moves each coordinate's sum by the whole range at most: the sensitivity is
    d ranges by absolute values, and √d ranges by squares.
    """

    noise: Noise
    dimensions: int

    @classmethod
    def laplace(cls, epsilon: float, dimensions: int = 1) -> Self:
        """Take noise of scale d/ε ranges."""
        _check(dimensions)
        return cls(LaplaceNoise(epsilon, dimensions * STEPS), dimensions)

    @classmethod
    def gaussian(cls, epsilon: float, delta: float, dimensions: int = 1) -> Self:
        """Take noise of σ = √d/μ ranges."""
        _check(dimensions)
        return cls(GaussianNoise(epsilon, delta, dimensions * STEPS**2), dimensions)

    @property
    def guarantee(self) -> CentralGuarantee:
        """What a release promises."""
        return self.noise.guarantee

    def mse(self, n_users: int) -> float:
        """
        Give the mean squared error of one coordinate's mean, for numbers in -1 .. 1.

        Exact but for rounding to the grid, which adds 1e-12 / n_users at most.
        """
        return self.noise.variance * (2 / (STEPS * n_users)) ** 2

    def release(self, values: Numbers, rng: np.random.Generator) -> Vector:
        """
        Give noisy means, unbiased; the number of people is known.

        Args:
            values: Shape (n, dimensions), each in -1 .. 1.
            rng: Source of randomness.

        Returns:
            Shape (dimensions,); may lie outside -1 .. 1.

        Raises:
            ValueRangeError: A number is outside, there are more or fewer, or there is nobody.
        """
        if len(values) == 0:
            raise ValueRangeError("there is nobody to take the mean of")
        check_numbers(values, self.dimensions)
        sums = to_grid(values, STEPS, rng).sum(axis=0)
        noisy = sums + self.noise.draw(self.dimensions, rng)
        means: Vector = noisy / (STEPS * len(values)) * 2 - 1
        return means


def _check(dimensions: int) -> None:
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise AccountingError(
            f"there are {dimensions} numbers a person; there may be 1 to {MAX_DIMENSIONS}"
        )
