import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.accounting.amplification import epsilon_upper
from common.accounting.anonymity_set import AnonymitySet
from common.accounting.count_distributions import Binomial
from common.accounting.guarantees import (
    PrivacyParameters,
    claimed_guarantee,
    guarantees,
    guarantees_under,
    honest_anonymity_set,
    local_guarantee,
    published_claim,
)
from common.errors import AccountingError
from common.mechanisms.reduction import MatchCountReduction
from common.mechanisms.registry import mechanism_of
from common.messages.guarantee import Guarantee, claimed
from common.protocols import DummyLaw
from common.task.dummy_spec import DummySpec
from tests.support.tasks import published


def _rows(guarantees: tuple[Guarantee, ...]) -> list[tuple[str, float]]:
    return [(guarantee.coalition, guarantee.delta) for guarantee in guarantees]


def test_every_batch_states_a_guarantee_for_every_coalition() -> None:
    """With δ, neighbours, theorem and assumptions; where everybody is honest nobody colludes."""
    task = published().task
    table = guarantees(task, 5000, 0)

    assert [
        ("analyzer", task.delta),
        ("shuffler+analyzer", 0.0),
        ("shuffler", 0.0),
        ("network", 0.0),
    ] == _rows(table)
    assert task.local_epsilon == table[1].epsilon
    assert 0 < table[0].epsilon < table[1].epsilon
    for guarantee in table:
        assert "replace-one" in guarantee.neighbouring
        assert guarantee.theorem
        assert guarantee.assumptions


def test_users_who_may_collude_or_skip_have_rows_of_their_own() -> None:
    """Colluders take reports and dummies away, skippers dummies only; the claim is the former."""
    task = published(dummies_per_user=2, assumed_honest_fraction=0.6).task
    table = guarantees(task, 5000, 0)
    everybody, colluding, skipping = table[:3]

    assert ["analyzer", "analyzer+users", "analyzer+skippers"] == [
        row.coalition for row in table[:3]
    ]
    assert everybody.epsilon < skipping.epsilon < colluding.epsilon
    assert colluding == claimed(table) == claimed_guarantee(PrivacyParameters.of(task), 5000)
    for row, crowd in (
        (everybody, AnonymitySet(users=5000, dummies=10_000)),
        (colluding, AnonymitySet(users=3000, dummies=6000)),
        (skipping, AnonymitySet(users=5000, dummies=6000)),
    ):
        assert PrivacyParameters.of(task).release(crowd).epsilon(task.delta) == row.epsilon


def test_many_own_dummies_help_against_shuffler_and_analyzer_but_not_the_pure_epsilon() -> None:
    """G = 8 and ε0 = 4: 15 own dummies give 3.39 at δ = 1e-6."""
    terms = PrivacyParameters(
        reduction=MatchCountReduction.for_epsilon(answers=8, local_epsilon=4.0, hashed=True),
        local_epsilon=4.0,
        dummies=DummySpec(law="fixed", per_user=15),
        delta=1e-6,
        assumed_honest_fraction=1.0,
    )
    rows = [row for row in guarantees_under(terms, 1000) if row.coalition == "shuffler+analyzer"]

    assert [(4.0, 0.0), (pytest.approx(3.39, abs=0.01), 1e-6)] == [
        (row.epsilon, row.delta) for row in rows
    ]


def test_drawn_dummies_of_ones_own_hide_nothing_from_both_parties() -> None:
    """The two see how many came, and it may be the fewest: only certain ones count."""

    def against_both(dummies: DummySpec) -> list[float]:
        terms = PrivacyParameters(
            reduction=MatchCountReduction.for_epsilon(answers=8, local_epsilon=4.0, hashed=True),
            local_epsilon=4.0,
            dummies=dummies,
            delta=1e-6,
            assumed_honest_fraction=1.0,
        )
        rows = guarantees_under(terms, 30)
        return [row.epsilon for row in rows if row.coalition == "shuffler+analyzer"]

    certain = against_both(DummySpec(law="fixed", per_user=15))
    laws: tuple[tuple[DummyLaw, int], ...] = (("binomial", 30), ("fractional", 1))
    for law, trials in laws:
        drawn = DummySpec(law=law, per_user=15, trials=trials, extra_weight=2**31, most=trials)
        assert certain == against_both(drawn)


def test_the_crowd_is_the_honest_users_of_the_batch_that_arrived() -> None:
    """⌊n·fraction⌋ less the refused, and as many dummies each; never the planned number."""
    task = published(dummies_per_user=3, assumed_honest_fraction=0.9).task

    assert AnonymitySet(users=90, dummies=270) == honest_anonymity_set(task, 100, 0)
    assert AnonymitySet(users=80, dummies=240) == honest_anonymity_set(task, 100, 10)
    assert AnonymitySet(users=1, dummies=0) == honest_anonymity_set(task, 100, 400)
    assert AnonymitySet(users=1, dummies=2) == honest_anonymity_set(task, 1, 1)
    assert AnonymitySet(users=1, dummies=3) == honest_anonymity_set(task, 100, 95)


def test_a_fractional_number_of_dummies_is_certain_ones_and_a_binomial() -> None:
    """Every refused report may have been an honest user, its dummy, or the one on top."""
    task = published(dummies_per_user=2.5, assumed_honest_fraction=0.9).task

    assert AnonymitySet(
        users=90, dummies=180, random_dummies=Binomial(90, 0.5)
    ) == honest_anonymity_set(task, 100, 0)
    assert honest_anonymity_set(task, 100, 10) == AnonymitySet(
        users=80, dummies=160, random_dummies=Binomial(80, 0.5)
    )
    assert honest_anonymity_set(task, 100, 400) == AnonymitySet(
        users=1, dummies=0, random_dummies=Binomial(1, 0.5), known_dummies=400
    )


def test_where_no_dummy_is_certain_refused_reports_may_have_been_drawn_ones() -> None:
    """As many are taken for known."""
    task = published(dummies_per_user=0.5).task

    assert honest_anonymity_set(task, 100, 10) == AnonymitySet(
        users=90, random_dummies=Binomial(90, 0.5), known_dummies=10
    )


@pytest.mark.parametrize(
    ("dummies", "words"),
    [
        (0.0, "randomize as the task says"),
        (2.0, "add uniform dummies, 2 each"),
        (
            0.5,
            (
                "add one uniform dummy with probability 0.5 (2147483648 in 4294967296), "
                "drawn by each alone"
            ),
        ),
        (
            1.25,
            (
                "add uniform dummies, 1 each and one more with probability 0.25 "
                "(1073741824 in 4294967296), drawn by each alone"
            ),
        ),
    ],
)
def test_the_law_of_the_dummies_is_said_in_words(dummies: float, words: str) -> None:
    """Whoever reads the guarantee knows what honest users do."""
    task = published(dummies_per_user=dummies).task

    assert guarantees(task, 100, 0)[0].assumptions[1].endswith(words)


def test_refused_reports_cost_privacy() -> None:
    """Each may have been another user's."""
    task = published().task

    assert guarantees(task, 1000, 200)[0].epsilon > guarantees(task, 1000, 0)[0].epsilon


def test_the_central_epsilon_is_formula_1s() -> None:
    """For the mechanism's integer weights."""
    task = published().task
    reduction = mechanism_of(task).reduction
    assert reduction is not None
    expected = epsilon_upper(reduction, AnonymitySet(users=1000, dummies=1000), task.delta)

    assert expected == guarantees(task, 1000, 0)[0].epsilon


def test_the_task_claims_what_holds_at_n_min() -> None:
    """Users are promised the worst batch that can be released."""
    task = published(n_min=500, target_size=500).task

    holds = guarantees(task, 500, 0)[0].epsilon
    assert holds <= task.central_epsilon <= 1.001 * holds


def test_without_local_noise_nothing_holds_against_shuffler_and_analyzer() -> None:
    """The second guarantee is infinite and says why; the first one is finite all the same."""
    task = published(local_epsilon=math.inf, dummies_per_user=100).task
    central, local, *_ = guarantees(task, 5000, 0)

    assert math.isfinite(central.epsilon)
    assert math.inf == local.epsilon
    assert "no local noise" in local.theorem


def test_an_empty_batch_has_no_guarantee() -> None:
    """There is nobody to protect."""
    with pytest.raises(AccountingError):
        honest_anonymity_set(published().task, 0, 0)


def test_the_published_bound_speaks_in_words() -> None:
    """A claim where the theorem holds, the reason where it does not."""
    task = published().task

    assert "would claim epsilon" in published_claim(task, 100_000, 0)
    assert "makes no claim here" in published_claim(task, 20, 0)
    flexible = published(dummies_per_user=1.5).task
    assert "would claim epsilon" in published_claim(flexible, 100_000, 0)


@given(st.floats(min_value=0.01, max_value=20), st.integers(min_value=2, max_value=1000))
def test_what_holds_against_everybody_adds_up_over_rounds_and_upward(
    local_epsilon: float, rounds: int
) -> None:
    """A product of floats is rounded to the nearest, which may be below."""
    terms = PrivacyParameters(
        reduction=None,
        local_epsilon=local_epsilon,
        dummies=DummySpec(law="fixed", per_user=0),
        delta=1e-6,
        assumed_honest_fraction=1.0,
        rounds=rounds,
    )

    found = local_guarantee("shuffler+analyzer", terms).epsilon

    assert Fraction(repr(found)) >= rounds * Fraction(repr(local_epsilon))
    assert found == pytest.approx(rounds * local_epsilon, rel=1e-15)
