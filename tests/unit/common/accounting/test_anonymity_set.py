"""Conditioned random dummies, against enumeration, and the mass of the number of messages."""

import numpy as np
import pytest
from scipy import stats

from shuffledp.common.accounting.amplification import delta_upper
from shuffledp.common.accounting.anonymity_set import AnonymitySet, Bins, BlanketSize
from shuffledp.common.accounting.count_distributions import (
    Binomial,
    Conditioned,
    CountDistribution,
    NegativeBinomial,
)
from shuffledp.common.accounting.dummy_entries import entry_of
from shuffledp.common.accounting.item_noise import each_item_release
from shuffledp.common.task.dummies import EXTRA_WEIGHT_SUM
from shuffledp.common.task.named_dummies import ItemDummies
from shuffledp.common.task.uniform_dummies import NegativeBinomialDummies
from shuffledp.lab.accountant.query import Poisson
from tests.support import exhaustive_delta
from tests.support.reductions import of_grr
from tests.support.reference_bounds import delta_lower


def _negative_binomial(trials: int, chance: float, most: int) -> NegativeBinomialDummies:
    weight = int(chance * EXTRA_WEIGHT_SUM)
    return NegativeBinomialDummies(per_user=0, trials=trials, extra_weight=weight, most=most)


def _total(spec: NegativeBinomialDummies, users: int) -> CountDistribution:
    total = entry_of(spec).total
    assert total is not None
    return total(spec, users)


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("chance", [0.125, 0.5])
@pytest.mark.parametrize("users", [1, 2, 3])
def test_dummies_of_each_item_give_an_upper_bound(users: int, chance: float, most: int) -> None:
    """Three items, enumerated; exact if nothing is drawn again."""
    weight = int(chance * EXTRA_WEIGHT_SUM)
    dummies = ItemDummies(trials=3, extra_weight=weight, most=most)
    release = each_item_release(dummies, users)
    distributions = [exhaustive_delta.grr_distribution(value, 3, 500.0) for value in range(3)]
    for epsilon in (0.0, 0.2, 0.7, 2.0):
        true = exhaustive_delta.true_delta_with_item_noise(
            distributions,
            users=users,
            noise={0: 1.0},
            own=exhaustive_delta.own_dummies_distribution(3, chance, most),
            epsilon=epsilon,
        )
        assert true * (1 - 1e-12) <= release.delta(epsilon)
        if most == 3:
            assert release.delta(epsilon) <= true * (1 + 1e-9)


@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize("users", [1, 2])
def test_negative_binomial_dummies_give_bounds_on_both_sides(users: int, most: int) -> None:
    """Conditioned for each user: the true δ is between attack and bound."""
    spec = _negative_binomial(1, 0.25, most)
    own = [0.75 * 0.25**number for number in range(most + 1)]
    distribution: exhaustive_delta.Added = {
        (number,): chance / sum(own) for number, chance in enumerate(own)
    }
    together = {
        number: chance
        for (number,), chance in exhaustive_delta.summed(*[distribution] * users).items()
    }
    distributions = [exhaustive_delta.grr_distribution(value, 3, 1.5) for value in range(3)]
    reduction = of_grr(3, 1.5)
    anonymity_set = AnonymitySet(users=users, random_dummies=_total(spec, users))
    for epsilon in (0.1, 0.5, 1.0):
        true = exhaustive_delta.true_delta(
            distributions,
            users=users,
            dummies=together,
            dummy=exhaustive_delta.uniform_distribution([(0,), (1,), (2,)]),
            epsilon=epsilon,
        )
        assert (
            delta_lower(reduction, anonymity_set, epsilon)
            <= true
            <= delta_upper(reduction, anonymity_set, epsilon)
        )


def test_conditioning_uniform_dummies_costs_its_probability() -> None:
    """By P(any user draws again); conditioning divides probabilities by that of the event."""
    spec = _negative_binomial(4, 0.5, 80)
    distribution = _total(spec, 1000)
    assert isinstance(distribution, Conditioned)
    missing = 1000 * stats.nbinom.sf(80, 4, 0.5)

    assert missing == pytest.approx(distribution.missing, rel=1e-6)
    assert NegativeBinomial(4000, 4000.0) == distribution.distribution
    conditioned, two = Conditioned(Binomial(4, 0.5), 0.5), np.array([2.0])
    assert conditioned.probabilities(two) == pytest.approx(2 * 6 / 16)
    np.testing.assert_allclose(conditioned.tails(two), [[2 * 11 / 16], [2 * 5 / 16]])


def test_dummies_that_are_almost_always_cut_are_not_counted() -> None:
    """No dummies are an upper bound."""
    assert Binomial(0, 0.0) == _total(_negative_binomial(4, 0.5, 1), 10_000)


def test_mass_below_the_first_bin_is_charged() -> None:
    """Of random dummies too."""
    blanket_size = BlanketSize(AnonymitySet(users=200, random_dummies=Poisson(50.0)), 0.5)
    bins, random = Bins(np.array([120.0, 140.0])), Bins(np.array([45.0, 50.0]))
    masses, weights, below = blanket_size.masses(bins, random)
    low_dummies = float(Poisson(50.0).tails(np.array([44.0]))[0][0])
    others = Binomial(199, 0.5)
    low = sum(
        float(weight) * float(others.tails(np.array([119.0 - 1 - edge]))[0][0])
        for weight, edge in zip(weights, random.edges, strict=True)
    )

    assert below == pytest.approx(low_dummies + low, rel=1e-6)
    assert float((weights @ masses).sum()) + below == pytest.approx(1, abs=1e-7)
