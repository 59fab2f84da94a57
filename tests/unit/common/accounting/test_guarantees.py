import dataclasses
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.common.accounting.amplification import epsilon_upper
from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.assumptions import COMPOSED, FORMULA_1, HYBRID, ITEM_NOISE
from shuffledp.common.accounting.claims import claimable_epsilon, delta_at_claim
from shuffledp.common.accounting.count_distributions import Binomial
from shuffledp.common.accounting.guarantees import (
    claimed_guarantee,
    claimed_release,
    guarantees,
    guarantees_under,
    local_guarantee,
    skippers_guarantee,
)
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.messages.guarantee import claimed
from shuffledp.common.task.dummy_forms import AnyDummies
from shuffledp.common.task.uniform_dummies import BinomialDummies, FixedDummies, FractionalDummies
from tests.support.protocol_tasks import protocol_task
from tests.support.reductions import of_hashing, parameters
from tests.support.tasks import published
from tests.support.tokens import TOKENS


def test_every_batch_has_a_guarantee_for_every_coalition() -> None:
    """With δ, neighbours, theorem and assumptions; refused reports cost privacy."""
    task = published().task
    table = guarantees(task, 5000, 0)
    reduction = mechanism_of(task).reduction
    assert reduction is not None
    anonymity_set = AnonymitySet(users=5000, dummies=5000)

    assert [
        ("analyzer", epsilon_upper(reduction, anonymity_set, task.delta), task.delta),
        ("analyzer+sybils", task.local_epsilon, 0.0),
        ("shuffler+analyzer", task.local_epsilon, 0.0),
        ("shuffler", 0.0, 0.0),
        ("network", 0.0, 0.0),
    ] == [(row.coalition, row.epsilon, row.delta) for row in table]
    assert all("replace-one" in row.neighbouring for row in table)
    assert all(row.theorem and row.assumptions for row in table)
    assert guarantees(task, 5000, 1000)[0].epsilon > table[0].epsilon


def test_tokens_change_who_must_be_honest() -> None:
    """Without tokens the analyzer alone can make users up; with tokens it needs the issuer."""
    plain, tokened = (
        guarantees(published(tokens=tokens, dummies_per_user=20, buckets=2).task, 5000, 0)
        for tokens in (None, TOKENS)
    )
    own_dummies = AnonymitySet(users=1, dummies=20)
    reduction = mechanism_of(published(dummies_per_user=20, buckets=2).task).reduction
    assert reduction is not None
    alone = epsilon_upper(reduction, own_dummies, 1e-6)

    assert ["analyzer", "analyzer+sybils"] == [row.coalition for row in plain[:2]]
    pooled = ["shuffler+analyzer"] * 2  # by noise alone, and among the user's own dummies
    assert ["analyzer", *pooled, "issuer+analyzer"] == [row.coalition for row in tokened[:4]]
    assert ["shuffler", "issuer", "issuer+shuffler", "network"] == [
        row.coalition for row in tokened[-4:]
    ]
    assert [0.0] * 4 == [row.epsilon for row in tokened[-4:]]
    assert plain[0].epsilon == tokened[0].epsilon < alone < 1.9
    assert alone == plain[1].epsilon == tokened[3].epsilon
    assert any("make up every answer but yours" in each for each in plain[0].assumptions)
    said = " ".join(tokened[0].assumptions)
    assert "5,000 of the 5,000 people who each spent a token, you among them" in said
    assert "make up every answer" not in said


def test_users_who_may_collude_or_skip_have_rows_of_their_own() -> None:
    """Colluders subtract reports and dummies, skippers only dummies; the claim is the former."""
    task = published(dummies_per_user=2, assumed_honest_fraction=0.6).task
    table = guarantees(task, 5000, 0)
    everybody, colluding, skipping = table[:3]

    assert ["analyzer", "analyzer+users", "analyzer+skippers"] == [
        row.coalition for row in table[:3]
    ]
    assert everybody.epsilon < skipping.epsilon < colluding.epsilon
    assert colluding == claimed(table) == claimed_guarantee(PrivacyParameters.of(task), 5000)
    for row, anonymity_set in (
        (everybody, AnonymitySet(users=5000, dummies=10_000)),
        (colluding, AnonymitySet(users=3000, dummies=6000)),
        (skipping, AnonymitySet(users=5000, dummies=6000)),
    ):
        assert PrivacyParameters.of(task).release(anonymity_set).epsilon(task.delta) == row.epsilon


@pytest.mark.parametrize(
    ("protocol", "n_refused", "users", "adding"),
    [("od-hp", 0, 100, 60), ("od-hp", 70, 30, 1), ("aue", 50, 50, 10), ("aue", 70, 30, 0)],
)
def test_refusals_lower_the_stated_number_of_users_who_add_dummies(
    protocol: str, n_refused: int, users: int, adding: int
) -> None:
    """The words state the numbers of the anonymity set."""
    row = skippers_guarantee(PrivacyParameters.of(protocol_task(protocol)), 100, 60, n_refused)

    assert f"{users} of the 100 users, you among them" in row.assumptions[1]
    assert row.assumptions[2].startswith(f"{adding} of them add ")


@pytest.mark.parametrize(
    "dummies",
    [
        FixedDummies(per_user=15),
        BinomialDummies(per_user=15, trials=30, extra_weight=2**31),
        FractionalDummies(per_user=15, extra_weight=2**31),
    ],
)
def test_certain_own_dummies_improve_epsilon_but_not_the_pure_one(dummies: AnyDummies) -> None:
    """G = 8, ε0 = 4: 15 own dummies give 3.39 at δ = 1e-6; random ones do not count."""
    table = guarantees_under(parameters(of_hashing(8, 4.0), dummies), 30)
    rows = [row for row in table if row.coalition == "shuffler+analyzer"]

    assert [(4.0, 0.0), (pytest.approx(3.39, abs=0.01), 1e-6)] == [
        (row.epsilon, row.delta) for row in rows
    ]


@pytest.mark.parametrize(
    ("changes", "n_users", "n_refused", "expected"),
    [
        ({"dummies_per_user": 3}, 100, 10, AnonymitySet(users=80, dummies=240)),
        ({"dummies_per_user": 3}, 100, 400, AnonymitySet(users=1, dummies=0)),
        ({"dummies_per_user": 3}, 1, 1, AnonymitySet(users=1, dummies=2)),
        ({"dummies_per_user": 3}, 100, 95, AnonymitySet(users=1, dummies=3)),
        (
            {"dummies_per_user": 2.5},
            100,
            0,
            AnonymitySet(users=90, dummies=180, random_dummies=Binomial(90, 0.5)),
        ),
        (
            {"dummies_per_user": 2.5},
            100,
            400,
            AnonymitySet(users=1, random_dummies=Binomial(1, 0.5), known_dummies=400),
        ),
        (
            {"dummies_per_user": 0.5, "assumed_honest_fraction": 1.0},
            100,
            10,
            AnonymitySet(users=90, random_dummies=Binomial(90, 0.5), known_dummies=10),
        ),
    ],
)
def test_the_anonymity_set_is_the_honest_users_of_the_actual_batch(
    changes: dict[str, Any], n_users: int, n_refused: int, expected: AnonymitySet
) -> None:
    """⌊n·fraction⌋ minus the refused, with their dummies; any refused report may be honest."""
    task = published(**{"assumed_honest_fraction": 0.9} | changes).task

    assert expected == PrivacyParameters.of(task).anonymity_set(n_users, n_refused)


@given(st.floats(min_value=0.01, max_value=20), st.integers(min_value=2, max_value=1000))
def test_local_guarantees_add_up_over_rounds_and_are_rounded_up(
    local_epsilon: float, rounds: int
) -> None:
    """A product of floats may be rounded down."""
    task = parameters(None, local_epsilon=local_epsilon, rounds=rounds)
    found = local_guarantee("shuffler+analyzer", task).epsilon

    assert Fraction(repr(found)) >= rounds * Fraction(repr(local_epsilon))
    assert found == pytest.approx(rounds * local_epsilon, rel=1e-15)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_min": 10},
        {"n_min": 137, "delta": 1e-2},
        pytest.param({"n_min": 500, "local_epsilon": 4.0}, marks=pytest.mark.slow),
        pytest.param({"n_min": 20_000, "local_epsilon": 4.0}, marks=pytest.mark.slow),
        {"n_min": 1000, "delta": 1e-15, "dummies_per_user": 0},
        {"n_min": 30, "domain_size": 2, "local_epsilon": 0.1, "delta": 1e-3},
        {
            "n_min": 3000,
            "local_epsilon": 8.0,
            "dummies_per_user": 2,
            "assumed_honest_fraction": 0.3,
        },
    ],
    ids=str,
)
def test_claims_are_confirmed_and_close_to_the_bound(changes: dict[str, Any]) -> None:
    """The δ at a claim is .2 % below the task's, the error of bins; that costs .5 % of ε."""
    task = published(target_size=30_000, **changes).task
    holds = claimed_release(task, task.n_min).epsilon(task.delta)
    lower = dataclasses.replace(task, central_epsilon=0.98 * task.central_epsilon)

    assert delta_at_claim(task) <= 0.998 * task.delta
    assert min(holds, task.local_epsilon) <= task.central_epsilon <= task.local_epsilon
    assert task.central_epsilon <= 1.005 * holds
    assert task.central_epsilon == float(f"{task.central_epsilon:.6g}")
    if task.central_epsilon < task.local_epsilon:
        assert delta_at_claim(lower) > task.delta


def test_a_claim_of_the_local_epsilon_always_holds() -> None:
    """A single user has no amplification."""
    task = published(n_min=1, target_size=1, dummies_per_user=0).task

    assert task.local_epsilon == claimable_epsilon(task)
    assert 0 == delta_at_claim(dataclasses.replace(task, central_epsilon=task.local_epsilon))


@pytest.mark.parametrize(
    ("protocol", "once"),
    [
        pytest.param("sh", FORMULA_1, marks=pytest.mark.slow),
        ("sbin", ITEM_NOISE),
        pytest.param("hybrid", HYBRID, marks=pytest.mark.slow),
    ],
)
def test_a_guarantee_names_the_theorem_of_its_release(protocol: str, once: str) -> None:
    """Rounds are composed under another theorem than the one for a single round."""
    task = PrivacyParameters.of(protocol_task(protocol))
    for rounds, theorem in ((1, once), (2, COMPOSED[once])):
        [first, *_] = guarantees_under(dataclasses.replace(task, rounds=rounds), 3000)
        assert ("analyzer", theorem) == (first.coalition, first.theorem)
