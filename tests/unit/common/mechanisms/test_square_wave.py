import math

import numpy as np
import pytest
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.base import Mixture
from shuffledp.common.mechanisms.square_wave import Band, SquareWave, best_reach
from shuffledp.common.mechanisms.weights import ResponseWeights

_3_TO_1 = ResponseWeights(true=3, other=1)


@pytest.mark.parametrize("local_epsilon", [0.5, 1.0, 2.0, 5.0, 10.0])
def test_the_reach_matches_the_paper(local_epsilon: float) -> None:
    """The reach is the paper's share of the domain to the nearest item, also at tiny ε."""
    power = math.exp(local_epsilon)
    share = (local_epsilon * power - power + 1) / (2 * power * (power - 1 - local_epsilon))

    assert best_reach(10_000, local_epsilon) == pytest.approx(10_000 * share, abs=0.501)
    assert (512, 0) == (best_reach(1024, 1e-9), best_reach(1024, math.inf))


@pytest.mark.parametrize(("items", "reach"), [(2, 1), (3, 1), (4, 2), (7, 3)])
def test_overlapping_bands_have_no_reduction(items: int, reach: int) -> None:
    """No formula covers bands that all overlap."""
    assert SquareWave(items, reach, _3_TO_1).reduction is None
    assert SquareWave(items, reach - 1, _3_TO_1).reduction is not None


def test_unsupported_parameters_are_refused() -> None:
    """The shuffler may not sample or add dummies for items, and weights must fit 64 bits."""
    mechanism = SquareWave(5, 1, _3_TO_1)
    for mixture in (
        Mixture(n_real=10, keep_probability=0.5),
        Mixture(n_real=10, item_mean=2.0),
        Mixture(n_real=10, item_variance=1.0),
    ):
        with pytest.raises(ValueError, match="needs all reports"):
            mechanism.debias(np.zeros(7, dtype=np.int64), mixture)
        with pytest.raises(ValueError, match="needs all reports"):
            mechanism.variance(np.full(5, 0.2), mixture)
    with pytest.raises(TaskError, match="2\\^63"):
        SquareWave(5, 1, ResponseWeights(true=2**62, other=1))


def test_shares_of_zero_count_as_uniform() -> None:
    """The variance for shares of 0 is that of a uniform distribution."""
    wave = SquareWave(12, 3, ResponseWeights.for_epsilon(1.0))
    mixture = Mixture(n_real=100)

    np.testing.assert_allclose(
        wave.variance(np.zeros(12), mixture), wave.variance(np.full(12, 1 / 12), mixture)
    )


def _matrix(band: Band) -> NDArray[np.float64]:
    matrix = np.zeros((band.places, band.items))
    for item in range(band.items):
        matrix[item : item + band.width, item] = 1
    return matrix


@pytest.mark.parametrize(
    ("items", "width"),
    [(5, 1), (2, 3), (7, 2), (7, 3), (10, 4), (4, 5), (3, 9), (12, 12), (13, 12), (60, 7)],
)
def test_a_band_matches_its_matrix(items: int, width: int) -> None:
    """Both maps, the least-squares inverse and the variance of one draw match the dense matrix."""
    band, rng = Band(items, width), np.random.default_rng(1)
    matrix, theta, z = _matrix(band), rng.random(items), rng.random(band.places)
    distribution, inverse = rng.dirichlet(np.ones(band.places)), np.linalg.pinv(matrix)
    variance = inverse**2 @ distribution - (inverse @ distribution) ** 2

    np.testing.assert_allclose(band.forward(theta), matrix @ theta, atol=1e-12)
    np.testing.assert_allclose(band.adjoint(z), matrix.T @ z, atol=1e-12)
    np.testing.assert_allclose(band.solve(z), inverse @ z, atol=1e-9)
    np.testing.assert_allclose(band.variance(distribution), variance, rtol=1e-9, atol=1e-12)
