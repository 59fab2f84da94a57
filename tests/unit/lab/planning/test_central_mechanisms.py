"""Errors of central mechanisms, against their distributions and the literature."""

import itertools
import math
from fractions import Fraction
from itertools import product
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.common.accounting.epsilon_search import gaussian_delta
from shuffledp.common.messages.result import Figures
from shuffledp.common.protocols import Kind
from shuffledp.common.task.draft import NumberDraft
from shuffledp.lab.planning.calibration import gaussian_mu
from shuffledp.lab.planning.central_mechanisms import (
    errors_of_items,
    errors_of_means,
    errors_of_texts,
    exponential_mechanism,
    gaussian_mse,
    permute_and_flip,
)
from shuffledp.lab.planning.requirements import Requirements

_HOURS: Final = {"draft_fields": {"numbers": NumberDraft(low=0.0, high=24.0)}}


def _ratio(kind: Kind, **changes: Any) -> float:
    """Return the error relative to that of one sum of sensitivity 1."""
    fields: dict[str, Any] = {"n_users": 5000, "n_min": 5000, "domain_size": 1, "delta": 1e-6}
    target = Requirements(kind=kind, central_epsilon=0.5, **fields | changes)
    return gaussian_mse(target) * (gaussian_mu(0.5, 1e-6) * 5000) ** 2


def _items(size: int) -> Figures:
    """Return the counts that a user with each item adds."""
    return np.eye(size)


def _numbers(count: int, ends: tuple[float, ...]) -> Figures:
    """Return the sums that users with any of these numbers in every place add."""
    return np.array(list(itertools.product(ends, repeat=count)))


@pytest.mark.parametrize(
    ("kind", "changes", "added"),
    [
        ("string", {}, _items(3)),
        ("open", {}, _items(5)),
        ("mean", {}, _numbers(1, (-1.0, 0.3, 1.0))),
        ("mean", _HOURS, _numbers(1, (0.0, 7.0, 24.0))),
        ("vector", {"domain_size": 3} | _HOURS, _numbers(3, (0.0, 9.0, 24.0))),
        ("key-value", {"domain_size": 4}, _numbers(4, (0.0, 1.0))),  # owns each key, or not
        ("categorical", {"domain_size": 2}, _items(2)),
        ("categorical", {"domain_size": 5, "rounds": 3}, _items(5)),
    ],
)
def test_noise_has_the_sensitivity_of_what_is_published(
    kind: Kind, changes: dict[str, Any], added: Figures
) -> None:
    """
    All neighbours of all data of two users are enumerated.

    Items sum to the number of users, so that their noise is projected; texts may be off the list.
    """
    size = added.shape[1]
    square = max(
        float(((one + rest - other - rest) ** 2).sum())
        for rest in added
        for one, other in itertools.permutations(added, 2)
    )
    kept = np.eye(size) - (kind == "categorical") / size
    of_each = square * (kept @ kept.T).trace() / size

    assert changes.get("rounds", 1) * of_each == pytest.approx(_ratio(kind, **changes))


@pytest.mark.parametrize("prefix", ["average", "worst"])
def test_prefixes_have_the_noise_of_shares_that_sum_to_one(prefix: str) -> None:
    """The noise of sixteen buckets, less its average, is summed up to each of them."""
    projection = math.sqrt(2) * (np.eye(16) - 1 / 16)
    sums = np.tril(np.ones((16, 16))) @ projection
    variances = (sums**2).sum(axis=1)

    expected = variances.max() if prefix == "worst" else variances.mean()
    found = _ratio("ordered", domain_size=16, prefix=prefix)
    assert expected == pytest.approx(found)


_2_LN_2: Final = 2 * math.log(2)
"""The ε at which a coin shows heads with probability 2^-gap."""


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.3, 20.0])
def test_the_errors_of_shares_are_those_of_the_noise(epsilon: float) -> None:
    """Discrete Laplace noise of scale 2/ε is summed; Gaussian noise has its exact δ."""
    found = errors_of_texts(10_000, epsilon, 1e-6)
    x = np.arange(-5000, 5001)
    weights = np.exp(-np.abs(x) * epsilon / 2)

    assert x**2 @ weights / weights.sum() / 1e8 == pytest.approx(found["laplace_mse"], rel=1e-9)
    mu = math.sqrt(2 / found["gaussian_mse"]) / 10_000
    assert gaussian_delta(mu, epsilon) == pytest.approx(1e-6, rel=1e-5)


@pytest.mark.parametrize("size", [3, 58])
def test_the_known_total_takes_the_average_off_the_noise_of_each_item(size: int) -> None:
    """The variance falls by 1/d; two items have the noise of one count, of half the sensitivity."""
    texts = errors_of_texts(10_000, 1.0, 1e-6)
    items = errors_of_items(np.array([10_000, *[0] * (size - 1)]), 1.0, 1e-6)
    two = errors_of_items(np.array([10_000, 0]), 1.0, 1e-6)
    projection = np.eye(size) - 1 / size

    left = np.diag(projection @ projection.T)
    for name in ("laplace_mse", "gaussian_mse"):
        assert left * texts[name] == pytest.approx(items[name])
    assert 2 * two["gaussian_mse"] == pytest.approx(texts["gaussian_mse"])
    assert errors_of_texts(10_000, 2.0, 1e-6)["laplace_mse"] == two["laplace_mse"]


def test_the_errors_of_means_grow_with_the_numbers() -> None:
    """Laplace errors grow with the square of their number, Gaussian errors linearly."""
    one, hundred = (errors_of_means(1000, size, 12.0, 0.5, 1e-6) for size in (1, 100))

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

    np.testing.assert_allclose(permute_and_flip(values, _2_LN_2), exact, rtol=1e-9)
    exponential = exponential_mechanism(values, _2_LN_2)
    np.testing.assert_allclose(exponential, weights / weights.sum(), rtol=1e-9)


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3, 1.0, 1000.0])
def test_probabilities_of_many_candidates_sum_to_one(epsilon: float) -> None:
    """There are a hundred thousand; very large gaps do not overflow."""
    gaps = np.append(np.random.default_rng(1).geometric(1e-3, 100_000), [0.0, 1e15])

    assert 1 == pytest.approx(permute_and_flip(gaps, epsilon).sum(), abs=1e-9)
    assert 1 == pytest.approx(exponential_mechanism(gaps, epsilon).sum(), abs=1e-9)


@given(st.lists(st.integers(0, 60), min_size=2, max_size=12), st.floats(0.01, 5.0))
def test_permute_and_flip_has_no_larger_regret(people: list[int], epsilon: float) -> None:
    """The exponential mechanism has no smaller one, and at most 2·ln(n)/ε."""
    counts = np.array([*people, 61])
    found = errors_of_items(counts, epsilon, 1e-6)
    total, n = counts.sum(), len(counts)

    assert found["regret"] <= found["exponential_regret"] + 1e-9
    assert found["exponential_regret"] * total <= 2 * math.log(n) / epsilon + 1e-6
