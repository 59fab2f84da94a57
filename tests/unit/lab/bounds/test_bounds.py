"""The published bounds and the general blanket, against known figures, sums and each other."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from shuffledp.common.accounting.amplification import epsilon_upper
from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.lab.bounds.general_blanket import (
    BlanketPair,
    blanket_delta,
    blanket_epsilon,
    laplace_pair,
    rappor_pair,
)
from shuffledp.lab.bounds.other_bounds import COMPARED, VariationRatio, compare
from shuffledp.lab.bounds.randomizers import (
    duchi,
    optimized_unary,
    piecewise,
    rappor_probabilities,
    symmetric_unary,
)
from tests.support.exhaustive_delta import grr_distribution, true_delta
from tests.support.reductions import reduction_for
from tests.support.reference_bounds import match_count_pair, unary


def _grr(items: int, local_epsilon: float) -> MatchCountReduction:
    return reduction_for(items, local_epsilon, hashing=False)


@pytest.mark.parametrize(
    ("make", "expected"),
    [(duchi, 0.0450), (piecewise, 0.0425), (symmetric_unary, 0.0397), (optimized_unary, 0.0310)],
)
def test_randomizers_match_known_figures(
    make: Callable[[float], MatchCountReduction], expected: float
) -> None:
    """At n = 602,325, ε0 = 4, δ = 1e-6, to .5 %; γ + signal = 1 and 1 + l·signal/γ = e^ε0."""
    assert epsilon_upper(make(4.0), AnonymitySet(users=602_325), 1e-6) == pytest.approx(
        expected, rel=5e-3
    )
    for local_epsilon in (1e-9, 0.3, 4.0, 20.0):
        reduction = make(local_epsilon)
        assert reduction.blanket + reduction.signal == pytest.approx(1, abs=1e-15)
        ratio = math.log1p(reduction.answers * reduction.signal / reduction.blanket)
        assert ratio == pytest.approx(local_epsilon, rel=1e-9)
        assert local_epsilon <= reduction.local_epsilon


def test_every_bound_gives_a_figure_or_its_reason() -> None:
    """For local hashing and for a randomizer with a real l, without dummies."""
    answers = compare(reduction_for(56, 4.0, hashing=True), AnonymitySet(users=602_325), 1e-6)

    assert [name for name, _ in COMPARED] == [name for name, _ in answers]
    figures = [answer for _, answer in answers if isinstance(answer, float)]
    expected = [0.1922, 0.1978, 0.0674, 0.0450, 0.0648, 0.0309, 0.0622]
    assert figures == pytest.approx(expected, rel=2e-3)
    reasons = [answer for _, answer in answers if isinstance(answer, str)]
    assert len(reasons) == 4
    assert "reports without noise" in reasons.pop()
    assert all("here reports are hashed" in reason for reason in reasons)

    answers = compare(piecewise(2.0), AnonymitySet(users=100_000), 1e-6)
    assert all("not a whole number of answers" in str(answer) for _, answer in answers[:6])
    assert all(isinstance(answer, float) for _, answer in answers[6:])


def test_the_published_reduction_is_below_the_true_delta() -> None:
    """GRR over 4 items, 8 users, ε0 = 1, ε = .8: a third of it; the certified figure is above."""
    pair, anonymity_set = VariationRatio.of(_grr(4, 1.0)), AnonymitySet(users=8)
    distributions = [grr_distribution(value, 4, 1.0) for value in range(4)]
    truth = true_delta(distributions, users=8, dummies=0, dummy=distributions[0], epsilon=0.8)

    assert truth == pytest.approx(7.231e-4, rel=1e-3)
    assert pair.reduction_delta(anonymity_set, 0.8) == pytest.approx(2.319e-4, rel=1e-3)
    assert truth <= pair.certified_delta(anonymity_set, 0.8)


@pytest.mark.parametrize("local_epsilon", [0.1, 2.0, 20.0])
def test_laplace_atoms_are_above_in_convex_order(local_epsilon: float) -> None:
    """E(R_x/U - t)_+ under U: never below its integral, within 1e-3; the mean is 1."""
    pair = laplace_pair(local_epsilon)
    rate = local_epsilon / 2
    points = np.linspace(0, 1, 2_000_001)
    middle = (points[1:] + points[:-1]) / 2
    weights = rate / 2 * np.exp(-rate * middle) * np.diff(points)
    ratios = np.exp(rate * (2 * middle - 1))

    for level in (0.5, 1.0, 2.0, math.exp(rate) * 0.9):
        exact = float(weights @ np.maximum(ratios - level, 0))
        exact += math.exp(-rate) / 2 * max(0.0, math.exp(rate) - level)
        exact += max(0.0, math.exp(-rate) - level) / 2
        split = float(pair.chances @ np.maximum(pair.first - level, 0))
        assert exact * (1 - 1e-9) <= split <= exact * 1.001 + 1e-15
    assert float(pair.chances @ pair.first) == pytest.approx(1, abs=1e-13)


def test_the_largest_ratio_is_the_local_epsilon() -> None:
    """For every kind of pair."""
    for pair in (
        laplace_pair(1.3),
        rappor_pair(0.5, 0.3, 0.7, hashes=3),
        match_count_pair(piecewise(1.3)),
    ):
        ratio = float(np.max((pair.first / pair.second)[pair.chances > 0]))
        assert math.log(ratio) == pytest.approx(pair.local_epsilon, rel=1e-12)
        assert (pair.first >= pair.blanket * (1 - 1e-12)).all()


@pytest.mark.parametrize(
    ("pair", "reduction"),
    [
        (match_count_pair(reduction), reduction)
        for reduction in (_grr(16, 3.0), _grr(2, 0.5), optimized_unary(2.0), piecewise(1.0))
    ]
    + [(rappor_pair(0.5, 0.25, 0.75, hashes=1), unary(*rappor_probabilities(0.5, 0.25, 0.75)))],
    ids=["grr", "binary", "oue", "piecewise", "basic rappor"],
)
def test_the_general_blanket_matches_formula_1(
    pair: BlanketPair, reduction: MatchCountReduction
) -> None:
    """Two independent programs: ε to 1e-3."""
    for anonymity_set in (
        AnonymitySet(users=200, colluders=50),
        AnonymitySet(users=10, dummies=40),
    ):
        epsilon = epsilon_upper(reduction, anonymity_set, 1e-6)
        assert blanket_epsilon(pair, anonymity_set, 1e-6) == pytest.approx(epsilon, rel=1e-3)


def test_shared_bloom_bits_never_raise_delta() -> None:
    """Of words that set four bits, the least private pair shares none."""
    anonymity_set, deltas = AnonymitySet(users=10_000), []
    set_probability, unset_probability = rappor_probabilities(0.5, 0.5, 0.75)
    shown = np.array([unset_probability, 1 - unset_probability])
    ratios = np.array([set_probability, 1 - set_probability]) / shown
    for shared in range(4):
        pair = rappor_pair(0.5, 0.5, 0.75, hashes=4 - shared)
        for _ in range(shared):
            pair = BlanketPair(
                blanket=pair.blanket * ratios[1],
                local_epsilon=pair.local_epsilon,
                chances=np.outer(pair.chances, shown).ravel(),
                first=np.outer(pair.first, ratios).ravel(),
                second=np.outer(pair.second, ratios).ravel(),
            )
        deltas.append(blanket_delta(pair, anonymity_set, 0.02))

    assert deltas == sorted(deltas, reverse=True)
    assert deltas[0] > deltas[3]


@pytest.mark.parametrize("local_epsilon", [1.0, 4.0])
@pytest.mark.parametrize("users", [5, 10_000])
def test_the_ends_are_the_least_private_laplace_inputs(local_epsilon: float, users: int) -> None:
    """Against other pairs on a fine grid, which can only lower their δ; at large and small ε."""
    anonymity_set, rate = AnonymitySet(users=users), local_epsilon / 2
    edges = np.concatenate([[-np.inf], np.linspace(-1, 1, 2001), [np.inf]])
    uniform, *others = (
        np.diff(stats.laplace.cdf(edges, value, 1 / rate))
        for value in (0.0, 1.0, 0.5, 0.9, 0.2, -0.9, -0.5, -1.0)
    )
    for epsilon in (0.02 * local_epsilon, 0.3 * local_epsilon):
        worst = blanket_delta(laplace_pair(local_epsilon), anonymity_set, epsilon)
        for first, second in ((0, 4), (1, 5), (2, 4), (3, 6)):
            pair = BlanketPair(
                blanket=math.exp(-rate),
                local_epsilon=local_epsilon,
                chances=uniform,
                first=others[first] / uniform,
                second=others[second] / uniform,
            )
            assert blanket_delta(pair, anonymity_set, epsilon) <= worst * (1 + 1e-6)


def test_the_laplace_mechanism_has_its_known_epsilon() -> None:
    """At n = 602,325, δ = 1e-6, below that of a bit of the same ε0."""
    for local_epsilon, reference in ((1.0, 0.00406), (2.0, 0.01035), (4.0, 0.03629)):
        anonymity_set = AnonymitySet(users=602_325)
        epsilon = blanket_epsilon(laplace_pair(local_epsilon), anonymity_set, 1e-6)
        assert epsilon == pytest.approx(reference, rel=2e-3)
        assert epsilon < epsilon_upper(duchi(local_epsilon), anonymity_set, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("users", "dummies"), [(1, 0), (1, 10**5), (2, 1), (10**5, 0)])
@pytest.mark.parametrize("local_epsilon", [1e-6, 1.0, 20.0])
def test_extreme_inputs_give_valid_figures(users: int, dummies: int, local_epsilon: float) -> None:
    """0 < ε ≤ local ε, and 0 ≤ δ ≤ 1."""
    anonymity_set = AnonymitySet(users=users, dummies=dummies)
    for pair in (laplace_pair(local_epsilon), match_count_pair(piecewise(local_epsilon))):
        assert 0 < blanket_epsilon(pair, anonymity_set, 1e-9) <= pair.local_epsilon
        assert 0 <= blanket_delta(pair, anonymity_set, 0.0) <= 1
        assert blanket_delta(pair, anonymity_set, pair.local_epsilon) == 0.0
