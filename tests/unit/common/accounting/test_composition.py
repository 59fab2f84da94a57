"""Composition, against full products of distributions."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from shuffledp.common.accounting.amplification import epsilon_upper
from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.composition import (
    ComposedRelease,
    composed_claims,
    composed_epsilon,
)
from shuffledp.common.accounting.releases import AmplifiedRelease
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from tests.support.reductions import of_grr, of_hashing


def _dominating_pair(reduction: MatchCountReduction, size: int) -> tuple[Vector, Vector]:
    """Return the distributions of (H_x, H_x') among `size` messages, given either value."""
    first, second = [], []
    for own, other in itertools.product(range(size + 1), repeat=2):
        if own + other > size:
            continue
        chance = stats.multinomial.pmf(
            [own, other, size - own - other],
            size,
            [1 / reduction.answers] * 2 + [1 - 2 / reduction.answers],
        )
        scale = reduction.answers * reduction.signal / size
        first.append(chance * (reduction.blanket + scale * own))
        second.append(chance * (reduction.blanket + scale * other))
    return np.array(first), np.array(second)


def _exact_delta(reduction: MatchCountReduction, size: int, rounds: int, epsilon: float) -> float:
    first, second = _dominating_pair(reduction, size)
    p, q = first, second
    for _ in range(rounds - 1):
        p, q = np.outer(p, first).ravel(), np.outer(q, second).ravel()
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize("rounds", [2, 3])
@pytest.mark.parametrize(("size", "local_epsilon"), [(12, 2.0), (8, math.inf), (14, 0.7)])
def test_equal_rounds_match_the_product(rounds: int, size: int, local_epsilon: float) -> None:
    """Never below, and at most 2 % above; with one user and dummies M is certain."""
    reduction = of_grr(5, local_epsilon)
    release = AmplifiedRelease(
        reduction=reduction, anonymity_set=AnonymitySet(users=1, dummies=size - 1)
    )
    delta = 0.02

    bound = composed_epsilon([release] * rounds, delta)

    if math.isinf(bound):
        assert _exact_delta(reduction, size, rounds, 50.0) > 0.99 * delta
        return
    assert _exact_delta(reduction, size, rounds, bound) <= delta
    assert _exact_delta(reduction, size, rounds, 0.98 * bound) > delta


def test_one_release_is_not_put_on_a_grid() -> None:
    """The δ that a device finds for a claim is that of the search for the claim's ε."""
    anonymity_set = AnonymitySet(users=1, dummies=40)
    alone = AmplifiedRelease(reduction=of_grr(5, math.inf), anonymity_set=anonymity_set)
    view = ComposedRelease(releases=(alone,))

    epsilon = view.epsilon(1e-3)
    assert 0.9e-3 < view.delta(epsilon) <= 1e-3
    assert alone.delta(epsilon) == view.delta(epsilon)


def test_thirty_rounds_match_the_reference() -> None:
    """Local hashing, g = 1239, ε0 = 8, two dummies each, 602,325 users; within 1 %, from below."""
    release = AmplifiedRelease(
        reduction=of_hashing(1239, 8.0),
        anonymity_set=AnonymitySet(users=602_325, dummies=2 * 602_325),
    )
    for rounds, reference in ((2, 0.159), (10, 0.375), (30, 0.675), (100, 1.294)):
        bound = composed_epsilon([release] * rounds, 1e-6)
        assert 0.99 * reference <= bound <= reference


def test_different_rounds_cost_between_the_largest_and_the_sum() -> None:
    """In any order."""
    small = AmplifiedRelease(reduction=of_grr(20, 3.0), anonymity_set=AnonymitySet(users=20_000))
    large = AmplifiedRelease(reduction=of_grr(50, 5.0), anonymity_set=AnonymitySet(users=2000))
    single = [epsilon_upper(one.reduction, one.anonymity_set, 1e-6) for one in (small, large)]

    both = composed_epsilon([small, large], 1e-6)

    assert max(single) < both < sum(single)
    assert both == pytest.approx(composed_epsilon([large, small], 1e-6), rel=1e-12)


def test_claims_compose_to_no_more_than_their_sum() -> None:
    """And to less if there are many and δ leaves room."""
    assert composed_claims([(0.3, 1e-7)], 1e-6) == pytest.approx(0.3)
    assert composed_claims([(0.3, 1e-7), (0.2, 1e-7)], 1e-6) <= 0.5
    assert composed_claims([(0.1, 1e-8)] * 100, 1e-4) < 6
    assert math.isinf(composed_claims([(0.1, 1e-6)] * 3, 1e-6))
    assert math.isinf(composed_claims([(math.inf, 1e-6), (0.1, 1e-6)], 1e-3))


@pytest.mark.parametrize(("rounds", "delta"), [(100, 1e-12), (1000, 1e-11), (2000, 1e-10)])
@pytest.mark.parametrize("epsilon", [2.0**-4, 2.0**-2, 1.0])
def test_rounding_in_transforms_never_lowers_a_bound(
    epsilon: float, rounds: int, delta: float
) -> None:
    """Binary responses, whose losses lie on the grid, against the binomial sum; within 1 %."""
    losses = (2 * np.arange(rounds + 1) - rounds) * epsilon
    masses = stats.binom.pmf(np.arange(rounds + 1), rounds, 1 / (1 + math.exp(-epsilon)))
    bound = composed_claims([(epsilon, 0.0)] * rounds, delta)
    exact, below = (
        float(masses @ -np.expm1(np.minimum(at - losses, 0))) for at in (bound, 0.99 * bound)
    )

    assert exact <= delta < below


def test_rounds_of_very_different_size_compose() -> None:
    """A tiny round costs almost nothing, and no memory."""
    tiny = AmplifiedRelease(reduction=of_grr(20, 1e-6), anonymity_set=AnonymitySet(users=10**6))
    large = AmplifiedRelease(reduction=of_grr(50, 5.0), anonymity_set=AnonymitySet(users=2000))
    alone = epsilon_upper(large.reduction, large.anonymity_set, 1e-6)

    assert composed_epsilon([tiny, large], 1e-6) == pytest.approx(alone, rel=5e-3)
    assert composed_claims([(1e-9, 0.0), (0.5, 0.0)], 1e-6) == pytest.approx(0.5, rel=1e-5)
    assert composed_claims([(0.0, 1e-9), (0.5, 0.0)], 1e-6) == pytest.approx(0.5, rel=1e-5)
    assert composed_claims([(0.0, 0.0), (0.0, 1e-7)], 1e-6) == 0.0


@pytest.mark.parametrize("revealed", [0.0, 1e-2])
@pytest.mark.parametrize("rounds", [2, 4])
def test_claims_are_never_composed_to_less_than_they_cost(rounds: int, revealed: float) -> None:
    """
    Binary randomized response, whose losses count heads, against the binomial sum.

    A claim's δ is the probability that a round reveals everything.
    """
    epsilon, delta = 0.7, 0.05
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    heads = np.arange(rounds + 1)
    one, two = stats.binom.pmf(heads, rounds, p), stats.binom.pmf(heads, rounds, 1 - p)

    bound = composed_claims([(epsilon, revealed)] * rounds, delta)
    hidden = 1 - float(np.maximum(one - math.exp(bound) * two, 0).sum())

    assert 1 - (1 - revealed) ** rounds * hidden <= delta
    assert bound <= rounds * epsilon
