import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from common.accounting.gaussian import gaussian_delta
from common.errors import AccountingError, ValueRangeError
from common.messages.guarantee import REPLACE_ONE
from deploy.planning.planner import central_gaussian_mse
from deploy.planning.requirements import Wishes
from deploy.simulate.baselines.central_guarantee import CentralGuarantee
from deploy.simulate.baselines.central_histogram import CentralHistogram
from deploy.simulate.baselines.central_mean import CentralMean
from deploy.simulate.baselines.noise import GaussianNoise, LaplaceNoise

_EPSILONS = pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 3.3, 20.0, 100.0])


# --- Laplace ------------------------------------------------------------------------------------


@given(st.floats(1e-6, 100.0), st.integers(1, 2**29))
def test_no_shift_costs_more_than_the_promise_of_laplace_noise(
    epsilon: float, sensitivity: int
) -> None:
    """sensitivity/b ≤ ε as fractions, and short of it by next to nothing."""
    scale = LaplaceNoise(epsilon, sensitivity).scale

    assert Fraction(sensitivity) / scale <= Fraction(epsilon)
    assert float(Fraction(sensitivity) / scale) == pytest.approx(epsilon, rel=1e-6)
    assert max(scale.as_integer_ratio()) <= 2**50


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.3, 20.0])
def test_the_variance_of_laplace_noise_is_that_of_its_law(epsilon: float) -> None:
    """Summed over whole numbers, far beyond where anything is left."""
    noise = LaplaceNoise(epsilon, 2)
    x = np.arange(-5000, 5001)
    law = np.exp(-np.abs(x) / float(noise.scale))

    assert noise.variance == pytest.approx(x**2 @ law / law.sum(), rel=1e-9)


# --- Gaussian -----------------------------------------------------------------------------------


@_EPSILONS
@pytest.mark.parametrize("delta", [1e-15, 1e-6, 0.01, 0.5])
def test_gaussian_noise_is_calibrated_as_the_accountant_measures_it(
    epsilon: float, delta: float
) -> None:
    """But for the 4 steps² of whole numbers: never above δ, and below it by 1e-5 at most."""
    sensitivity = 2**20
    noise = GaussianNoise(epsilon, delta, sensitivity**2)
    mu = sensitivity / math.sqrt(noise.variance - 4)

    assert delta * (1 - 1e-5) <= gaussian_delta(mu, epsilon) <= delta


def _gaussian_law(sigma_squared: float) -> NDArray[np.float64]:
    reach = math.ceil(40 * math.sqrt(sigma_squared))
    law = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma_squared))
    return np.asarray(law / law.sum())


def _delta(law: NDArray[np.float64], shift: int, epsilon: float) -> float:
    """Sum (P(x-shift) - e^ε·P(x))_+ over whole numbers."""
    there = np.concatenate([np.zeros(shift), law])
    here = np.concatenate([law, np.zeros(shift)])
    return float(np.maximum(there - math.exp(epsilon) * here, 0).sum())


@pytest.mark.parametrize("sigma_squared", [1.0, 4.0, 9.0, 50.0])
@pytest.mark.parametrize("shift", [1, 2, 5])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0])
def test_whole_numbers_are_as_private_as_continuous_ones_with_less_noise(
    sigma_squared: float, shift: int, epsilon: float
) -> None:
    """One number moved by some steps: σ² + 4 in whole steps against σ², by brute force."""
    found = _delta(_gaussian_law(sigma_squared + 4), shift, epsilon)

    assert found <= gaussian_delta(shift / math.sqrt(sigma_squared), epsilon) + 1e-15


@pytest.mark.parametrize("sigma_squared", [1.0, 4.0, 9.0, 50.0])
@pytest.mark.parametrize("shift", [1, 2, 5])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0])
def test_so_are_two_numbers_that_move_apart(
    sigma_squared: float, shift: int, epsilon: float
) -> None:
    """
    As two counts do: what is told of them hangs on their difference alone.

    Of X, Y with v = (k, -k) the loss is k·(X - Y + k)/σ², so that δ sums over the law of X - Y.
    """
    law = _gaussian_law(sigma_squared + 4)
    apart = np.convolve(law, law[::-1])
    middle = len(apart) // 2
    loss = shift * (np.arange(len(apart)) - middle + shift) / (sigma_squared + 4)
    found = float(apart @ np.maximum(-np.expm1(epsilon - loss), 0))

    assert found <= gaussian_delta(math.sqrt(2) * shift / math.sqrt(sigma_squared), epsilon) + 1e-15


def test_the_same_noise_in_whole_numbers_would_not_be_enough() -> None:
    """What the 4 steps² are for: at σ = 1 a step costs more than the continuous formula says."""
    excess = [
        _delta(_gaussian_law(1.0), 1, epsilon) - gaussian_delta(1.0, epsilon)
        for epsilon in (0.1, 0.5, 1.0, 1.5)
    ]

    assert max(excess) > 0.001


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 1.5])
@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_what_is_drawn_keeps_the_promise_however_coarse_the_steps(
    steps: int, epsilon: float, mu: float
) -> None:
    """By brute force over the very law of the noise, at the δ that continuous noise would have."""
    delta = gaussian_delta(mu, epsilon)
    noise = GaussianNoise(epsilon, delta, steps**2)

    assert _delta(_gaussian_law(noise.variance), steps, epsilon) <= delta
    assert (steps / mu) ** 2 + 4 == pytest.approx(noise.variance, abs=2e-3)


def test_the_variance_of_gaussian_noise_is_that_of_its_law() -> None:
    """From σ² = 4 on, the least that is ever drawn."""
    for sigma_squared in (4.0, 5.5, 100.0):
        law = _gaussian_law(sigma_squared)
        x = np.arange(len(law)) - len(law) // 2
        assert sigma_squared == pytest.approx(x**2 @ law, rel=1e-12)


# --- histograms and means -----------------------------------------------------------------------


@_EPSILONS
def test_the_errors_of_shares_are_the_formulas_of_the_literature(epsilon: float) -> None:
    """Gaussian noise as the planner's yardstick has it; Laplace noise 2(2/ε)² at small ε."""
    wishes = Wishes(
        n_users=10_000, n_min=10_000, domain_size=50, central_epsilon=epsilon, delta=1e-6
    )
    gaussian = CentralHistogram.gaussian(epsilon, 1e-6).mse(10_000)
    laplace = CentralHistogram.laplace(epsilon).mse(10_000)

    assert central_gaussian_mse(wishes) == pytest.approx(gaussian, rel=3e-4)
    assert 1e-8 / (2 * math.sinh(epsilon / 4) ** 2) == pytest.approx(laplace, rel=1e-7)
    if epsilon <= 0.1:
        assert 8 / (epsilon * 1e4) ** 2 == pytest.approx(laplace, rel=1e-3)


@pytest.mark.parametrize("dimensions", [1, 2, 100])
def test_the_error_of_a_mean_grows_with_the_dimensions(dimensions: int) -> None:
    """Laplace noise by their square, Gaussian noise by their number; ranges have length 2."""
    laplace = CentralMean.laplace(0.5, dimensions).mse(1000)
    gaussian = CentralMean.gaussian(0.5, 1e-6, dimensions).mse(1000)
    one = CentralMean.gaussian(0.5, 1e-6).mse(1000)

    assert 2 * (2 * dimensions / 0.5 / 1000) ** 2 == pytest.approx(laplace, rel=1e-6)
    assert dimensions * one == pytest.approx(gaussian, rel=1e-6)


class _Silent:
    """Noise that is none."""

    guarantee = CentralGuarantee(epsilon=1.0, delta=0.0, theorem="none")
    variance = 0.0

    def draw(self, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw zeros."""
        del rng
        return np.zeros(size, dtype=np.int64)


@pytest.mark.parametrize("steps", [1, 1024])
def test_without_noise_shares_are_the_true_ones(steps: int) -> None:
    """Whatever a count's steps are."""
    shares = CentralHistogram(_Silent(), steps).release(
        np.array([1, 0, 3]), np.random.default_rng(1)
    )

    assert [0.25, 0.0, 0.75] == shares.tolist()


def test_without_noise_means_are_the_true_ones() -> None:
    """But for rounding to a millionth of the range."""
    values = np.array([[0.3, -1.0], [-0.1, 1.0], [0.7, 0.5]])
    means = CentralMean(_Silent(), 2).release(values, np.random.default_rng(1))

    np.testing.assert_allclose(means, [0.3, 0.5 / 3], atol=2e-6)


@pytest.mark.parametrize(
    ("made", "delta"),
    [
        (CentralHistogram.laplace(0.5), 0.0),
        (CentralHistogram.gaussian(0.5, 1e-6), 1e-6),
        (CentralMean.laplace(0.5, 3), 0.0),
        (CentralMean.gaussian(0.5, 1e-6, 3), 1e-6),
    ],
)
def test_a_guarantee_says_what_it_rests_on(made: Any, delta: float) -> None:
    """Figures, neighbours, theorem and what must be true."""
    found = made.guarantee

    assert (0.5, delta, REPLACE_ONE) == (found.epsilon, found.delta, found.neighbouring)
    assert "[CKS20]" in found.theorem
    assert "the collector sees every value" in found.assumptions[0]


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: LaplaceNoise(0.0, 2), r"epsilon is 0\.0"),
        (lambda: LaplaceNoise(math.inf, 2), "epsilon is inf"),
        (lambda: LaplaceNoise(1000.1, 2), r"epsilon is 1000\.1; .* at most 1000\.0"),
        (lambda: GaussianNoise(1e300, 1e-6, 2), r"epsilon is 1e\+300"),
        (lambda: LaplaceNoise(math.nan, 2), "epsilon is nan"),
        (lambda: LaplaceNoise(1.0, 0), "the sensitivity is 0"),
        (lambda: LaplaceNoise(1e-9, 2**30), "their ratio must be at most"),
        (lambda: GaussianNoise(1.0, 0.0, 2), r"delta is 0\.0"),
        (lambda: GaussianNoise(1.0, 1.0, 2), r"delta is 1\.0"),
        (lambda: GaussianNoise(-1.0, 0.1, 2), r"epsilon is -1\.0"),
        (lambda: CentralMean.laplace(1.0, 0), "there are 0 numbers"),
        (lambda: CentralMean.gaussian(1.0, 1e-6, 8193), "there are 8193 numbers"),
        (lambda: CentralGuarantee(epsilon=0.0, delta=0.0, theorem=""), r"epsilon is 0\.0"),
        (lambda: CentralGuarantee(epsilon=1.0, delta=-0.1, theorem=""), r"delta is -0\.1"),
    ],
)
def test_what_promises_nothing_is_refused(make: Any, rule: str) -> None:
    """By the figure."""
    with pytest.raises(AccountingError, match=rule):
        make()


@pytest.mark.parametrize("epsilon", [100.0, 1000.0])
def test_with_a_very_large_epsilon_there_is_no_noise_left(epsilon: float) -> None:
    """And no figure is out of range."""
    assert LaplaceNoise(epsilon, 1).variance == pytest.approx(2 * math.exp(-epsilon), rel=1e-4)
    assert 4 < GaussianNoise(epsilon, 1e-6, 1).variance < 4.1


@pytest.mark.parametrize("counts", [[0, 0], [3, -1]])
def test_counts_of_nobody_are_refused(counts: list[int]) -> None:
    """And counts below 0."""
    with pytest.raises(ValueRangeError, match="at least 0"):
        CentralHistogram.laplace(1.0).release(np.array(counts), np.random.default_rng(1))


@pytest.mark.parametrize("values", [[[1.5]], [[math.nan]], [[0.5, 0.5]], np.zeros((0, 1))])
def test_numbers_out_of_range_are_refused(values: Any) -> None:
    """And none at all."""
    with pytest.raises(ValueRangeError, match=r"number|nobody"):
        CentralMean.laplace(1.0).release(np.array(values), np.random.default_rng(1))
