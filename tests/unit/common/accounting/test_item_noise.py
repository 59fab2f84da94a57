"""Noise on each item's count, against enumeration and full products."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from shuffledp.common.accounting.composition import composed_epsilon
from shuffledp.common.accounting.count_distributions import Binomial
from shuffledp.common.accounting.item_noise import ItemDistribution, ItemNoiseRelease
from shuffledp.common.task.shuffler_spec import RATIO_SUM, SummedNoise
from tests.support.exhaustive_delta import grr_distribution, true_delta_with_item_noise
from tests.support.reductions import geometric_noise


def _distribution(noise: ItemDistribution) -> dict[int, float]:
    """Return the probabilities of the noise, computed in exact fractions."""
    if isinstance(noise, SummedNoise):
        first, second = map(_distribution, noise.parts)
        found = dict.fromkeys(range(noise.most + 1), 0.0)
        for one, other in itertools.product(first, second):
            found[one + other] += first[one] * second[other]
        return found
    if isinstance(noise, Binomial):
        chance = Fraction(noise.chance)
        weights = {
            z: math.comb(noise.trials, z) * chance**z * (1 - chance) ** (noise.trials - z)
            for z in range(noise.trials + 1)
        }
    else:
        left = Fraction(noise.left_weight, RATIO_SUM)
        right = Fraction(noise.right_weight, RATIO_SUM)
        weights = {
            z: left ** (noise.peak - z) if z < noise.peak else right ** (z - noise.peak)
            for z in range(noise.most + 1)
        }
    total = sum(weights.values())
    return {z: float(weight / total) for z, weight in weights.items()}


_NOISES: list[ItemDistribution] = [
    Binomial(0, 0.5),
    Binomial(1, 0.5),
    Binomial(4, 0.5),
    Binomial(3, 0.125),
    geometric_noise(2, 0.5, 0.25, 4),
    geometric_noise(0, 0.5, 0.5, 3),
    geometric_noise(3, 0.25, 0.5, 3),
    SummedNoise((geometric_noise(1, 0.5, 0.25, 3), geometric_noise(2, 0.25, 0.5, 2))),
    SummedNoise((geometric_noise(2, 0.125, 0.25, 4), geometric_noise(0, 0.5, 0.5, 1))),
]


@pytest.mark.parametrize("users", [1, 2])
@pytest.mark.parametrize("kept", [1.0, pytest.param(0.75, marks=pytest.mark.slow), 0.25])
@pytest.mark.parametrize("noise", _NOISES, ids=str)
def test_delta_matches_the_worst_data_set(noise: ItemDistribution, kept: float, users: int) -> None:
    """Three items, enumerated: never below, and exact up to rounding."""
    release = ItemNoiseRelease(noise=noise, keep_probability=kept)
    exact_reports = [grr_distribution(value, 3, 500.0) for value in range(3)]
    for epsilon in (0.0, 1e-6, 0.3, 1.0, 3.0):
        true = true_delta_with_item_noise(
            exact_reports, users=users, noise=_distribution(noise), kept=kept, epsilon=epsilon
        )
        assert true * (1 - 1e-12) <= release.delta(epsilon) <= true * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize("kept", [pytest.param(1.0, marks=pytest.mark.slow), 0.3])
def test_wider_noise_is_summed_exactly(kept: float) -> None:
    """300 coins in rational arithmetic, where sums of floats would lose all digits."""
    trials, epsilon = 300, 1.5
    growth, beta = Fraction(math.exp(epsilon)), Fraction(kept)
    g = [Fraction(math.comb(trials, z), 2**trials) for z in range(trials + 1)] + [Fraction(0)]
    f = [(1 - beta) * g[z] + beta * (g[z - 1] if z else 0) for z in range(trials + 2)]
    true = sum(
        max(Fraction(0), f[one] * g[two] - growth * g[one] * f[two])
        for one, two in itertools.product(range(trials + 2), repeat=2)
        if one > two
    )
    release = ItemNoiseRelease(noise=Binomial(trials, 0.5), keep_probability=kept)

    assert float(true) <= release.delta(epsilon)
    assert release.delta(epsilon) <= float(true) * (1 + 1e-9) + 1e-29


def test_the_margin_for_rounding_costs_almost_nothing() -> None:
    """A billion trials at δ = 1e-15: at most 2e-4 of ε above the normal curve."""
    trials = 10**9
    mu = math.sqrt(2 / (trials / 4))
    epsilon = ItemNoiseRelease(noise=Binomial(trials, 0.5)).epsilon(1e-15)

    def tail(x: float) -> float:
        return math.erfc(x / math.sqrt(2)) / 2

    normal = tail(epsilon / mu - mu / 2) - math.exp(epsilon) * tail(epsilon / mu + mu / 2)
    assert normal == pytest.approx(1e-15, rel=0.02)


def test_without_noise_nothing_is_certified() -> None:
    """δ is the probability that the report is kept."""
    release = ItemNoiseRelease(noise=Binomial(0, 0.5), keep_probability=0.25)

    assert math.isinf(release.epsilon(1e-6))
    assert release.delta(50.0) == pytest.approx(0.25, rel=1e-9)
    assert math.isinf(release.local_epsilon)


def test_missing_noise_is_charged_in_full() -> None:
    """At every ε."""
    sure = ItemNoiseRelease(noise=Binomial(100, 0.5))
    unsure = ItemNoiseRelease(noise=Binomial(100, 0.5), missing=0.01)

    assert sure.delta(0.3) + 0.01 == pytest.approx(unsure.delta(0.3))
    assert math.isinf(unsure.epsilon(1e-3))


@pytest.mark.parametrize("kept", [1.0, 0.5])
@pytest.mark.parametrize("noise", [Binomial(12, 0.5), geometric_noise(3, 0.75, 0.5, 9)])
def test_two_rounds_match_the_product(noise: ItemDistribution, kept: float) -> None:
    """Never below, and at most 3 % above."""
    release, delta = ItemNoiseRelease(noise=noise, keep_probability=kept), 0.05
    g = np.array([*_distribution(noise).values(), 0.0])
    f = (1 - kept) * g + kept * np.concatenate([[0.0], g[:-1]])
    here, there = np.outer(f, g).ravel(), np.outer(g, f).ravel()
    one, two = np.outer(here, here).ravel(), np.outer(there, there).ravel()

    bound = composed_epsilon([release] * 2, delta)

    def exact(epsilon: float) -> float:
        return float(np.maximum(one - math.exp(epsilon) * two, 0).sum())

    if math.isinf(bound):
        assert exact(50.0) > 0.99 * delta
        return
    assert exact(bound) <= delta
    assert exact(0.97 * bound) > delta
