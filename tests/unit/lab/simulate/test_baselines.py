"""Errors of central mechanisms, against their distributions and the literature."""

import math
from fractions import Fraction
from itertools import product
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.common.accounting.epsilon_search import gaussian_delta
from shuffledp.lab.simulate import baselines

_2_LN_2: Final = 2 * math.log(2)
"""The ε at which a coin shows heads with probability 2^-gap."""


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.3, 20.0])
def test_the_errors_of_shares_are_those_of_the_noise(epsilon: float) -> None:
    """Discrete Laplace noise of scale 2/ε is summed; Gaussian noise has its exact δ."""
    found = baselines.central_errors_of_texts(10_000, epsilon, 1e-6)
    x = np.arange(-5000, 5001)
    weights = np.exp(-np.abs(x) * epsilon / 2)

    assert x**2 @ weights / weights.sum() / 1e8 == pytest.approx(found["laplace_mse"], rel=1e-9)
    mu = math.sqrt(2 / found["gaussian_mse"]) / 10_000
    assert gaussian_delta(mu, epsilon) == pytest.approx(1e-6, rel=1e-5)


@pytest.mark.parametrize("size", [3, 58])
def test_the_known_total_takes_the_average_off_the_noise_of_each_item(size: int) -> None:
    """The variance falls by 1/d; two items have the noise of one count, of half the sensitivity."""
    texts = baselines.central_errors_of_texts(10_000, 1.0, 1e-6)
    items = baselines.central_errors_of_items(np.array([10_000, *[0] * (size - 1)]), 1.0, 1e-6)
    two = baselines.central_errors_of_items(np.array([10_000, 0]), 1.0, 1e-6)
    projection = np.eye(size) - 1 / size

    left = np.diag(projection @ projection.T)
    for name in ("laplace_mse", "gaussian_mse"):
        assert left * texts[name] == pytest.approx(items[name])
    assert 2 * two["gaussian_mse"] == pytest.approx(texts["gaussian_mse"])
    assert baselines.central_errors_of_texts(10_000, 2.0, 1e-6)["laplace_mse"] == two["laplace_mse"]


def test_the_errors_of_means_grow_with_the_numbers() -> None:
    """Laplace errors grow with the square of their number, Gaussian errors linearly."""
    one, hundred = (
        baselines.central_errors_of_means(1000, size, 12.0, 0.5, 1e-6) for size in (1, 100)
    )

    assert 2 * (24 / 0.5 / 1000) ** 2 == pytest.approx(one["laplace_mse"])
    assert 100**2 * one["laplace_mse"] == pytest.approx(hundred["laplace_mse"])
    assert 100 * one["gaussian_mse"] == pytest.approx(hundred["gaussian_mse"])
    mu = 24 / 1000 / math.sqrt(one["gaussian_mse"])
    assert gaussian_delta(mu, 0.5) == pytest.approx(1e-6, rel=1e-5)


def _exact(gaps: tuple[int, ...]) -> list[Fraction]:
    """Return permute-and-flip's distribution at ε = 2·ln 2 by enumerating all coin flips."""
    chances = [Fraction(1, 2**gap) for gap in gaps]
    distribution = [Fraction(0)] * len(gaps)
    for shown in product((False, True), repeat=len(gaps)):
        outcomes = zip(chances, shown, strict=True)
        weight = math.prod(chance if heads else 1 - chance for chance, heads in outcomes)
        for place, heads in enumerate(shown):
            if heads:
                distribution[place] += Fraction(weight) / sum(shown)
    return distribution


@pytest.mark.parametrize(
    "gaps", [(0,), (0, 0), (1, 0), (0, 3, 2), (0, 0, 0, 1), (9, 0, 8, 1, 9, 0), (0, 10, 7)]
)
def test_selection_probabilities_match_enumeration(gaps: tuple[int, ...]) -> None:
    """Permute-and-flip is enumerated by all coin flips, the exponential mechanism by weights."""
    values = np.array(gaps, dtype=np.float64)
    exact = [float(each) for each in _exact(gaps)]
    weights = 2.0**-values

    np.testing.assert_allclose(baselines.permute_and_flip(values, _2_LN_2), exact, rtol=1e-9)
    exponential = baselines.exponential_mechanism(values, _2_LN_2)
    np.testing.assert_allclose(exponential, weights / weights.sum(), rtol=1e-9)


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3, 1.0, 1000.0])
def test_probabilities_of_many_candidates_sum_to_one(epsilon: float) -> None:
    """There are a hundred thousand; very large gaps do not overflow."""
    gaps = np.append(np.random.default_rng(1).geometric(1e-3, 100_000), [0.0, 1e15])

    assert 1 == pytest.approx(baselines.permute_and_flip(gaps, epsilon).sum(), abs=1e-9)
    assert 1 == pytest.approx(baselines.exponential_mechanism(gaps, epsilon).sum(), abs=1e-9)


@given(st.lists(st.integers(0, 60), min_size=2, max_size=12), st.floats(0.01, 5.0))
def test_permute_and_flip_has_no_larger_regret(people: list[int], epsilon: float) -> None:
    """The exponential mechanism has no smaller one, and at most 2·ln(n)/ε."""
    counts = np.array([*people, 61])
    found = baselines.central_errors_of_items(counts, epsilon, 1e-6)
    total, n = counts.sum(), len(counts)

    assert found["regret"] <= found["exponential_regret"] + 1e-9
    assert found["exponential_regret"] * total <= 2 * math.log(n) / epsilon + 1e-6
