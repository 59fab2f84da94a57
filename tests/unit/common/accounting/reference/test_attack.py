"""Attacks: lower bounds that are never above brute force, and close to formula 1."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.accounting.amplification import delta_upper, epsilon_upper
from common.accounting.anonymity_set import AnonymitySet
from common.accounting.conditional import ConditionalDelta, grid_for
from common.accounting.count_distributions import Binomial, Groups, Poisson
from common.accounting.reference.attack import epsilon_lower
from common.errors import AccountingError
from common.mechanisms.reduction import MatchCountReduction
from tests.support.exhaustive_delta import Law, grr_law, true_delta, uniform_law
from tests.support.reference_bounds import delta_lower

_VECTORS = json.loads(
    (Path(__file__).parents[4] / "vectors" / "accounting.json").read_text(encoding="utf-8")
)["vectors"]
_ATTACKED = [vector for vector in _VECTORS if isinstance(vector.get("eps_lower"), float)]


def _reduction(answers: int, local_epsilon: float, *, hashed: bool) -> MatchCountReduction:
    return MatchCountReduction.for_epsilon(
        answers=answers, local_epsilon=local_epsilon, hashed=hashed
    )


@pytest.mark.parametrize("local_epsilon", [0.5, 2.0, 5.0])
@pytest.mark.parametrize("central_epsilon", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(
    ("items", "users", "dummies"),
    [(2, 1, 0), (2, 4, 0), (2, 3, 2), (3, 2, 0), (3, 3, 1), (3, 4, 0), (4, 3, 1)],
)
def test_no_attack_on_grr_beats_brute_force(
    local_epsilon: float, central_epsilon: float, items: int, users: int, dummies: int
) -> None:
    """Over all data sets of tiny instances."""
    laws = [grr_law(value, items, local_epsilon) for value in range(items)]
    dummy = uniform_law([(item,) for item in range(items)])
    truth = true_delta(laws, users=users, dummies=dummies, dummy=dummy, epsilon=central_epsilon)

    proven = delta_lower(
        _reduction(items, local_epsilon, hashed=False),
        AnonymitySet(users=users, dummies=dummies),
        central_epsilon,
    )

    assert proven <= truth + 1e-15


@pytest.mark.parametrize("local_epsilon", [1.0, 3.0])
@pytest.mark.parametrize("central_epsilon", [0.2, 0.8])
def test_no_attack_on_hashing_beats_brute_force(
    local_epsilon: float, central_epsilon: float
) -> None:
    """Three digits over F_2 and the three unit vectors, whose hashes are independent; all seeds."""
    seeds = list(itertools.product(range(2), repeat=3))
    total = (math.exp(local_epsilon) + 1) * len(seeds)
    laws: list[Law] = [
        {
            (*seed, bucket): (math.exp(local_epsilon) if bucket == seed[value] else 1) / total
            for seed in seeds
            for bucket in range(2)
        }
        for value in range(3)
    ]
    dummy = uniform_law(sorted(laws[0]))
    truth = true_delta(laws, users=2, dummies=1, dummy=dummy, epsilon=central_epsilon)

    proven = delta_lower(
        _reduction(2, local_epsilon, hashed=True), AnonymitySet(users=2, dummies=1), central_epsilon
    )

    assert 0 < proven <= truth + 1e-15


@pytest.mark.parametrize("vector", _ATTACKED[::6], ids=lambda vector: str(vector["inputs"]))
def test_the_reference_attack_is_matched_or_beaten(vector: dict[str, Any]) -> None:
    """To .2 %, and never above the certified upper bound."""
    given = vector["inputs"]
    reduction = MatchCountReduction.for_epsilon(
        answers=given["k"],
        local_epsilon=float(given["eps_l"]),
        hashed=given["kind"] == "olh",
        collision=given.get("coll"),
    )
    crowd = AnonymitySet(
        users=given["n"], dummies=given.get("M", 0), colluders=given.get("colluders", 0)
    )
    proven = epsilon_lower(reduction, crowd, given["delta"])

    assert 0.998 * vector["eps_lower"] <= proven
    assert proven <= epsilon_upper(reduction, crowd, given["delta"])


@pytest.mark.parametrize(
    ("answers", "local_epsilon", "hashed", "gap"),
    [
        pytest.param(100, 6.0, False, 1e-3, marks=pytest.mark.slow),
        (8, 3.0, False, 1e-3),
        (3, 0.5, True, 0.11),
        pytest.param(8, 2.0, True, 0.075, marks=pytest.mark.slow),
        (53, 4.0, True, 0.012),
    ],
)
def test_the_gap_to_the_upper_bound_is_known(
    answers: int,
    local_epsilon: float,
    hashed: bool,  # noqa: FBT001
    gap: float,
) -> None:
    """.1 % for GRR; for hashing it shrinks with the buckets."""
    reduction, crowd = _reduction(answers, local_epsilon, hashed=hashed), AnonymitySet(users=50_000)
    upper = epsilon_upper(reduction, crowd, 1e-6)

    assert (1 - gap) * upper <= epsilon_lower(reduction, crowd, 1e-6) <= upper


@pytest.mark.parametrize(
    "crowd",
    [
        AnonymitySet(users=3000, random_dummies=Binomial(3000, 0.5)),
        AnonymitySet(users=3000, dummies=1000, random_dummies=Poisson(500.0)),
        AnonymitySet(users=3000, dummies=1000, known_dummies=400),
        pytest.param(
            AnonymitySet(users=3000, random_dummies=Groups(Binomial(3000, 0.5), 2)),
            marks=pytest.mark.slow,
        ),
        AnonymitySet(users=3000, colluders=2000),
        AnonymitySet(users=3000, random_dummies=Binomial(8, 0.1), known_dummies=6),
    ],
    ids=str,
)
def test_attacks_stay_below_formula_1(crowd: AnonymitySet) -> None:
    """With random, known and grouped dummies, and close to it where an attack is known."""
    reduction = _reduction(30, 5.0, hashed=True)
    upper = delta_upper(reduction, crowd, 0.3)
    lower = delta_lower(reduction, crowd, 0.3)

    assert 0 <= lower <= upper
    if not isinstance(crowd.random_dummies, Groups):
        assert lower > 0.6 * upper


def test_both_bounds_are_exact_for_one_user() -> None:
    """They meet in the local δ."""
    reduction = _reduction(4, 2.0, hashed=False)
    exact = (math.exp(2) - math.exp(1)) / (math.exp(2) + 3)

    assert delta_lower(reduction, AnonymitySet(users=1), 1.0) == pytest.approx(exact, rel=1e-5)
    assert delta_upper(reduction, AnonymitySet(users=1), 1.0) == pytest.approx(exact, rel=1e-5)


def test_an_invalid_delta_is_refused() -> None:
    """As by the accountant."""
    with pytest.raises(AccountingError, match="delta is"):
        epsilon_lower(_reduction(4, 2.0, hashed=False), AnonymitySet(users=10), 1.0)


def test_attacks_on_large_batches_stay_below_the_bound() -> None:
    """With Fourier transforms, and δ far below their rounding."""
    for answers in (2, 20):
        reduction = _reduction(answers, 1.0, hashed=False)
        crowd = AnonymitySet(users=10**6, dummies=10**6)
        for epsilon in (0.001, 0.003, 0.005, 0.1):
            proven = delta_lower(reduction, crowd, epsilon)
            assert proven <= delta_upper(reduction, crowd, epsilon)


def test_bins_of_messages_give_a_lower_bound() -> None:
    """At most the sum over every number of messages, and close to it."""
    reduction, crowd, epsilon = _reduction(20, 4.0, hashed=True), AnonymitySet(users=50_000), 0.15
    others = Binomial(crowd.others, reduction.blanket * (1 - 1 / 20))
    mean = crowd.others * others.chance
    sizes = np.arange(math.floor(mean - 9 * mean**0.5), math.ceil(mean + 9 * mean**0.5))
    with_victim = others.probabilities(sizes - 1.0) * (1 - 1 / 20)
    total = with_victim + others.probabilities(sizes.astype(float)) / 20
    grid = grid_for(reduction, round(mean), epsilon, 1e-4)
    each = ConditionalDelta(reduction, sizes.astype(float), grid, with_victim / total)
    exact = float(total @ each(epsilon))

    assert 0.985 * exact <= delta_lower(reduction, crowd, epsilon) <= exact


def test_more_collisions_than_chance_allow_no_attack() -> None:
    """Nothing is known of a third value."""
    reduction = MatchCountReduction.for_epsilon(
        answers=8, local_epsilon=3.0, hashed=True, collision=0.4
    )

    assert 0.0 == delta_lower(reduction, AnonymitySet(users=300), 0.3)
