import math

import numpy as np
import pytest

from shuffledp.common.mechanisms.base import Mixture
from shuffledp.common.mechanisms.count_law import Draws
from shuffledp.common.mechanisms.randomized_response import Grr
from shuffledp.common.mechanisms.weights import ResponseWeights

_GRR = Grr(4, ResponseWeights.for_epsilon(1.0))


def test_expected_counts_give_back_the_truth() -> None:
    """Share and variance equal those computed by hand, with sampling and dummies per item."""
    mixture = Mixture(
        n_real=1000, n_dummies=500, keep_probability=0.5, item_mean=20.0, item_variance=9.0
    )
    truth = np.array([0.5, 0.3, 0.2, 0.0])
    p, q, dummy = _GRR.p / 2, _GRR.q / 2, _GRR.q_dummy
    counts = 1000 * (truth * p + (1 - truth) * q) + 500 * dummy + 20
    spread = 300 * p * (1 - p) + 700 * q * (1 - q) + 500 * dummy * (1 - dummy) + 9
    shares = _GRR.debias(counts, mixture)  # type: ignore[arg-type]  # fractions

    np.testing.assert_allclose(shares, truth, atol=1e-12)
    expected = spread / (1000 * (p - q)) ** 2
    assert _GRR.variance(truth, mixture)[1] == pytest.approx(expected)


def test_q_is_exact_if_p_rounds_to_one() -> None:
    """The formula (1 - p)/(k - 1) would give 0."""
    grr = Grr(3, ResponseWeights(true=2**62, other=1))

    assert grr.p == 1.0
    assert grr.q == 1 / (2**62 + 2)


@pytest.mark.parametrize("kept", [1.0, 0.5])
def test_intervals_follow_shares_that_lose_the_average_of_the_noise(kept: float) -> None:
    """Of two items half the difference of skewed numbers is left, unless the shuffler samples."""
    law = 0.9 ** np.arange(100)
    noise = Draws(1, np.arange(100), law / law.sum())
    mixture = Mixture(
        n_real=1000, keep_probability=kept, item_law=(noise,), total_is_known=False, item_mean=9.0
    )
    plain = Grr(2, ResponseWeights.for_epsilon(math.inf))
    below, above = plain.interval_table(mixture).reaches(0.95)

    assert (below == pytest.approx(above, rel=1e-6)) == (kept == 1)
