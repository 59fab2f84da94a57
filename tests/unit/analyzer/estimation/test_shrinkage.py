"""Shrinking means together, and intervals of each."""

import numpy as np
import pytest
from numpy.typing import NDArray

from analyzer.estimation.shrinkage import shrink_to_common_mean, shrink_to_zero
from common.mechanisms.numeric.number import Moments


def _moments(means: object, variance: float = 1.0, *, unbiased: bool = True) -> Moments:
    found = np.asarray(means, dtype=np.float64)
    return Moments(means=found, variances=np.full(found.shape, variance), unbiased=unbiased)


def test_means_shrink_to_zero_by_james_and_steins_factor() -> None:
    """1 - (d-2)σ²/Σx² = 1 - 2·1/8 of four means."""
    shrunk = shrink_to_zero(_moments([2, 0, 0, -2]))

    np.testing.assert_allclose([1.5, 0, 0, -1.5], shrunk, rtol=1e-15)


def test_means_shrink_to_their_mean_by_one_attribute_more() -> None:
    """1 - (d-3)σ²/Σ(x-x̄)² = 1 - 1·1/8 of the distances from 5."""
    shrunk = shrink_to_common_mean(_moments([7, 5, 5, 3]))

    np.testing.assert_allclose([6.75, 5, 5, 3.25], shrunk, rtol=1e-15)


def test_where_noise_is_all_there_is_nothing_is_left() -> None:
    """The positive part: the factor never turns means around."""
    means = [0.1, -0.1, 0.1, -0.1, 0.1]

    assert not shrink_to_zero(_moments(means)).any()
    np.testing.assert_allclose(np.full(5, 0.02), shrink_to_common_mean(_moments(means)), rtol=1e-12)
    assert not shrink_to_zero(_moments([0, 0, 0])).any()


@pytest.mark.parametrize("d", [1, 2])
def test_one_or_two_means_stay_as_they_are(d: int) -> None:
    """Nothing beats them everywhere; and three do not shrink to their own mean."""
    means = np.linspace(0.1, 0.3, d)

    assert means.tolist() == shrink_to_zero(_moments(means)).tolist()
    three = shrink_to_common_mean(_moments([0.1, 0.2, 0.6]))
    np.testing.assert_allclose([0.1, 0.2, 0.6], three, rtol=1e-15)


def _risk(estimates: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    return float(((estimates - truth) ** 2).sum(axis=1).mean())


@pytest.mark.parametrize("spread", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("level", [0.0, 1.0, 3.0])
def test_shrinking_never_costs_on_average(level: float, spread: float) -> None:
    """
    Over 4,000 draws of ten means with variance 1 the squared error is below 10, wherever they lie.

    Seed 1. The difference of the two errors has a standard error below .09 here, and where nothing
    is gained at all the limit, .7, is seven of these away.
    """
    truth = level + spread * np.linspace(-1, 1, 10)
    drawn = truth + np.random.default_rng(1).normal(size=(4000, 10))
    plain = _risk(drawn, truth)
    zero = _risk(np.array([shrink_to_zero(_moments(means)) for means in drawn]), truth)
    common = _risk(np.array([shrink_to_common_mean(_moments(means)) for means in drawn]), truth)

    assert zero < plain + 0.7
    assert common < plain + 0.7
    if level == 0 and spread == 0:
        assert zero < 2.5  # exactly 2 without the positive part
    if spread == 0:
        assert common < 3.5  # exactly 3 without it
