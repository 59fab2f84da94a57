import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from common.accounting.amplification import delta_upper, epsilon_upper
from common.accounting.anonymity_set import AnonymitySet
from common.accounting.count_distributions import (
    Binomial,
    CountDistribution,
    Groups,
    NegativeBinomial,
    Poisson,
)
from common.mechanisms.reduction import MatchCountReduction
from tests.support.reductions import reduction_for
from tests.support.second_accountant import formula_1

_VECTORS = json.loads(
    (Path(__file__).parents[3] / "vectors" / "accounting.json").read_text(encoding="utf-8")
)["vectors"]


@pytest.mark.parametrize("vector", _VECTORS, ids=lambda vector: str(vector["inputs"]))
def test_reference_points_are_met_from_above(vector: dict[str, Any]) -> None:
    """ε at most .1 % above the certified value and at least the attack's; δ at most .2 % above."""
    given = vector["inputs"]
    reduction = MatchCountReduction.for_epsilon(
        answers=given["k"],
        local_epsilon=float(given["eps_l"]),
        hashed=given["kind"] == "olh",
        collision=given.get("coll"),
    )
    random: CountDistribution | None = None
    if "M_binom" in given:
        random = Binomial(*given["M_binom"])
    if "M_negbin" in given:
        random = NegativeBinomial(*given["M_negbin"])
    crowd = AnonymitySet(
        users=given["n"],
        dummies=given.get("M", 0),
        random_dummies=random,
        known_dummies=given.get("known_dummies", 0),
        colluders=given.get("colluders", 0),
    )

    if "eps" in given:
        exact = vector["delta_exact_blanket"]
        assert exact * (1 - 1e-12) <= delta_upper(reduction, crowd, given["eps"]) <= 1.002 * exact
        return
    epsilon = epsilon_upper(reduction, crowd, given["delta"])
    assert float(vector.get("eps_lower", 0)) <= epsilon <= 1.001 * float(vector["eps_upper"])


def _exact(reduction: MatchCountReduction, others: int, dummies: int, epsilon: float) -> float:
    crowd = AnonymitySet(users=others + 1, dummies=dummies)
    return formula_1(reduction, crowd, epsilon, exhaustive=True)


@pytest.mark.parametrize("hashing", [True, False])
@pytest.mark.parametrize(
    "crowd",
    [
        AnonymitySet(users=12, random_dummies=Poisson(25.0)),
        AnonymitySet(users=12, dummies=10, random_dummies=NegativeBinomial(2.0, 15.0)),
        AnonymitySet(users=1, dummies=3, random_dummies=NegativeBinomial(0.5, 12.0)),
        AnonymitySet(users=12, dummies=5, known_dummies=9, random_dummies=Binomial(30, 0.5)),
        AnonymitySet(users=6, random_dummies=Groups(Binomial(12, 0.3), 4)),
    ],
    ids=str,
)
def test_random_dummies_are_averaged_over(crowd: AnonymitySet, *, hashing: bool) -> None:
    """At most .2 % above the full sum over every number of dummies."""
    reduction = reduction_for(6, 3.0, hashing=hashing)
    assert crowd.random_dummies is not None
    certain = crowd.dummies - crowd.known_dummies
    chances = crowd.random_dummies.probabilities(np.arange(161.0))
    exact = sum(
        float(chance) * _exact(reduction, crowd.others, max(0, certain + number), 0.6)
        for number, chance in enumerate(chances)
        if chance > 1e-14
    )

    bound = delta_upper(reduction, crowd, 0.6)

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


def test_a_finite_epsilon_is_found_below_a_plateau() -> None:
    """Without local noise and with few dummies δ has a plateau."""
    reduction = MatchCountReduction.for_epsilon(answers=915, local_epsilon=math.inf, hashed=False)
    crowd = AnonymitySet(users=50_000, random_dummies=Binomial(50_000, 0.12671))
    found = epsilon_upper(reduction, crowd, 1e-3)

    assert delta_upper(reduction, crowd, 3.0) <= 1e-3
    assert found < 3.0


@pytest.mark.parametrize("hashing", [True, False])
@pytest.mark.parametrize(
    ("answers", "local_epsilon", "others", "dummies", "epsilon"),
    [
        (2, 1.0, 40, 0, 0.3),
        (3, 4.0, 60, 10, 1.0),
        (16, 3.0, 100, 0, 0.8),
        (16, 3.0, 30, 90, 0.6),
        (53, 6.0, 80, 40, 2.0),
        (5, 0.1, 50, 0, 0.02),
    ],
)
def test_bins_and_chords_cost_less_than_a_fifth_of_a_percent(
    answers: int, local_epsilon: float, others: int, dummies: int, epsilon: float, *, hashing: bool
) -> None:
    """Never below the full sum, and at most .2 % above."""
    reduction = reduction_for(answers, local_epsilon, hashing=hashing)
    exact = _exact(reduction, others, dummies, epsilon)
    bound = delta_upper(reduction, AnonymitySet(users=others + 1, dummies=dummies), epsilon)

    assert exact * (1 - 1e-9) <= bound <= exact * 1.002


@pytest.mark.parametrize(
    ("users", "dummies", "local_epsilon", "buckets", "expected"),
    [
        (10_000, 0, 0.5, 3, 0.01222),
        (10_000, 0, 4.0, 56, 0.27848),
        (602_325, 0, 2.0, 8, 0.0086937),
        (602_325, 0, 8.0, 2982, 0.27238),
        (20_000, 20_000, 4.0, 53, None),
    ],
)
def test_both_accountants_find_the_known_figures(
    users: int, dummies: int, local_epsilon: float, buckets: int, expected: float | None
) -> None:
    """Central ε of hashing at δ = 1e-6 to .15 %, by the tests' plain sum too; δ confirms ε."""
    reduction = reduction_for(buckets, local_epsilon, hashing=True)
    crowd = AnonymitySet(users=users, dummies=dummies)
    epsilon = epsilon_upper(reduction, crowd, 1e-6)

    assert delta_upper(reduction, crowd, epsilon) <= 1e-6
    assert delta_upper(reduction, crowd, 0.99 * epsilon) > 1e-6
    if expected is not None:
        assert epsilon == pytest.approx(expected, rel=1.5e-3)
        assert formula_1(reduction, crowd, expected) == pytest.approx(1e-6, rel=0.02)


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
    ("users", "dummies"), [(1, 0), (1, 10**9), (2, 1), (10**9, 0), (10**9, 10**9)]
)
def test_extreme_inputs_give_valid_figures(
    answers: int, local_epsilon: float, users: int, dummies: int, *, hashing: bool
) -> None:
    """0 < ε ≤ local ε, and 0 ≤ δ ≤ 1."""
    reduction = reduction_for(answers, local_epsilon, hashing=hashing)
    crowd = AnonymitySet(users=users, dummies=dummies)
    epsilon = epsilon_upper(reduction, crowd, 1e-9)

    assert 0 < epsilon <= local_epsilon
    assert 0 <= delta_upper(reduction, crowd, 0.5) <= 1
