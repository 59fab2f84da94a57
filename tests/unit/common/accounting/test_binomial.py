import itertools
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import stats

from common.accounting.binomial import at_most, interval_masses, more_than, stop_loss


@pytest.mark.parametrize("chance", [0.0, 1e-6, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("trials", [0, 1, 7, 400])
def test_stop_loss_bounds_its_sum(trials: int, chance: float) -> None:
    """Never below the sum over outcomes, and within 1e-8."""
    outcomes = np.arange(trials + 1)
    chances = stats.binom.pmf(outcomes, trials, chance)
    thresholds = np.array([0.0, 0.3, 1.0, 2.5, trials / 2, float(trials), trials + 5.0, 1e30])
    exact = [float(chances @ np.maximum(outcomes - t, 0)) for t in thresholds]
    bound = stop_loss(np.full(len(thresholds), float(trials)), chance, thresholds)

    assert (bound >= np.array(exact) * (1 - 1e-12)).all()
    np.testing.assert_allclose(bound, exact, rtol=1e-8, atol=1e-12)


def test_interval_masses_keep_their_digits_in_both_tails() -> None:
    """Seven standard deviations out they agree with sums of probabilities."""
    trials = np.asarray(10_000.0)
    for edges in ([4600.0, 4620.0, 4640.0, 4660.0], [5340.0, 5360.0, 5380.0, 5400.0]):
        masses = interval_masses(np.array(edges), trials, 0.5)
        exact = [
            stats.binom.pmf(np.arange(low, high), 10_000, 0.5).sum()
            for low, high in itertools.pairwise(edges)
        ]
        np.testing.assert_allclose(masses, exact, rtol=1e-9)


@pytest.mark.parametrize(
    ("trials", "chance"),
    [(10**9, 3e-9), (10**9, 8.4e-9), (10**9, 1e-7), (10**6, 1e-3), (10**4, 0.3)],
)
def test_tails_keep_their_digits_at_small_chances(trials: int, chance: float) -> None:
    """Against sums of 50-digit probabilities; scipy's own cdf is off by 5e-8 here."""
    mean = int(trials * chance)
    spread = int((trials * chance) ** 0.5) + 1
    for outcome in (max(0, mean - 4 * spread), mean, mean + 5 * spread):
        exact = _exact_at_most(outcome, trials, chance)
        at, more = (
            float(tail(np.array([float(outcome)]), np.array([float(trials)]), chance)[0])
            for tail in (at_most, more_than)
        )
        assert at == pytest.approx(float(exact), rel=2e-10)
        assert more == pytest.approx(float(1 - exact), rel=2e-10)


def _exact_at_most(outcome: int, trials: int, chance: float) -> Decimal:
    """P(X ≤ outcome), term by term in 50 digits."""
    with localcontext(prec=50):
        p = Decimal(chance)
        term = ((1 - p).ln() * trials).exp()
        total = term
        for k in range(outcome):
            term = term * (trials - k) / (k + 1) * p / (1 - p)
            total += term
        return +total


def test_the_ends_of_the_range_have_their_own_values() -> None:
    """0 below 0, and 1 from the number of trials on."""
    outcomes = np.array([-1.0, 5.0, 6.0])

    assert [0.0, 1.0, 1.0] == at_most(outcomes, np.full(3, 5.0), 0.5).tolist()
    assert [1.0, 0.0, 0.0] == more_than(outcomes, np.full(3, 5.0), 0.5).tolist()
