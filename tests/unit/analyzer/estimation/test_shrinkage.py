"""Shrinking means together, and intervals of each."""

import numpy as np
import pytest

from analyzer.estimation.projection import shrink_to_common_mean, shrink_to_zero
from common.mechanisms.numeric.number import Moments


def _moments(means: object, variance: float = 1.0, *, unbiased: bool = True) -> Moments:
    found = np.asarray(means, dtype=np.float64)
    return Moments(means=found, variances=np.full(found.shape, variance), unbiased=unbiased)


def test_means_shrink_to_zero_by_james_and_steins_factor() -> None:
    """1 - (d-2)σ²/Σx² = 1 - 2·1/8 of four means."""
    shrunk = shrink_to_zero(_moments([2, 0, 0, -2]))

    np.testing.assert_allclose([1.5, 0, 0, -1.5], shrunk, rtol=1e-15)


def test_means_shrink_to_their_common_mean() -> None:
    """1 - (d-3)σ²/Σ(x-x̄)² = 1 - 1·1/8 of the distances from 5."""
    shrunk = shrink_to_common_mean(_moments([7, 5, 5, 3]))

    np.testing.assert_allclose([6.75, 5, 5, 3.25], shrunk, rtol=1e-15)


def test_pure_noise_shrinks_to_a_point() -> None:
    """The factor is at least 0."""
    means = [0.1, -0.1, 0.1, -0.1, 0.1]

    assert not shrink_to_zero(_moments(means)).any()
    np.testing.assert_allclose(np.full(5, 0.02), shrink_to_common_mean(_moments(means)), rtol=1e-12)
    assert not shrink_to_zero(_moments([0, 0, 0])).any()


@pytest.mark.parametrize("d", [1, 2])
def test_few_means_are_unchanged(d: int) -> None:
    """Fewer than three, or than four where they shrink to their mean."""
    means = np.linspace(0.1, 0.3, d)

    assert means.tolist() == shrink_to_zero(_moments(means)).tolist()
    three = shrink_to_common_mean(_moments([0.1, 0.2, 0.6]))
    np.testing.assert_allclose([0.1, 0.2, 0.6], three, rtol=1e-15)
