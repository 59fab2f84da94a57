"""
Discrete noise against its exact law.

Each chi-square test has a fixed seed and fails by chance with probability 1e-7 over seeds.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from common.errors import TaskError
from common.mechanisms.sampling import (
    MAX_DENOMINATOR,
    _big_coins,
    _big_exponential_coins,
    discrete_gaussian,
    discrete_laplace,
    exponential_coins,
)
from tests.support.mechanisms import Scripted

_FALSE_ALARM = 1e-7
_DRAWS = 200_000


def _fits(drawn: NDArray[np.int64], support: NDArray[np.int64], law: NDArray[np.float64]) -> bool:
    """Compare counts with a law; what is expected less than ten times is put together."""
    counts = np.bincount(drawn - support[0], minlength=len(support))
    assert len(support) == len(counts)  # nothing lies beyond
    expected = law / law.sum() * len(drawn)
    rare = expected < 10
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    some = expected > 0
    return bool(stats.chisquare(observed[some], expected[some]).pvalue > _FALSE_ALARM)


@pytest.mark.parametrize(("over", "under"), [(1, 3), (1, 1), (7, 3), (12, 1), (100, 7)])
def test_laplace_noise_has_its_law(over: int, under: int) -> None:
    """P(x) ∝ e^(-|x|·under/over), over 200,000 draws."""
    drawn = discrete_laplace(over, under, _DRAWS, np.random.default_rng(1))
    support = np.arange(-60 * over // under - 60, 60 * over // under + 61)

    assert _fits(drawn, support, np.exp(-np.abs(support) * under / over))


def test_the_test_above_notices_two_percent() -> None:
    """Its power: a scale of 12.25 for 12 is rejected at this sample size."""
    drawn = discrete_laplace(49, 4, _DRAWS, np.random.default_rng(2))
    support = np.arange(-780, 781)

    assert not _fits(drawn, support, np.exp(-np.abs(support) / 12))


@pytest.mark.parametrize(
    "sigma_squared",
    [Fraction(1, 10), Fraction(1), Fraction(5, 2), Fraction(1000, 7), Fraction(10**4)],
)
def test_gaussian_noise_has_its_law(sigma_squared: Fraction) -> None:
    """P(x) ∝ e^(-x²/2σ²), over 30,000 draws."""
    drawn = discrete_gaussian(sigma_squared, 30_000, np.random.default_rng(3))
    reach = math.ceil(40 * math.sqrt(sigma_squared)) + 10
    support = np.arange(-reach, reach + 1)

    assert _fits(drawn, support, np.exp(-(support**2) / (2 * float(sigma_squared))))


def test_the_test_above_notices_a_tenth_in_the_variance() -> None:
    """Its power: σ² = 110 for 100 is rejected at this sample size."""
    drawn = discrete_gaussian(Fraction(110), 30_000, np.random.default_rng(4))
    support = np.arange(-410, 411)

    assert not _fits(drawn, support, np.exp(-(support**2) / 200))


def test_gaussian_noise_may_be_wider_than_64_bits_can_square() -> None:
    """At σ = 2^40 its square has the mean σ², to 7 standard errors of 2,000 draws (1e-11)."""
    drawn = discrete_gaussian(Fraction(2**80), 2000, np.random.default_rng(5))
    squares = (drawn / 2**40) ** 2

    assert abs(squares.mean() - 1) < 7 * math.sqrt(2 / 2000)


@pytest.mark.parametrize("numerator", [0, 1, 2, 5])
def test_a_coin_shows_heads_as_often_as_e_to_the_minus_gamma(numerator: int) -> None:
    """At γ = numerator/5, over every first, second and third draw: the series up to γ³/6."""
    heads = tails = Fraction(0)
    for first in range(5):
        if first >= numerator:
            heads += Fraction(1, 5)  # the first tail is at place 1, an odd one
            assert exponential_coins(np.array([numerator]), 5, Scripted([first])).all()
            continue
        for second in range(10):
            if second >= numerator:
                tails += Fraction(1, 50)
                coin = exponential_coins(np.array([numerator]), 5, Scripted([first], [second]))
                assert not coin.any()
    gamma = Fraction(numerator, 5)

    assert 1 - gamma == heads
    assert gamma - gamma**2 / 2 == tails


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(7, 2)])
def test_a_coin_of_any_size_has_its_chance(gamma: Fraction) -> None:
    """40,000 coins, 7 standard errors (1e-11 over seeds); the integers are beyond 64 bits."""
    scale = 3 * 2**100
    numerators = np.full(40_000, int(gamma * scale), dtype=object)
    heads = _big_exponential_coins(numerators, scale, np.random.default_rng(6)).mean()
    expected = math.exp(-gamma)

    assert abs(heads - expected) <= 7 * math.sqrt(expected * (1 - expected) / 40_000)


def test_a_chance_is_compared_as_far_as_it_agrees() -> None:
    """One in 2^80: 62 zeros, then a word below 2^44 wins and another loses."""
    for second, heads in [(2**44 - 1, True), (2**44, False)]:
        coin = _big_coins(np.array([1], dtype=object), 2**80, Scripted([0], [second]))
        assert [heads] == coin.tolist()
    assert not _big_coins(np.array([0], dtype=object), 2**80, Scripted([0])).any()


@pytest.mark.parametrize("scale", [(0, 1), (1, 0), (MAX_DENOMINATOR + 1, 1), (-1, 1)])
def test_a_scale_out_of_range_is_refused(scale: tuple[int, int]) -> None:
    """The message has the scale, which is public."""
    with pytest.raises(TaskError, match=f"{scale[0]}/{scale[1]}"):
        discrete_laplace(*scale, 1, np.random.default_rng(1))


@pytest.mark.parametrize("sigma_squared", [Fraction(0), Fraction(-1), Fraction(2**100)])
def test_a_variance_out_of_range_is_refused(sigma_squared: Fraction) -> None:
    """Nothing, less than nothing, and more than 64 bits hold."""
    with pytest.raises(TaskError, match="above 0"):
        discrete_gaussian(sigma_squared, 1, np.random.default_rng(1))


def test_a_scale_next_to_nothing_makes_no_noise() -> None:
    """e^(-2·10^9/3) is never seen."""
    assert not discrete_laplace(3, 2 * 10**9, 1000, np.random.default_rng(7)).any()


def test_no_draws_are_none() -> None:
    """Of either kind."""
    rng = np.random.default_rng(1)

    assert 0 == len(discrete_laplace(5, 1, 0, rng))
    assert 0 == len(discrete_gaussian(Fraction(5), 0, rng))
