import numpy as np
import pytest
from numpy.typing import NDArray

from common.mechanisms.square_wave import Band

_SHAPES = pytest.mark.parametrize(
    ("items", "width"),
    [(5, 1), (2, 3), (7, 2), (7, 3), (10, 4), (4, 5), (3, 9), (12, 12), (13, 12), (60, 7)],
)


def _matrix(band: Band) -> NDArray[np.float64]:
    matrix = np.zeros((band.places, band.items))
    for item in range(band.items):
        matrix[item : item + band.width, item] = 1
    return matrix


@_SHAPES
def test_both_maps_match_the_matrix(items: int, width: int) -> None:
    """Running sums agree with the 0-1 matrix."""
    band, rng = Band(items, width), np.random.default_rng(1)
    theta, weights = rng.random(items), rng.random(items + width - 1)

    np.testing.assert_allclose(band.forward(theta), _matrix(band) @ theta, atol=1e-12)
    np.testing.assert_allclose(band.adjoint(weights), _matrix(band).T @ weights, atol=1e-12)


@_SHAPES
def test_the_inverse_is_least_squares(items: int, width: int) -> None:
    """It agrees with the pseudo-inverse on arbitrary z."""
    band = Band(items, width)
    z = np.random.default_rng(2).random(band.places)

    np.testing.assert_allclose(band.solve(z), np.linalg.pinv(_matrix(band)) @ z, atol=1e-9)


@_SHAPES
def test_the_variance_matches_one_multinomial_draw(items: int, width: int) -> None:
    """Σ s² π - (Σ s π)², from the pseudo-inverse's rows."""
    band = Band(items, width)
    law = np.random.default_rng(3).dirichlet(np.ones(band.places))
    coefficients = np.linalg.pinv(_matrix(band))
    expected = coefficients**2 @ law - (coefficients @ law) ** 2

    np.testing.assert_allclose(band.variance(law), expected, rtol=1e-9, atol=1e-12)


