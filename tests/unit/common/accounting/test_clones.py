import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from scipy import stats

from shuffledp.common.accounting.amplification import delta_upper, epsilon_upper
from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.clones import CloneRelease
from shuffledp.common.accounting.published import BoundSetting
from shuffledp.lab.bounds.other_bounds import clones_epsilon, clones_of_2021, clones_of_2023
from tests.support.reductions import of_grr
from tests.support.tables import table

Reduce = Callable[[float, AnonymitySet], CloneRelease]
_REDUCTIONS = (clones_of_2021, clones_of_2023)


def _epsilon(reduce: Reduce, local_epsilon: float, users: int, delta: float = 1e-6) -> float:
    setting = BoundSetting(
        reduction=of_grr(2, local_epsilon), anonymity_set=AnonymitySet(users=users), delta=delta
    )
    return clones_epsilon(reduce, setting)


def _worlds(clones: CloneRelease, epsilon: float) -> float:
    """Compute the reduction's δ from both worlds draw by draw, as in the papers."""
    odds = math.exp(clones.log_odds)
    first = odds / (odds + 1) if math.isfinite(odds) else 1.0
    delta, others = 0.0, clones.anonymity_set.others
    for size in range(1, others + 2):
        own = np.arange(size + 1)
        chance = float(stats.binom.pmf(size - 1, others, clones.chance))
        with_first = stats.binom.pmf(own - 1, size - 1, 0.5)
        with_second = stats.binom.pmf(own, size - 1, 0.5)
        p = first * with_first + (1 - first) * with_second
        q = (1 - first) * with_first + first * with_second
        delta += chance * float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
    return delta


@table(
    "make",
    [
        partial(clones_of_2021, 1.5),
        partial(clones_of_2023, 1.5),
        partial(CloneRelease.with_a_coin, 1.5),
        lambda among: CloneRelease(
            anonymity_set=among, local_epsilon=1.5, chance=0.9, log_odds=0.4
        ),
        lambda among: CloneRelease(
            anonymity_set=among, local_epsilon=30.0, chance=0.0, log_odds=30.0
        ),
    ],
)
@table("others", [0, 1, 7, 60])
@table("epsilon", [0.0, 0.2, 0.39, 1.4])
def test_delta_matches_the_two_worlds(
    make: Callable[[AnonymitySet], CloneRelease], others: int, epsilon: float
) -> None:
    """Never below the sum over outcomes, and within 1e-6."""
    clones = make(AnonymitySet(users=others + 1))
    exact, bound = _worlds(clones, epsilon), clones.delta(epsilon)

    assert exact * (1 - 1e-12) - 1e-15 <= bound <= exact * (1 + 1e-6) + 1e-20


def test_clones_match_known_figures_and_formula_1_for_a_bit() -> None:
    """At n = 602,325, ε0 = 4, δ = 1e-6: .0678 and .0451, to 1 %."""
    found = [_epsilon(reduce, 4.0, 602_325) for reduce in _REDUCTIONS]

    assert found == pytest.approx([0.0678, 0.0451], rel=0.01)
    for users in (2, 1000, 10**6):
        epsilon = epsilon_upper(of_grr(2, 3.0), AnonymitySet(users=users), 1e-6)
        assert _epsilon(clones_of_2023, 3.0, users) == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize("local_epsilon", [1e-9, 1e-3, 1.0, 20.0, 50.0, 700.0])
@pytest.mark.parametrize("users", [1, 2, 10**9])
def test_extreme_inputs_give_valid_figures(local_epsilon: float, users: int) -> None:
    """0 < ε ≤ local ε, reached without other users."""
    old, new = (_epsilon(reduce, local_epsilon, users, 1e-9) for reduce in _REDUCTIONS)

    assert 0 < old <= local_epsilon
    assert 0 < new <= local_epsilon
    if users == 1 and local_epsilon > 1e-3:
        assert old == local_epsilon


def test_delta_is_1_without_clones() -> None:
    """At ε0 = 50 an ε of 38 protects nothing; a rounded threshold would hide that."""
    assert clones_of_2021(50.0, AnonymitySet(users=1000)).delta(38.0) == pytest.approx(1.0)
    assert delta_upper(of_grr(2, 50.0), AnonymitySet(users=1000), 38.0) == pytest.approx(
        1.0, abs=1e-4
    )
