import math

import numpy as np
import pytest

from common.accounting.amplification import delta_upper, epsilon_upper
from common.accounting.anonymity_set import AnonymitySet
from common.accounting.reference.general_blanket import (
    BlanketPair,
    blanket_delta,
    blanket_epsilon,
    laplace_pair,
    rappor_pair,
)
from common.accounting.reference.randomizers import (
    duchi,
    optimized_unary,
    piecewise,
    rappor,
    symmetric_unary,
)
from common.errors import AccountingError
from common.mechanisms.reduction import MatchCountReduction
from tests.support.exhaustive_delta import grr_law, true_delta, uniform_law
from tests.support.reference_bounds import match_count_pair
from tests.support.report_laws import unary_law


def _grr(items: int, local_epsilon: float) -> MatchCountReduction:
    return MatchCountReduction.for_epsilon(answers=items, local_epsilon=local_epsilon, hashed=False)


@pytest.mark.parametrize(
    "reduction",
    [_grr(16, 3.0), _grr(2, 0.5), symmetric_unary(4.0), optimized_unary(2.0), piecewise(1.0)],
    ids=["grr", "binary", "sue", "oue", "piecewise"],
)
@pytest.mark.parametrize(
    "crowd",
    [
        pytest.param(AnonymitySet(users=50_000), marks=pytest.mark.slow),
        pytest.param(AnonymitySet(users=50_000, dummies=5000), marks=pytest.mark.slow),
        AnonymitySet(users=200, colluders=50),
        AnonymitySet(users=10, dummies=40),
    ],
    ids=str,
)
def test_the_general_blanket_matches_formula_1(
    reduction: MatchCountReduction, crowd: AnonymitySet
) -> None:
    """Two independent programs: ε to 1e-3."""
    epsilon = epsilon_upper(reduction, crowd, 1e-6)

    assert blanket_epsilon(match_count_pair(reduction), crowd, 1e-6) == pytest.approx(
        epsilon, rel=1e-3
    )


def _exact(pair: BlanketPair, others: int, dummies: int, epsilon: float) -> float:
    """Sum over every multiset of atoms, message by message."""
    terms = pair.first - math.exp(epsilon) * pair.second
    delta = 0.0
    for blanket in range(others + 1):
        size = 1 + blanket + dummies
        sums, chances = np.zeros(1), np.ones(1)
        for _ in range(size):
            sums = np.add.outer(sums, terms).ravel()
            chances = np.multiply.outer(chances, pair.chances).ravel()
        excess = float(chances @ np.maximum(sums, 0)) / size
        share = pair.blanket
        delta += (
            math.comb(others, blanket) * share**blanket * (1 - share) ** (others - blanket) * excess
        )
    return delta


@pytest.mark.parametrize("shared", [0, 1])
@pytest.mark.parametrize(("others", "dummies"), [(0, 0), (2, 0), (0, 2), (2, 1)])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.9])
def test_the_bound_matches_the_expectation(
    shared: int, others: int, dummies: int, epsilon: float
) -> None:
    """RAPPOR with two hashes, over all outcomes: never below, .1 % above."""
    pair = rappor_pair(0.3, 0.35, 0.7, hashes=2, shared=shared)
    exact = _exact(pair, others, dummies, epsilon)
    bound = blanket_delta(pair, AnonymitySet(users=others + 1, dummies=dummies), epsilon)

    assert exact * (1 - 1e-12) <= bound <= exact * 1.001 + 1e-15


@pytest.mark.parametrize(("users", "dummies"), [(1, 0), (2, 1), (3, 0)])
@pytest.mark.parametrize("epsilon", [0.2, 0.9, 1.5])
def test_the_bound_is_never_below_brute_force(users: int, dummies: int, epsilon: float) -> None:
    """GRR and a unary encoding, over all data sets."""
    crowd = AnonymitySet(users=users, dummies=dummies)
    grr = true_delta(
        [grr_law(value, 3, 2.0) for value in range(3)],
        users=users,
        dummies=dummies,
        dummy=uniform_law([(item,) for item in range(3)]),
        epsilon=epsilon,
    )
    chance = 1 / (math.exp(2.0) + 1)
    unary = true_delta(
        [unary_law(value, 2, 0.5, chance) for value in range(2)],
        users=users,
        dummies=dummies,
        dummy=unary_law(None, 2, 0.5, chance),
        epsilon=epsilon,
    )

    assert grr <= blanket_delta(match_count_pair(_grr(3, 2.0)), crowd, epsilon) + 1e-15
    assert unary <= blanket_delta(match_count_pair(optimized_unary(2.0)), crowd, epsilon) + 1e-15


def test_one_hash_is_basic_rappor() -> None:
    """By both programs."""
    crowd = AnonymitySet(users=20_000)
    epsilon = epsilon_upper(rappor(0.5, 0.25, 0.75), crowd, 1e-6)

    assert blanket_epsilon(rappor_pair(0.5, 0.25, 0.75, hashes=1), crowd, 1e-6) == pytest.approx(
        epsilon, rel=1e-3
    )


def test_shared_bloom_bits_never_raise_delta() -> None:
    """The least private pair shares none."""
    crowd = AnonymitySet(users=10_000)
    deltas = [
        blanket_delta(rappor_pair(0.5, 0.5, 0.75, hashes=4, shared=shared), crowd, 0.02)
        for shared in range(4)
    ]

    assert deltas == sorted(deltas, reverse=True)
    assert deltas[0] > deltas[3]


@pytest.mark.parametrize("local_epsilon", [1.0, 4.0])
@pytest.mark.parametrize("users", [5, 10_000])
def test_the_ends_are_the_least_private_laplace_inputs(local_epsilon: float, users: int) -> None:
    """Against a grid of pairs, at large and small ε."""
    crowd = AnonymitySet(users=users)
    for epsilon in (0.02 * local_epsilon, 0.3 * local_epsilon):
        worst = blanket_delta(laplace_pair(local_epsilon), crowd, epsilon)
        for first, second in [(1.0, 0.0), (1.0, -0.9), (0.5, -0.5), (0.9, -0.9), (0.2, -1.0)]:
            pair = laplace_pair(local_epsilon, first=first, second=second)
            assert blanket_delta(pair, crowd, epsilon) <= worst * (1 + 1e-6)


def test_one_user_has_the_delta_of_the_laplace_mechanism() -> None:
    """1 - e^((ε - ε0)/2) without dummies."""
    for epsilon in (0.0, 0.7, 1.9):
        exact = -math.expm1((epsilon - 2.0) / 2)
        bound = blanket_delta(laplace_pair(2.0), AnonymitySet(users=1), epsilon)
        assert exact * (1 - 1e-12) <= bound <= exact * 1.001


def test_the_laplace_mechanism_has_its_known_epsilon() -> None:
    """At n = 602,325, δ = 1e-6, below that of a bit of the same ε0."""
    expected = {1.0: 0.00406, 2.0: 0.01035, 4.0: 0.03629}
    for local_epsilon, reference in expected.items():
        crowd = AnonymitySet(users=602_325)
        epsilon = blanket_epsilon(laplace_pair(local_epsilon), crowd, 1e-6)
        assert epsilon == pytest.approx(reference, rel=2e-3)
        assert epsilon < epsilon_upper(duchi(local_epsilon), crowd, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("users", "dummies"), [(1, 0), (1, 10**5), (2, 1), (10**5, 0)])
@pytest.mark.parametrize("local_epsilon", [1e-6, 1.0, 20.0])
def test_extreme_inputs_give_valid_figures(users: int, dummies: int, local_epsilon: float) -> None:
    """0 < ε ≤ local ε, and 0 ≤ δ ≤ 1."""
    crowd = AnonymitySet(users=users, dummies=dummies)
    for pair in (laplace_pair(local_epsilon), match_count_pair(piecewise(local_epsilon))):
        assert 0 < blanket_epsilon(pair, crowd, 1e-9) <= pair.local_epsilon
        assert 0 <= blanket_delta(pair, crowd, 0.0) <= 1
        assert blanket_delta(pair, crowd, pair.local_epsilon) == 0.0


def test_without_noise_only_dummies_help() -> None:
    """pureDUMP: γ = 0, ε0 = ∞."""
    reduction = _grr(26, math.inf)
    pair = match_count_pair(reduction)
    crowd = AnonymitySet(users=1000, dummies=20_000)

    assert blanket_delta(pair, AnonymitySet(users=1000), 1.0) == pytest.approx(1.0, rel=1e-3)
    assert blanket_delta(pair, crowd, 0.3) == pytest.approx(
        delta_upper(reduction, crowd, 0.3), rel=1e-2
    )


@pytest.mark.parametrize("epsilon", [-0.1, math.nan])
def test_epsilon_has_a_range(epsilon: float) -> None:
    """At least 0."""
    with pytest.raises(AccountingError, match="epsilon is"):
        blanket_delta(laplace_pair(1.0), AnonymitySet(users=5), epsilon)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.9999])
def test_the_grid_is_fine_enough_near_the_local_epsilon(
    share: float,
) -> None:
    """There a message can weigh e^ε times more against than any weighs for."""
    reduction, crowd = _grr(4, 12.0), AnonymitySet(users=10_000, dummies=5)
    exact = delta_upper(reduction, crowd, share * 12.0)

    assert blanket_delta(match_count_pair(reduction), crowd, share * 12.0) == pytest.approx(
        exact, rel=1e-3
    )
