from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.rappor.bloom import hash_distribution
from shuffledp.deploy.results.decoder import hash_p_value

_EVEN: Final = np.full(4, 0.25)


def _exact(left: Vector, positions: NDArray[np.intp], probabilities: Vector) -> float:
    """List all hashes, and add up the probabilities of those whose bits have as large a sum."""
    hashes = positions.shape[1]
    found = np.take_along_axis(left, positions, axis=1).sum()
    sums, weights = np.zeros(1), np.ones(1)
    for row in left:
        for _ in range(hashes):
            sums = np.add.outer(sums, row).ravel()
            weights = np.multiply.outer(weights, probabilities).ravel()
    return float(weights[sums >= found - 1e-9].sum())


@pytest.mark.parametrize("seed", range(5))
def test_p_values_agree_with_listing_every_hash(seed: int) -> None:
    """They agree to 5 % for 2 hashes in 5 cohorts of 4 bits, even for the largest sum."""
    rng = np.random.default_rng(seed)
    left = rng.normal(size=(5, 4))
    best = np.argsort(-left, axis=1)
    for positions in (best[:, [0, 1]], best[:, [0, 2]], best[:, [0, 0]], best[:, [1, 1]]):
        exact = _exact(left, positions, _EVEN)
        found = hash_p_value(left, positions, _EVEN)
        assert exact == pytest.approx(found, rel=0.05)


def test_p_values_agree_for_bits_with_uneven_probabilities() -> None:
    """They agree for 3 bits, which do not divide 256, and for very unequal probabilities."""
    rng = np.random.default_rng(7)
    left = rng.normal(size=(9, 3))
    positions = np.argsort(-left, axis=1)[:, [0]]
    positions[5:, 0] = np.argsort(-left, axis=1)[5:, 1]
    for probabilities in (hash_distribution(3), np.array([0.7, 0.2, 0.1])):
        exact = _exact(left, positions, probabilities)
        assert exact == pytest.approx(hash_p_value(left, positions, probabilities), rel=0.05)


@pytest.mark.parametrize("cohorts", [2, 3, 7])
def test_few_hashes_never_have_too_small_a_p_value(cohorts: int) -> None:
    """With fewer than 8 hashes in all, the p-value is Chernoff's bound."""
    rng = np.random.default_rng(cohorts)
    left = rng.exponential(size=(cohorts, 4))
    drawn = [rng.integers(0, 4, size=(cohorts, 1)) for _ in range(20)]
    rare = [each for each in drawn if _exact(left, each, _EVEN) < 0.15]

    assert rare
    for positions in rare:
        exact = _exact(left, positions, _EVEN)
        assert exact * (1 - 1e-9) <= hash_p_value(left, positions, _EVEN)


def test_all_largest_bits_have_their_own_probability() -> None:
    """In 10 cohorts of 4 bits it is 4^-10, or 2^-10 if two bits of each are tied."""
    left = np.tile([0.0, 1.0, 2.0, 7.0], (10, 1))
    tied = np.tile([0.0, 1.0, 7.0, 7.0], (10, 1))
    positions = np.full((10, 1), 3)

    assert 4.0**-10 == pytest.approx(hash_p_value(left, positions, _EVEN))
    assert 2.0**-10 == pytest.approx(hash_p_value(tied, positions, _EVEN))


def test_bits_that_are_tied_up_to_rounding_have_a_p_value() -> None:
    """In 10 cohorts about 2^-10, as if tied: the variance there may be rounded below 0."""
    positions = np.full((10, 1), 3)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        left = np.tile([0.0, 1.0, 7.0, 7.0], (10, 1)) * rng.uniform(0.5, 2, (10, 1))
        left[:, 3] += 1e-14 * rng.uniform(-1, 1, 10)

        assert 2.0**-10 == pytest.approx(hash_p_value(left, positions, _EVEN), rel=0.5)


@pytest.mark.parametrize(
    ("spike", "number"), [(0.0, 3000), pytest.param(8.0, 10_000, marks=pytest.mark.slow)]
)
def test_random_bits_have_uniform_p_values(spike: float, number: int) -> None:
    """
    The p-values of many random hashes over 16 cohorts of 32 bits are uniform, with and without an
    unlisted string that stands out by 8 standard deviations, which skews the residuals.

    Seed 9. Each count is binomial and exceeds its limits by chance with probability 1e-7. A normal
    approximation in place of the saddlepoint has 188 of 10,000 below .01 with the
    spike, and 40 below .001.
    """
    rng = np.random.default_rng(9)
    left = rng.normal(size=(16, 32))
    left[np.arange(16), rng.integers(0, 32, size=16)] += spike
    probabilities = np.full(32, 1 / 32)
    hashes = rng.integers(0, 32, size=(number, 16, 2))
    found = np.array([hash_p_value(left, positions, probabilities) for positions in hashes])

    for level in (0.1, 0.01, 0.001, 0.0001):
        count = int((found <= level).sum())
        assert stats.binom.ppf(1e-7, number, level * 0.97) <= count
        assert count <= stats.binom.isf(1e-7, number, level * 1.03)


def test_far_tails_are_numbers() -> None:
    """If 128 cohorts all deviate by a thousand standard deviations, the p-value is 0 .. 1e-200."""
    left = np.random.default_rng(10).normal(size=(128, 128))
    positions = np.full((128, 1), 7)
    left[:, 7] += 1000
    found = hash_p_value(left, positions, np.full(128, 1 / 128))

    assert 0 <= found < 1e-200
