import math

import pytest
from scipy import integrate, stats

from common.accounting.gaussian import gaussian_delta, gaussian_mu


@pytest.mark.parametrize(("mu", "epsilon"), [(0.3, 0.1), (1.0, 1.0), (2.5, 4.0)])
def test_delta_is_the_mass_by_which_one_bell_curve_exceeds_the_other(
    mu: float, epsilon: float
) -> None:
    """Integrated numerically, as δ is defined."""

    def excess(x: float) -> float:
        return max(0.0, float(stats.norm.pdf(x - mu) - math.exp(epsilon) * stats.norm.pdf(x)))

    expected, _ = integrate.quad(excess, epsilon / mu + mu / 2, 40)

    assert gaussian_delta(mu, epsilon) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("delta", [0.3, 1e-6, 1e-15])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 5.0])
def test_mu_gives_back_its_delta(epsilon: float, delta: float) -> None:
    """The two are inverse to each other."""
    assert gaussian_delta(gaussian_mu(epsilon, delta), epsilon) == pytest.approx(delta, rel=1e-4)


def test_no_delta_and_every_delta_are_the_ends() -> None:
    """Nothing lost is μ = 0; everything is infinity."""
    assert gaussian_mu(1.0, 0.0) == 0
    assert gaussian_mu(1.0, 1.0) == math.inf
