"""Distributions of counts, against 50-digit sums."""

import mpmath
import numpy as np
import pytest

from common.accounting.count_distributions import (
    Binomial,
    Conditioned,
    CountDistribution,
    Groups,
    NegativeBinomial,
    Poisson,
    interval_masses,
    quantile,
    upper_quantile,
)


def _exact_at_most(law: CountDistribution, outcome: int) -> mpmath.mpf:
    """Sum P(X ≤ outcome) term by term in 50 digits."""
    with mpmath.workdps(50):
        if isinstance(law, Binomial):
            p = mpmath.mpf(law.chance)
            return mpmath.fsum(
                mpmath.binomial(law.trials, k) * p**k * (1 - p) ** (law.trials - k)
                for k in range(outcome + 1)
            )
        if isinstance(law, Poisson):
            mean = mpmath.mpf(law.mean)
            return mpmath.fsum(
                mpmath.exp(-mean) * mean**k / mpmath.factorial(k) for k in range(outcome + 1)
            )
        assert isinstance(law, NegativeBinomial)
        r, success = mpmath.mpf(law.r), mpmath.mpf(law.r) / (law.r + law.mean)
        return mpmath.fsum(
            mpmath.rf(r, k) / mpmath.factorial(k) * success**r * (1 - success) ** k
            for k in range(outcome + 1)
        )


@pytest.mark.parametrize(
    "law",
    [
        Binomial(300, 0.2),
        Binomial(40, 1e-3),
        Poisson(60.0),
        Poisson(0.3),
        NegativeBinomial(5.0, 60.0),
        NegativeBinomial(0.5, 10.0),
        NegativeBinomial(1000.0, 60.0),
    ],
    ids=str,
)
def test_both_tails_keep_nine_digits(law: CountDistribution) -> None:
    """Far below, at and far above the mean."""
    for outcome in (0, 1, 5, 20, 39, 60, 120):
        below, above = law.tails(np.array([float(outcome)]))
        exact = _exact_at_most(law, outcome)
        assert float(below[0]) == pytest.approx(float(exact), rel=1e-9)
        if exact < 1 - mpmath.mpf(10) ** -40:
            assert float(above[0]) == pytest.approx(float(1 - exact), rel=1e-9)


@pytest.mark.parametrize(
    "law",
    [Binomial(300, 0.2), Poisson(60.0), NegativeBinomial(5.0, 60.0), Groups(Poisson(20.0), 3)],
    ids=str,
)
def test_masses_probabilities_and_quantiles_agree_with_the_tails(law: CountDistribution) -> None:
    """For every distribution."""
    edges = np.arange(0.0, 200.0)
    masses = interval_masses(edges, law)

    assert masses == pytest.approx(law.probabilities(edges[:-1]), rel=1e-7, abs=1e-300)
    for chance in (1e-12, 1e-3, 0.5):
        low, high = quantile(law, chance), upper_quantile(law, chance)
        assert law.tails(np.array([low]))[0][0] >= chance * (1 - 1e-9)
        assert law.tails(np.array([low - 1]))[0][0] < chance
        assert law.tails(np.array([high]))[1][0] <= chance * (1 + 1e-9)


@pytest.mark.parametrize(
    ("law", "thinned"),
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
    law: CountDistribution, thinned: CountDistribution | None
) -> None:
    """Except for groups."""
    assert thinned == law.thinned(0.5)


def test_a_conditioned_law_is_bounded_by_its_own_divided_by_what_is_left() -> None:
    """Tails and probabilities alike."""
    law = Conditioned(Binomial(10, 0.5), 0.2)
    outcome = np.arange(-1.0, 12.0)
    below, above = law.tails(outcome)

    np.testing.assert_allclose(below, Binomial(10, 0.5).tails(outcome)[0] / 0.8)
    np.testing.assert_allclose(above, Binomial(10, 0.5).tails(outcome)[1] / 0.8)
    np.testing.assert_allclose(
        law.probabilities(outcome), Binomial(10, 0.5).probabilities(outcome) / 0.8
    )
