import numpy as np
import pytest
from scipy import stats

from common.accounting.binomial import interval_masses, stop_loss


@pytest.mark.parametrize("chance", [0.0, 1e-6, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("trials", [0, 1, 7, 400])
def test_stop_loss_is_the_sum_it_stands_for(trials: int, chance: float) -> None:
    """E[(X - t)_+] summed outcome by outcome, never below and within 1e-8."""
    outcomes = np.arange(trials + 1)
    chances = stats.binom.pmf(outcomes, trials, chance)
    thresholds = np.array([0.0, 0.3, 1.0, 2.5, trials / 2, float(trials), trials + 5.0, 1e30])
    exact = [float(chances @ np.maximum(outcomes - t, 0)) for t in thresholds]
    bound = stop_loss(np.full(len(thresholds), float(trials)), chance, thresholds)

    assert (bound >= np.array(exact) * (1 - 1e-12)).all()
    np.testing.assert_allclose(bound, exact, rtol=1e-8, atol=1e-12)


def test_interval_masses_keep_their_digits_in_both_tails() -> None:
    """Seven standard deviations out they still agree with the sum of single probabilities."""
    trials = np.asarray(10_000.0)
    for edges in ([4600.0, 4620.0, 4640.0, 4660.0], [5340.0, 5360.0, 5380.0, 5400.0]):
        masses = interval_masses(np.array(edges), trials, 0.5)
        exact = [
            stats.binom.pmf(np.arange(low, high), 10_000, 0.5).sum()
            for low, high in zip(edges[:-1], edges[1:], strict=True)
        ]
        np.testing.assert_allclose(masses, exact, rtol=1e-9)
