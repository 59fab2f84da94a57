import numpy as np
import pytest

from common.mechanisms.base import Mixture
from common.mechanisms.randomized_response import Grr
from common.mechanisms.support import debias, expected_mse, variance
from common.mechanisms.weights import ResponseWeights

_GRR = Grr(4, ResponseWeights.for_epsilon(1.0))
_MIXTURE = Mixture(n_real=1000, n_dummies=500)


def test_expected_counts_give_back_the_truth() -> None:
    """Debiasing is exact on expectations, with dummies."""
    truth = np.array([0.5, 0.3, 0.2, 0.0])
    expected = 1000 * (truth * _GRR.p + (1 - truth) * _GRR.q) + 500 * _GRR.q_dummy
    shares = debias(expected, _MIXTURE, _GRR)  # type: ignore[arg-type]

    np.testing.assert_allclose(shares, truth, atol=1e-12)


def test_the_variance_is_a_sum_of_bernoulli_variances() -> None:
    """One item by hand."""
    p, q = _GRR.p, _GRR.q
    expected = (300 * p * (1 - p) + 700 * q * (1 - q) + 500 * 0.25 * 0.75) / (1000 * (p - q)) ** 2
    found = variance(np.array([0.3]), _MIXTURE, _GRR)

    assert found[0] == pytest.approx(expected)


def test_the_expected_mse_needs_no_truth() -> None:
    """It is equal for every distribution."""
    truth = np.array([0.7, 0.2, 0.1, 0.0])
    found = variance(truth, _MIXTURE, _GRR).mean()

    assert found == pytest.approx(expected_mse(4, _MIXTURE, _GRR))


def test_sampling_and_item_noise_are_debiased_and_charged() -> None:
    """By hand, with half of the reports kept and 20 expected dummies of each item."""
    mixture = Mixture(n_real=1000, kept=0.5, item_mean=20.0, item_variance=9.0)
    truth = np.array([0.5, 0.3, 0.2, 0.0])
    p, q = _GRR.p / 2, _GRR.q / 2
    counts = 1000 * (truth * p + (1 - truth) * q) + 20
    spread = (300 * p * (1 - p) + 700 * q * (1 - q) + 9) / (1000 * (p - q)) ** 2

    np.testing.assert_allclose(debias(counts, mixture, _GRR), truth, atol=1e-12)  # type: ignore[arg-type]
    assert variance(truth, mixture, _GRR)[1] == pytest.approx(spread)
