"""
Discrete noise against its exact distribution.

Each chi-square test has a fixed seed and fails by chance with probability 1e-7 over seeds.
"""

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.sampling import (
    MAX_SCALE,
    discrete_laplace,
    exact_coins,
    exponential_coins,
)
from tests.support.mechanisms import Scripted

_ALL = np.arange(2**16)
_FALSE_ALARM = 1e-7
_DRAWS = 200_000


def _fits(
    drawn: NDArray[np.int64], support: NDArray[np.int64], distribution: NDArray[np.float64]
) -> bool:
    """Compare counts with a distribution, merging cells with fewer than ten expected."""
    counts = np.bincount(drawn - support[0], minlength=len(support))
    assert len(support) == len(counts)  # nothing lies beyond
    expected = distribution / distribution.sum() * len(drawn)
    rare = expected < 10
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    some = expected > 0
    return bool(stats.chisquare(observed[some], expected[some]).pvalue > _FALSE_ALARM)


@pytest.mark.parametrize("scale", [1, 2, 7, 12, 100])
def test_laplace_noise_has_its_distribution(scale: int) -> None:
    """In 200,000 draws, P(x) ∝ e^(-|x|/scale)."""
    drawn = discrete_laplace(scale, _DRAWS, np.random.default_rng(1))
    support = np.arange(-60 * scale - 60, 60 * scale + 61)

    assert _fits(drawn, support, np.exp(-np.abs(support) / scale))


def test_a_scale_off_by_four_percent_is_rejected() -> None:
    """The test above has the power to tell a scale of 12 from 12.5."""
    drawn = discrete_laplace(12, _DRAWS, np.random.default_rng(2))
    support = np.arange(-780, 781)

    assert not _fits(drawn, support, np.exp(-np.abs(support) / 12.5))


@pytest.mark.parametrize("numerator", [0, 1, 2, 5])
def test_exponential_coins_have_their_probability(numerator: int) -> None:
    """At γ = numerator/5, all first and second draws give the series of e^(-γ) up to γ²."""
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


@pytest.mark.parametrize("scale", [0, MAX_SCALE + 1, -1])
def test_a_scale_out_of_range_is_refused(scale: int) -> None:
    """The message contains the scale, which is public."""
    with pytest.raises(TaskError, match=f"the scale of the noise is {scale}"):
        discrete_laplace(scale, 1, np.random.default_rng(1))


@pytest.mark.parametrize(("weight", "total"), [(1, 3), (2, 7), (5, 6), (1, 2), (0, 5), (7, 7)])
def test_a_coin_has_exactly_its_probability(weight: int, total: int) -> None:
    """Over all 16-bit words and integers below the total, the share of heads is exact."""
    heads = 0
    for second in range(total):
        decided = 2**16 * weight % total == 0
        rng = Scripted(_ALL) if decided else Scripted(_ALL, [second])
        heads += int(exact_coins(weight, total, _ALL.shape, rng).sum())

    assert weight * 2**16 == heads


def test_tiny_probabilities_are_exact() -> None:
    """At 2^-62 only the word 0 is undecided, and then only integers below 2^16 are heads."""
    for second, heads in [(0, 1), (2**16 - 1, 1), (2**16, 0), (2**62 - 1, 0)]:
        assert heads == exact_coins(1, 2**62, _ALL.shape, Scripted(_ALL, [second])).sum()
