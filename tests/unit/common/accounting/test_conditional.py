"""δ(ε | M) between its bounds, the search for ε, and Gaussian privacy curves."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from common.accounting.conditional import COARSE_GRID, ConditionalDelta, grid_for
from common.accounting.epsilon_search import gaussian_delta, gaussian_mu, least_epsilon
from common.mechanisms.reduction import MatchCountReduction


def _exact(reduction: MatchCountReduction, size: int, epsilon: float, presence: float) -> float:
    """Sum the two binomials of formula 1 in full, for independent supports or one histogram."""
    signal = reduction.signal * presence
    counts = np.arange(size + 1)
    other = stats.binom.pmf(counts, size, 1 / reduction.answers)
    total = 0.0
    for h, chance in zip(counts, other, strict=True):
        trials, share = size - int(h), 1 / (reduction.answers - 1)
        if reduction.pairwise_independent:
            trials, share = size, 1 / reduction.answers
        own = stats.binom.pmf(counts, trials, share)
        scale = reduction.answers * signal / size
        losses = (1 - signal + scale * counts) - math.exp(epsilon) * (1 - signal + scale * h)
        total += float(chance) * float(own @ np.maximum(losses, 0))
    return total


@pytest.mark.parametrize("hashed", [True, False])
@pytest.mark.parametrize("presence", [1.0, 0.6])
@pytest.mark.parametrize(
    ("answers", "size", "epsilon"), [(3, 200, 0.3), (30, 900, 0.4), (6, 40, 1)]
)
def test_chords_and_centres_enclose_delta(
    presence: float, answers: int, size: int, epsilon: float, *, hashed: bool
) -> None:
    """Within .1 % of each other on a fine grid, within 20 % on the coarse one."""
    reduction = MatchCountReduction.for_epsilon(answers=answers, local_epsilon=4.0, hashed=hashed)
    exact = _exact(reduction, size, epsilon, presence)
    grid = grid_for(reduction, size, epsilon, 1e-3)
    for cells, gap in ((grid, 1e-3), (COARSE_GRID, 0.2)):
        conditional = ConditionalDelta(
            reduction, np.array([float(size)]), cells, np.array([presence])
        )
        above, below = float(conditional(epsilon)[0]), float(conditional.lower(epsilon)[0])

        assert below <= exact * (1 + 1e-12)
        assert exact * (1 - 1e-12) <= above
        assert above - below <= gap * exact


@pytest.mark.parametrize(("mu", "epsilon"), [(0.3, 0.1), (1.0, 1.0), (2.5, 4.0)])
def test_gaussian_delta_is_the_integral_that_defines_it(mu: float, epsilon: float) -> None:
    """Computed numerically."""

    def excess(x: float) -> float:
        return max(0.0, float(stats.norm.pdf(x - mu) - math.exp(epsilon) * stats.norm.pdf(x)))

    expected, _ = integrate.quad(excess, epsilon / mu + mu / 2, 40)

    assert gaussian_delta(mu, epsilon) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("delta", [0.3, 1e-6, 1e-15])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 5.0])
def test_mu_and_delta_are_inverse(epsilon: float, delta: float) -> None:
    """Without loss μ is 0; if everything is lost it is infinite."""
    assert gaussian_delta(gaussian_mu(epsilon, delta), epsilon) == pytest.approx(delta, rel=1e-4)
    assert gaussian_mu(epsilon, 0.0) == 0
    assert gaussian_mu(epsilon, 1.0) == math.inf


@pytest.mark.parametrize("guess", [1e-6, 0.1, 5.0, 90.0])
@pytest.mark.parametrize("rate", [0.5, 3.0, 1000.0])
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
