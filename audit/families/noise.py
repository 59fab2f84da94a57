"""Reference distributions of the number of a shuffler's dummies of one item."""

import numpy as np
from scipy import stats

from audit.families.family import NotCoveredError
from common.mechanisms.base import Vector
from common.task.shuffler_spec import RATIO_SUM, BinomialNoise, GeometricNoise, ItemNoise


def noise_chances(noise: ItemNoise) -> Vector:
    """Return the probabilities of 0, 1, …, `most` dummies; NotCoveredError without a reference."""
    numbers = np.arange(noise.most + 1)
    if isinstance(noise, BinomialNoise):
        return np.asarray(stats.binom.pmf(numbers, noise.trials, 0.5))
    if isinstance(noise, GeometricNoise):
        steps = numbers - noise.peak
        left, right = noise.left_weight / RATIO_SUM, noise.right_weight / RATIO_SUM
        weights = np.where(steps < 0, left ** np.abs(steps), right ** np.abs(steps))
        return np.asarray(weights / weights.sum())
    raise NotCoveredError(f"shufflers with {noise.distribution} dummies")
