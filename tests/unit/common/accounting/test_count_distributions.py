"""Distributions of counts, against 50-digit sums."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from shuffledp.common.accounting import binomial
from shuffledp.common.accounting.count_distributions import (
    Binomial,
    BinomialWindow,
    CountDistribution,
    Groups,
    NegativeBinomial,
    quantile,
    upper_quantile,
)
from shuffledp.lab.accountant.query import Poisson
from tests.support.tables import table


def _exact_at_most(distribution: CountDistribution, outcome: int) -> mpmath.mpf:
    """Sum P(X ≤ outcome) term by term in 50 digits."""
    with mpmath.workdps(50):
        if isinstance(distribution, Binomial):
            p = mpmath.mpf(distribution.chance)
            return mpmath.fsum(
                mpmath.binomial(distribution.trials, k)
                * p**k
                * (1 - p) ** (distribution.trials - k)
                for k in range(outcome + 1)
            )
        if isinstance(distribution, Poisson):
            mean = mpmath.mpf(distribution.mean)
            return mpmath.fsum(
                mpmath.exp(-mean) * mean**k / mpmath.factorial(k) for k in range(outcome + 1)
            )
        assert isinstance(distribution, NegativeBinomial)
        r, success = (
            mpmath.mpf(distribution.r),
            mpmath.mpf(distribution.r) / (distribution.r + distribution.mean),
        )
        return mpmath.fsum(
            mpmath.rf(r, k) / mpmath.factorial(k) * success**r * (1 - success) ** k
            for k in range(outcome + 1)
        )


@pytest.mark.parametrize(
    "distribution",
    [
        Binomial(300, 0.2),
        Binomial(40, 1e-3),
        Binomial(10**9, 3e-9),
        Binomial(10**9, 1e-7),
        Poisson(60.0),
        Poisson(0.3),
        NegativeBinomial(5.0, 60.0),
        NegativeBinomial(0.5, 10.0),
        NegativeBinomial(1000.0, 60.0),
    ],
    ids=str,
)
def test_both_tails_keep_nine_digits(distribution: CountDistribution) -> None:
    """Far below, at and far above the mean."""
    for outcome in (-1, 0, 1, 5, 20, 39, 60, 120):
        below, above = distribution.tails(np.array([float(outcome)]))
        exact = _exact_at_most(distribution, outcome)
        assert float(below[0]) == pytest.approx(float(exact), rel=1e-9)
        if outcome >= 0 and exact < 1 - mpmath.mpf(10) ** -40:
            assert float(above[0]) == pytest.approx(float(1 - exact), rel=1e-9)


@pytest.mark.parametrize(
    "distribution",
    [Binomial(300, 0.2), Poisson(60.0), NegativeBinomial(5.0, 60.0), Groups(Poisson(20.0), 3)],
    ids=str,
)
def test_masses_probabilities_and_quantiles_agree_with_the_tails(
    distribution: CountDistribution,
) -> None:
    """For every distribution."""
    edges = np.arange(0.0, 200.0)
    masses = binomial.masses_between(*distribution.tails(edges - 1))

    assert masses == pytest.approx(distribution.probabilities(edges[:-1]), rel=1e-7, abs=1e-300)
    for chance in (1e-12, 1e-3, 0.5):
        low, high = quantile(distribution, chance), upper_quantile(distribution, chance)
        assert distribution.tails(np.array([low]))[0][0] >= chance * (1 - 1e-9)
        assert distribution.tails(np.array([low - 1]))[0][0] < chance
        assert distribution.tails(np.array([high]))[1][0] <= chance * (1 + 1e-9)


@pytest.mark.parametrize(
    ("distribution", "thinned"),
    [
        (Binomial(300, 0.2), Binomial(300, 0.1)),
        (Poisson(60.0), Poisson(30.0)),
        (NegativeBinomial(5.0, 60.0), NegativeBinomial(5.0, 30.0)),
        (Groups(Poisson(60.0), 1), Poisson(30.0)),
        (Groups(Poisson(60.0), 2), None),
    ],
    ids=str,
)
def test_thinning_stays_in_the_family(
    distribution: CountDistribution, thinned: CountDistribution | None
) -> None:
    """Except for groups."""
    assert thinned == distribution.thinned(0.5)


@table("chance", [0.0, 1e-6, 0.02, 0.5, 1.0])
@table("trials", [0, 1, 7, 400])
def test_stop_loss_bounds_its_sum(trials: int, chance: float) -> None:
    """Never below the sum over outcomes, and within 1e-8."""
    outcomes = np.arange(trials + 1)
    chances = stats.binom.pmf(outcomes, trials, chance)
    thresholds = np.array([0.0, 0.3, 1.0, 2.5, trials / 2, float(trials), trials + 5.0, 1e30])
    exact = [float(chances @ np.maximum(outcomes - t, 0)) for t in thresholds]
    bound = binomial.stop_loss(np.full(len(thresholds), float(trials)), chance, thresholds)

    assert (bound >= np.array(exact) * (1 - 1e-12)).all()
    np.testing.assert_allclose(bound, exact, rtol=1e-8, atol=1e-12)


@table("chance", [0.5, 0.125, 0.0009765625])
@table("trials", [0, 1, 7, 1000])
def test_masses_are_the_true_ones_rounded_up(trials: int, chance: float) -> None:
    """By less than 1e-11, against rational arithmetic; the rest is at most the tail."""
    window = BinomialWindow.of(Binomial(trials, chance), 1e-30)
    p = Fraction(chance)

    for z, mass in enumerate(window.masses, window.first):
        true = math.comb(trials, z) * p**z * (1 - p) ** (trials - z)
        assert true <= Fraction(float(mass)) <= true * (1 + Fraction(1, 10**11))
    assert window.below <= 1.01e-30
    assert window.above <= 1.01e-30


def test_a_billion_trials_keep_nine_digits() -> None:
    """At the mode and five standard deviations off, against exact logarithms."""
    trials = 10**9
    window = BinomialWindow.of(Binomial(trials, 0.5), 1e-30)
    middle = trials // 2 - window.first
    step = 5 * 15_811

    ratio = window.masses[middle + step] / window.masses[middle]

    # The product of (n/2 - j) / (n/2 + j + 1) in exact arithmetic, by its logarithm.
    log = math.fsum(math.log1p(-(2 * j + 1) / (trials / 2 + j + 1)) for j in range(step))
    assert ratio == pytest.approx(math.exp(log), rel=1e-9)
    assert window.masses.sum() == pytest.approx(1, rel=1e-8)
