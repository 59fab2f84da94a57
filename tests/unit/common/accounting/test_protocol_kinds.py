"""Every kind of protocol: what its tasks claim, against whom, and in which words."""

import math
from functools import cache
from typing import Any, Final

import pytest

from common.accounting.anonymity_set import AnonymitySet
from common.accounting.assumptions import LOCAL
from common.accounting.composition import composed_epsilon
from common.accounting.count_distributions import Conditioned
from common.accounting.guarantees import (
    PrivacyParameters,
    claimable_epsilon,
    claimed_guarantee,
    claimed_release,
    delta_at_claim,
    guarantees,
    guarantees_under,
    published_claim,
)
from common.errors import AccountingError
from common.mechanisms.reduction import MatchCountReduction
from common.messages.guarantee import Guarantee, claimed
from common.task.dummy_spec import DummySpec
from common.task.shuffler_spec import KEEP_SUM, ShufflerSpec
from common.task.task import Task
from tests.support.tasks import published

_EACH_ITEM: Final = DummySpec(
    law="each-item",
    per_user=0,
    trials=100,
    extra_weight=2**29,
    most=40,
)
_NEGATIVE_BINOMIAL: Final = DummySpec(
    law="negative-binomial",
    per_user=1,
    trials=2,
    extra_weight=2**31,
    most=60,
)
_BINOMIAL: Final = DummySpec(law="binomial", per_user=1, trials=3, extra_weight=2**31, most=3)
_COINS: Final = ShufflerSpec(law="binomial", trials=20_000, most=20_000, keep_weight=KEEP_SUM // 2)
_GEOMETRIC: Final = ShufflerSpec(
    law="geometric", peak=90, left_weight=900_000_000, right_weight=900_000_000, most=300
)
_BARE: Final[dict[str, Any]] = {"buckets": 0, "dummies_per_user": 0}
_CLEAR: Final = {**_BARE, "local_epsilon": math.inf}
_KINDS: Final[dict[str, dict[str, Any]]] = {
    "ldp-grr": _BARE,
    "ldp-olh": {"dummies_per_user": 0},
    "sh": _BARE,
    "murs": {"dummies_per_user": 0},
    "hp-sdp": {"dummies_per_user": 0},
    "aue": {**_CLEAR, "dummies": _EACH_ITEM},
    "puredump": {**_CLEAR, "dummies_per_user": 20},
    "mixdump": {"buckets": 0, "dummies_per_user": 1.5},
    "od-hp": {"dummies_per_user": 0, "dummies": _NEGATIVE_BINOMIAL},
    "fe1": {"local_epsilon": math.inf, "dummies_per_user": 3.5},
    "sbin": {**_CLEAR, "shuffler": _COINS},
    "sageo": {**_CLEAR, "shuffler": _GEOMETRIC},
    "hybrid": {**_BARE, "shuffler": _GEOMETRIC},
}
_LOCAL: Final = {"ldp-grr", "ldp-olh"}


@cache
def _task(protocol: str, **changes: Any) -> Task:
    """Give a task of a kind; four of five users are taken for honest, unless changed."""
    wanted = {"n_min": 2000, "target_size": 2000, "assumed_honest_fraction": 0.8}
    return published(**wanted | {"protocol": protocol} | _KINDS[protocol] | changes).task


@cache
def _table(protocol: str) -> tuple[Guarantee, ...]:
    """Give the guarantees of such a task at n_min, with nothing refused."""
    return guarantees(_task(protocol), 2000, 0)


_DEAR: Final = {"murs", "hp-sdp", "mixdump", "od-hp", "fe1"}
"""Kinds that take seconds: those that hash, or have dummies and noise; results' tests have both."""
_EVERY_KIND: Final = [
    pytest.param(kind, marks=pytest.mark.slow if kind in _DEAR else ()) for kind in sorted(_KINDS)
]


@pytest.mark.parametrize("protocol", _EVERY_KIND)
def test_every_kind_of_protocol_claims_what_its_table_says(protocol: str) -> None:
    """The claim holds at n_min, by what the device recomputes."""
    task = _task(protocol)
    table = _table(protocol)
    charged = claimed(table)

    assert charged == claimed_guarantee(PrivacyParameters.of(task), 2000)
    assert math.isfinite(charged.epsilon)
    assert charged.epsilon <= task.central_epsilon <= 1.01 * charged.epsilon
    assert task.central_epsilon == claimable_epsilon(task)
    assert delta_at_claim(task) <= task.delta
    rows = [row.coalition for row in table]
    assert ("analyzer+users" in rows) == (protocol not in _LOCAL)
    by_coalition = {row.coalition: row for row in reversed(table)}
    assert task.local_epsilon == by_coalition["shuffler+analyzer"].epsilon
    assert 0 == by_coalition["shuffler"].epsilon
    assert "computational" in by_coalition["shuffler"].theorem


@pytest.mark.parametrize("protocol", _EVERY_KIND)
def test_rounds_of_every_kind_compose(protocol: str) -> None:
    """Two cost more than one, and about twice as much at most."""
    task = _task(protocol)
    release = claimed_release(task, 2000)
    delta = 4 * task.delta
    together = composed_epsilon([release] * 2, delta)

    assert hash(release) == hash(claimed_release(task, 2000))
    assert release.epsilon(delta) <= together * (1 + 1e-5)
    assert together <= 2.05 * release.epsilon(task.delta)


@pytest.mark.parametrize("protocol", sorted(_LOCAL))
def test_a_protocol_without_shuffling_promises_the_local_epsilon_of_anybody(protocol: str) -> None:
    """δ is 0, and nobody's honesty is assumed but the device's own."""
    task = _task(protocol, assumed_honest_fraction=0.5)
    row = guarantees(task, 7, 3)[0]

    assert ("analyzer", task.local_epsilon, 0.0, LOCAL) == (
        row.coalition,
        row.epsilon,
        row.delta,
        row.theorem,
    )
    assert ("your own device randomizes as the task says", "nobody else needs to be honest") == (
        row.assumptions
    )
    assert task.local_epsilon == task.central_epsilon
    with pytest.raises(AccountingError):
        guarantees(task, 0, 0)


@pytest.mark.parametrize("protocol", ["sbin", "sageo"])
def test_colluding_users_and_refused_reports_take_nothing_from_the_shufflers_noise(
    protocol: str,
) -> None:
    """And what the shuffler must do is said; with it on the other side nothing is left."""
    task = _task(protocol, assumed_honest_fraction=0.1)
    table = guarantees(task, 2000, 0)
    everybody, colluding = table[:2]

    assert ["analyzer", "analyzer+users", "shuffler+analyzer"] == [
        row.coalition for row in table[:3]
    ]
    assert everybody.epsilon == colluding.epsilon
    assert everybody.epsilon == guarantees(task, 2000, 1500)[0].epsilon
    said = " ".join(everybody.assumptions)
    assert "the shuffler adds dummies that name each item" in said
    assert "tells nobody which" in said
    assert "never refused" in said
    assert ("keeps each user's report with probability 0.5" in said) == (protocol == "sbin")
    assert math.isinf(table[2].epsilon)
    assert any("not counted" in sentence for sentence in table[2].assumptions)
    assert any("off the counts" in sentence for sentence in table[3].assumptions)


@pytest.mark.parametrize("protocol", ["aue", "hybrid"])
def test_colluding_users_take_their_share_where_users_make_the_noise(protocol: str) -> None:
    """As do refused reports, and users who add no dummies."""
    task = _task(protocol, assumed_honest_fraction=0.6)
    table = guarantees(task, 2000, 0)

    assert table[0].epsilon < table[1].epsilon
    assert table[1].epsilon < guarantees(task, 2000, 600)[1].epsilon
    assert (table[2].coalition == "analyzer+skippers") == (protocol == "aue")


@pytest.mark.parametrize(
    ("protocol", "changes", "words"),
    [
        pytest.param(
            "od-hp",
            {},
            "2 geometric numbers more, each going on with probability 0.5",
            marks=pytest.mark.slow,
        ),
        ("od-hp", {"dummies": _BINOMIAL}, "as many more as of 3 chances of 0.5 (2147483648"),
        ("aue", {}, "a dummy of each item with probability 0.125 (536870912"),
        ("aue", {}, "drawn again where there are more than 40"),
    ],
)
def test_the_laws_of_drawn_dummies_are_said_in_words(
    protocol: str, changes: dict[str, Any], words: str
) -> None:
    """Each with its chance, and the largest number where draws are conditioned on it."""
    table = guarantees(_task(protocol, **changes), 2000, 0) if changes else _table(protocol)

    assert words in table[0].assumptions[1]


def test_a_conditioned_law_is_what_the_crowd_has() -> None:
    """Per user, of the users that are left."""
    crowd = PrivacyParameters.of(_task("od-hp")).crowd(2000, 5)

    assert AnonymitySet(users=1595, dummies=1595, random_dummies=crowd.random_dummies) == crowd
    assert isinstance(crowd.random_dummies, Conditioned)


@pytest.mark.parametrize("protocol", sorted(set(_KINDS) - _LOCAL - {"hybrid"}))
def test_every_paper_is_asked(protocol: str) -> None:
    """With a figure or the reason why there is none."""
    said = published_claim(_task(protocol), 2000, 0)

    assert "would claim epsilon" in said or "makes no claim here" in said


@pytest.mark.parametrize("protocol", ["sbin", "sageo"])
def test_what_the_papers_claim_of_noise_is_above_what_holds(protocol: str) -> None:
    """A figure, and no lesser one, but for the last digit shown."""
    task = _task(protocol)
    said = published_claim(task, 2000, 0)

    assert "would claim epsilon" in said
    figure = float(said.split("epsilon ")[1].split(" ")[0])
    assert _table(protocol)[0].epsilon <= 1.001 * figure


@pytest.mark.parametrize("protocol", ["hybrid", "ldp-grr"])
def test_where_no_paper_states_a_bound_that_is_said(protocol: str) -> None:
    """Nothing stands in."""
    assert "no paper states a bound" in published_claim(_task(protocol), 2000, 0)


def test_what_no_formula_counts_is_refused() -> None:
    """Dummies of each item by both, and under hashing."""
    reduction = MatchCountReduction.for_epsilon(answers=13, local_epsilon=2.0, hashed=True)
    nothing = DummySpec(law="fixed", per_user=0)
    for dummies, shuffler in (
        (_EACH_ITEM, _COINS),
        (nothing, _COINS),
        (_EACH_ITEM, ShufflerSpec()),
    ):
        terms = PrivacyParameters(
            reduction=reduction,
            local_epsilon=2.0,
            dummies=dummies,
            shuffler=shuffler,
            delta=1e-6,
            assumed_honest_fraction=1.0,
        )
        with pytest.raises(AccountingError, match="dummies"):
            guarantees_under(terms, 100)
