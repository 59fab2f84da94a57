"""Cells of δ(ε | M), the search for ε, and Gaussian privacy curves."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from shuffledp.common.accounting.conditional import COARSE_GRID, Cells
from shuffledp.common.accounting.epsilon_search import gaussian_delta, least_epsilon
from shuffledp.lab.planning.calibration import gaussian_mu
from tests.support.tables import table


@pytest.mark.parametrize(("trials", "chance"), [(40, 0.2), (10**6, 0.01)])
def test_chords_preserve_mass_and_mean(trials: int, chance: float) -> None:
    """To 1e-6: beyond 12 standard deviations almost nothing is left."""
    cells = Cells(np.array([[float(trials)]]), chance, COARSE_GRID)
    weights = cells.chords()

    assert weights.sum() == pytest.approx(1, rel=1e-6)
    assert (weights * cells.nodes).sum() == pytest.approx(trials * chance, rel=1e-6)


@pytest.mark.parametrize(("mu", "epsilon"), [(0.3, 0.1), (1.0, 1.0), (2.5, 4.0)])
def test_gaussian_delta_is_the_integral_that_defines_it(mu: float, epsilon: float) -> None:
    """Computed numerically."""

    def excess(x: float) -> float:
        return max(0.0, float(stats.norm.pdf(x - mu) - math.exp(epsilon) * stats.norm.pdf(x)))

    expected, _ = integrate.quad(excess, epsilon / mu + mu / 2, 40)

    assert gaussian_delta(mu, epsilon) == pytest.approx(expected, rel=1e-6)


@table("delta", [0.3, 1e-6, 1e-15])
@table("epsilon", [1e-3, 0.1, 5.0])
def test_mu_and_delta_are_inverse(epsilon: float, delta: float) -> None:
    """Without loss μ is 0; if everything is lost it is infinite."""
    assert gaussian_delta(gaussian_mu(epsilon, delta), epsilon) == pytest.approx(delta, rel=1e-4)
    assert gaussian_mu(epsilon, 0.0) == 0
    assert gaussian_mu(epsilon, 1.0) == math.inf


@table("guess", [1e-6, 0.1, 5.0, 90.0])
@table("rate", [0.5, 3.0, 1000.0])
def test_the_least_epsilon_for_a_delta_is_found(rate: float, guess: float) -> None:
    """On a curve with a known answer: never below it, at most 3e-5 above."""
    exact = math.log(1e6) / rate
    found = least_epsilon(
        lambda epsilon: math.exp(-rate * epsilon), delta=1e-6, local_epsilon=math.inf, guess=guess
    )

    assert math.exp(-rate * found) <= 1e-6
    assert exact * (1 - 1e-12) <= found <= exact * (1 + 3e-5)


def test_a_constant_curve_gives_the_local_epsilon() -> None:
    """Finite or not."""
    for local_epsilon in (2.0, math.inf):
        found = least_epsilon(lambda _: 0.5, delta=1e-6, local_epsilon=local_epsilon)
        assert local_epsilon == found
