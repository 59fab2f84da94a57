import math

import numpy as np
import pytest
from scipy import stats

from common.accounting.amplification import delta_upper, epsilon_upper
from common.accounting.anonymity_set import AnonymitySet
from common.accounting.clones import CloneReduction, clones_2021, clones_2023, shortfall
from common.errors import AccountingError, BoundRangeError
from common.mechanisms.reduction import MatchCountReduction
from tests.support.exhaustive_delta import grr_law, true_delta


def _binary(local_epsilon: float) -> MatchCountReduction:
    return MatchCountReduction.for_epsilon(answers=2, local_epsilon=local_epsilon, hashed=False)


def _worlds(clones: CloneReduction, others: int, epsilon: float) -> float:
    """Give the reduction's δ by listing both worlds, draw by draw, as the papers describe them."""
    odds = math.exp(clones.log_odds)
    first = odds / (odds + 1) if math.isfinite(odds) else 1.0
    delta = 0.0
    for size in range(1, others + 2):
        own = np.arange(size + 1)
        chance = float(stats.binom.pmf(size - 1, others, clones.chance))
        with_first = stats.binom.pmf(own - 1, size - 1, 0.5)
        with_second = stats.binom.pmf(own, size - 1, 0.5)
        one = first * with_first + (1 - first) * with_second
        other = (1 - first) * with_first + first * with_second
        delta += chance * float(np.maximum(one - math.exp(epsilon) * other, 0).sum())
    return delta


@pytest.mark.parametrize(
    "clones",
    [
        CloneReduction.of_2021(1.5),
        CloneReduction.of_2023(1.5),
        CloneReduction.of_2021_with_a_coin(math.exp(1.5), math.exp(1.5)),
        CloneReduction(chance=0.9, log_odds=0.4),
        CloneReduction(chance=0.0, log_odds=30.0),
    ],
)
@pytest.mark.parametrize("others", [0, 1, 7, 60])
@pytest.mark.parametrize("epsilon", [0.0, 0.2, 0.39, 1.4])
def test_delta_is_that_of_the_two_worlds(
    clones: CloneReduction, others: int, epsilon: float
) -> None:
    """Never below the sum over every outcome, and within 1e-6 of it."""
    exact = _worlds(clones, others, epsilon)
    bound = clones.delta(AnonymitySet(users=others + 1), epsilon)

    assert exact * (1 - 1e-12) - 1e-15 <= bound <= exact * (1 + 1e-6) + 1e-20


def test_the_reference_point_is_met() -> None:
    """At n = 602,325, ε0 = 4, δ = 1e-6: .0678 and .0451, to 1 %."""
    crowd = AnonymitySet(users=602_325)

    assert clones_2021(_binary(4.0), crowd, 1e-6) == pytest.approx(0.0678, rel=0.01)
    assert clones_2023(_binary(4.0), crowd, 1e-6) == pytest.approx(0.0451, rel=0.01)


def test_a_coin_gains_a_little_on_the_clones_of_2021() -> None:
    """As many clones, e^-ε0, and a victim's side that is less than certain: .0648."""
    coin = CloneReduction.of_2021_with_a_coin(math.exp(4), math.exp(4))

    assert coin.chance == pytest.approx(CloneReduction.of_2021(4.0).chance)
    assert coin.epsilon(AnonymitySet(users=602_325), 1e-6, 4.0) == pytest.approx(0.0648, rel=2e-3)


@pytest.mark.parametrize("users", [2, 1000, 10**6])
def test_the_clones_of_2023_are_formula_1_of_binary_randomized_response(users: int) -> None:
    """Both are upper bounds of the same number."""
    crowd = AnonymitySet(users=users)
    epsilon = epsilon_upper(_binary(3.0), crowd, 1e-6)

    assert clones_2023(_binary(3.0), crowd, 1e-6) == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize("items", [2, 4])
@pytest.mark.parametrize("users", [1, 2, 4])
@pytest.mark.parametrize("epsilon", [0.3, 0.8])
def test_what_is_proven_for_every_randomizer_is_never_below_brute_force(
    items: int, users: int, epsilon: float
) -> None:
    """GRR, every data set."""
    laws = [grr_law(value, items, 1.0) for value in range(items)]
    truth = true_delta(laws, users=users, dummies=0, dummy=laws[0], epsilon=epsilon)
    coin = CloneReduction.of_2021_with_a_coin(math.e, math.e).delta(
        AnonymitySet(users=users), epsilon
    )

    assert truth <= coin + 1e-15
    assert coin <= CloneReduction.of_2021(1.0).delta(AnonymitySet(users=users), epsilon)


@pytest.mark.parametrize("threshold", [1e-17, 1e-6, 0.7, 1.0, 3.5, 40.2, 49.9])
@pytest.mark.parametrize("trials", [1.0, 2.0, 50.0, 100.0])
def test_shortfall_is_the_sum_it_stands_for(trials: float, threshold: float) -> None:
    """Never below, within 1e-6, and with its digits far below 1."""
    outcomes = np.arange(trials + 1)
    chances = stats.binom.pmf(outcomes, trials, 0.5)
    exact = float(chances @ np.maximum(threshold - outcomes, 0))
    bound = float(shortfall(np.array([trials]), np.array([threshold]))[0])

    assert exact * (1 - 1e-12) <= bound <= exact * (1 + 1e-6)


def test_dummies_are_ignored_and_colluders_are_not() -> None:
    """A figure without dummies stays an upper bound with them."""
    alone = clones_2021(_binary(2.0), AnonymitySet(users=5000), 1e-6)

    assert clones_2021(_binary(2.0), AnonymitySet(users=5000, dummies=10**6), 1e-6) == alone
    assert clones_2021(_binary(2.0), AnonymitySet(users=9000, colluders=4000), 1e-6) == alone


@pytest.mark.parametrize("local_epsilon", [1e-9, 1e-3, 1.0, 20.0, 50.0, 700.0])
@pytest.mark.parametrize("users", [1, 2, 10**9])
def test_the_corners_give_an_answer(local_epsilon: float, users: int) -> None:
    """Never NaN, above 0, never above the local ε; where nobody else is a clone, all of it."""
    for bound in (clones_2021, clones_2023):
        epsilon = bound(_binary(local_epsilon), AnonymitySet(users=users), 1e-9)
        assert 0 < epsilon <= local_epsilon
    if users == 1 and local_epsilon > 1e-3:
        assert clones_2021(_binary(local_epsilon), AnonymitySet(users=users), 1e-9) == local_epsilon


def test_delta_is_1_when_nobody_else_is_a_clone_and_the_victims_side_is_certain() -> None:
    """At ε0 = 50 an ε of 38 protects nothing; a rounded threshold would say that it does."""
    assert CloneReduction.of_2021(50.0).delta(AnonymitySet(users=1000), 38.0) == pytest.approx(1.0)
    assert delta_upper(_binary(50.0), AnonymitySet(users=1000), 38.0) == pytest.approx(
        1.0, abs=1e-4
    )


def test_without_noise_nobody_is_a_clone() -> None:
    """A refusal, not a number."""
    for bound in (clones_2021, clones_2023):
        with pytest.raises(BoundRangeError, match="finite local ε"):
            bound(_binary(math.inf), AnonymitySet(users=10), 1e-6)


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan, 1e-16])
def test_delta_has_a_range(delta: float) -> None:
    """From 1e-15 to below 1."""
    with pytest.raises(AccountingError, match="delta is"):
        clones_2021(_binary(1.0), AnonymitySet(users=10), delta)
