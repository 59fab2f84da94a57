"""Shares of items by a trusted collector: noise on every true count."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from common.errors import ValueRangeError
from common.mechanisms.base import Counts, Vector
from deploy.simulate.baselines.central_guarantee import CentralGuarantee
from deploy.simulate.baselines.noise import GaussianNoise, LaplaceNoise, Noise

_FINE: Final = 2**10
"""Steps of a count for Gaussian noise, so that whole steps cost nothing."""


@dataclass(frozen=True)
class CentralHistogram:
    """
    Add noise to each count. Replacing one person moves two counts by one each.

    So the sensitivity is 2 by absolute values, and √2 by squares.
    """

    noise: Noise
    steps: int
    """Of a count."""

    @classmethod
    def laplace(cls, epsilon: float) -> Self:
        """Whole counts with noise of scale 2/ε."""
        return cls(LaplaceNoise(epsilon, 2), 1)

    @classmethod
    def gaussian(cls, epsilon: float, delta: float) -> Self:
        """Counts in steps of 1/1024 with noise of σ = √2/μ."""
        return cls(GaussianNoise(epsilon, delta, 2 * _FINE**2), _FINE)

    @property
    def guarantee(self) -> CentralGuarantee:
        """What a release promises."""
        return self.noise.guarantee

    def mse(self, n_users: int) -> float:
        """Give the exact mean squared error of a share."""
        return self.noise.variance / (self.steps * n_users) ** 2

    def release(self, counts: Counts, rng: np.random.Generator) -> Vector:
        """
        Give noisy shares, unbiased; the number of people is known.

        Args:
            counts: Of people by item, shape (domain_size,), each at least 0 and not all 0.
            rng: Source of randomness.

        Raises:
            ValueRangeError: A count is below 0, or there is nobody.
        """
        total = int(counts.sum())
        if (counts < 0).any() or total == 0:
            raise ValueRangeError("counts must be at least 0, and not all 0")
        noisy = counts * self.steps + self.noise.draw(len(counts), rng)
        shares: Vector = noisy / (self.steps * total)
        return shares
