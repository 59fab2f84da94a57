import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from shuffledp.common.accounting.amplification import delta_upper, epsilon_upper
from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.count_distributions import Binomial, Groups, NegativeBinomial
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.lab.accountant.query import Poisson
from shuffledp.lab.bounds.attack import epsilon_lower
from tests.support.reductions import reduction_for
from tests.support.vectors import vectors

_VECTORS = vectors("accounting")["vectors"]
_ATTACKED = [vector for vector in _VECTORS if "eps_lower" in vector][::6]
_LARGE = [vector for vector in _VECTORS if vector["inputs"]["n"] >= 10_000]
_CASES = [
    pytest.param(vector, marks=pytest.mark.slow if vector in _LARGE and index % 14 else ())
    for index, vector in enumerate(_VECTORS, 1)
]


@pytest.mark.parametrize("vector", _CASES, ids=lambda vector: str(vector["inputs"]))
def test_reference_points_are_met_from_above(vector: dict[str, Any]) -> None:
    """
    ε at most .1 % above the certified value and at least the attack's; δ at most .2 % above.

    The attacks prove at least .998 of what the reference attack proves.
    """
    given = vector["inputs"]
    reduction = reduction_for(given["k"], float(given["eps_l"]), hashing=given["kind"] == "olh")
    anonymity_set = AnonymitySet(
        users=given["n"], dummies=given["M"], colluders=given.get("colluders", 0)
    )

    if "eps" in given:
        exact = vector["delta_exact_blanket"]
        assert (
            exact * (1 - 1e-12)
            <= delta_upper(reduction, anonymity_set, given["eps"])
            <= 1.002 * exact
        )
        return
    epsilon = epsilon_upper(reduction, anonymity_set, given["delta"])
    assert float(vector.get("eps_lower", 0)) <= epsilon <= 1.001 * float(vector["eps_upper"])
    if math.isfinite(epsilon):
        assert delta_upper(reduction, anonymity_set, epsilon) <= given["delta"]
    if vector in _ATTACKED:
        proven = epsilon_lower(reduction, anonymity_set, given["delta"])
        assert 0.998 * vector["eps_lower"] <= proven <= epsilon


def _exact(reduction: MatchCountReduction, others: int, dummies: int, epsilon: float) -> float:
    """Sum l·(p-q)/M · E[(H_x - e^ε·H_x' - M·(e^ε-1)·q/(p-q))₊] over M = 1 + Bin(n_h, γ) + D."""
    numbers = np.arange(others + 1)
    given = [_given(reduction, 1 + dummies + int(number), epsilon) for number in numbers]
    return float(stats.binom.pmf(numbers, others, min(1.0, reduction.blanket)) @ given)


def _given(reduction: MatchCountReduction, size: int, epsilon: float) -> float:
    """Sum over H_x' among `size` messages; given it, H_x has an excess in closed form."""
    l, growth = reduction.answers, math.exp(epsilon)  # noqa: E741  # as in the formula
    counts = np.arange(size + 1)
    trials = np.full(len(counts), size) if reduction.collision else size - counts
    chance = 1 / l if reduction.collision else 1 / (l - 1)
    limits = growth * counts + size * (growth - 1) * reduction.blanket / l / reduction.signal
    # E[(X - t)₊] of a binomial X: the mean beyond t, less t times the probability of being beyond.
    beyond = stats.binom.sf(np.floor(limits) - 1, np.maximum(trials - 1, 0), chance)
    excess = trials * chance * beyond - limits * stats.binom.sf(np.floor(limits), trials, chance)
    distribution = stats.binom.pmf(counts, size, 1 / l)
    return float(l * reduction.signal / size * (distribution @ np.maximum(excess, 0.0)))


@pytest.mark.parametrize("hashing", [True, False])
@pytest.mark.parametrize(
    "anonymity_set",
    [
        AnonymitySet(users=12, random_dummies=Poisson(25.0)),
        pytest.param(
            AnonymitySet(users=12, dummies=10, random_dummies=NegativeBinomial(2.0, 15.0)),
            marks=pytest.mark.slow,
        ),
        AnonymitySet(users=1, dummies=3, random_dummies=NegativeBinomial(0.5, 12.0)),
        AnonymitySet(users=12, dummies=5, known_dummies=9, random_dummies=Binomial(30, 0.5)),
        AnonymitySet(users=6, random_dummies=Groups(Binomial(12, 0.3), 4)),
    ],
    ids=str,
)
def test_random_dummies_are_averaged_over(anonymity_set: AnonymitySet, *, hashing: bool) -> None:
    """At most .2 % above the full sum over every number of dummies."""
    reduction = reduction_for(6, 3.0, hashing=hashing)
    assert anonymity_set.random_dummies is not None
    certain = anonymity_set.dummies - anonymity_set.known_dummies
    chances = anonymity_set.random_dummies.probabilities(np.arange(161.0))
    exact = sum(
        float(chance) * _exact(reduction, anonymity_set.others, max(0, certain + number), 0.6)
        for number, chance in enumerate(chances)
        if chance > 1e-14
    )

    bound = delta_upper(reduction, anonymity_set, 0.6)

    assert exact * (1 - 1e-9) <= bound <= 1.002 * exact + 1e-12


@pytest.mark.parametrize("collision", [0.0, 0.05, 1 / 6, 0.4])
def test_any_collision_probability_is_accounted_exactly(collision: float) -> None:
    """Against the full sum over messages of four classes."""
    reduction = MatchCountReduction.for_epsilon(
        answers=6, local_epsilon=3.0, hashed=True, collision=collision
    )
    size, epsilon = 24, 0.8
    both, one = collision / 6, (1 - collision) / 6
    counts = np.array(
        [
            (b, x, y)
            for b in range(size + 1)
            for x in range(size + 1 - b)
            for y in range(size + 1 - b - x)
        ]
    )
    rest = size - counts.sum(axis=1)
    chances = stats.multinomial.pmf(
        np.column_stack([counts, rest]), size, [both, one, one, 1 - both - 2 * one]
    )
    own, other = counts[:, 0] + counts[:, 1], counts[:, 0] + counts[:, 2]
    scale = 6 * reduction.signal / size
    loss = (reduction.blanket + scale * own) - math.exp(epsilon) * (
        reduction.blanket + scale * other
    )
    exact = float(chances @ np.maximum(loss, 0))

    bound = delta_upper(reduction, AnonymitySet(users=1, dummies=size - 1), epsilon)

    assert exact * (1 - 1e-9) <= bound <= 1.002 * exact


_MANY_ALONE = pytest.param(10**9, 0, marks=pytest.mark.slow)


def test_a_finite_epsilon_is_found_below_a_plateau() -> None:
    """Without local noise and with few dummies δ has a plateau."""
    reduction = MatchCountReduction.for_epsilon(answers=915, local_epsilon=math.inf, hashed=False)
    anonymity_set = AnonymitySet(users=50_000, random_dummies=Binomial(50_000, 0.12671))
    found = epsilon_upper(reduction, anonymity_set, 1e-3)

    assert delta_upper(reduction, anonymity_set, 3.0) <= 1e-3
    assert found < 3.0


@pytest.mark.parametrize("hashing", [True, False])
@pytest.mark.parametrize("answers", [2, pytest.param(3, marks=pytest.mark.slow), 1000])
@pytest.mark.parametrize(
    "local_epsilon",
    [
        pytest.param(1e-9, marks=pytest.mark.slow),
        1e-6,
        1.0,
        pytest.param(20.0, marks=pytest.mark.slow),
        50.0,
        math.inf,
    ],
)
@pytest.mark.parametrize(
    ("users", "dummies"), [(1, 0), (1, 10**9), (2, 1), _MANY_ALONE, (10**9, 10**9)]
)
def test_extreme_inputs_give_valid_figures(
    answers: int, local_epsilon: float, users: int, dummies: int, *, hashing: bool
) -> None:
    """0 < ε ≤ local ε, and 0 ≤ δ ≤ 1."""
    reduction = reduction_for(answers, local_epsilon, hashing=hashing)
    anonymity_set = AnonymitySet(users=users, dummies=dummies)
    epsilon = epsilon_upper(reduction, anonymity_set, 1e-9)

    assert 0 < epsilon <= local_epsilon
    assert 0 <= delta_upper(reduction, anonymity_set, 0.5) <= 1
