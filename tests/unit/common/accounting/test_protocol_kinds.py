"""The claims and guarantees of every kind of protocol."""

import dataclasses
import math
from functools import cache, partial
from typing import Final

import pytest

from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.assumptions import LOCAL, with_dummies
from shuffledp.common.accounting.claims import claimable_epsilon, delta_at_claim
from shuffledp.common.accounting.composition import composed_epsilon
from shuffledp.common.accounting.count_distributions import Conditioned
from shuffledp.common.accounting.guarantees import (
    charged_release,
    claimed_guarantee,
    claimed_release,
    guarantees,
    guarantees_under,
    published_claim,
)
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.accounting.published import PUBLISHED, BoundSetting
from shuffledp.common.errors import AccountingError
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.messages.guarantee import Guarantee, claimed
from shuffledp.common.task.dummy_forms import AnyDummies
from shuffledp.common.task.shuffler_spec import ShufflerSpec
from shuffledp.common.task.uniform_dummies import NO_DUMMIES, BinomialDummies, averaging
from tests.support.protocol_tasks import ITEM_PROTOCOLS, protocol_task, unclaimed_task
from tests.support.reductions import of_hashing, parameters

_LOCAL: Final = {"ldp-grr", "ldp-olh"}
_KINDS: Final = _LOCAL | {name for name in ITEM_PROTOCOLS if not name.startswith("ldp")} - {"ddps"}
_task: Final = partial(protocol_task, n_min=2000, target_size=2000, assumed_honest_fraction=0.8)
"""Four of five users are assumed honest, unless changed."""


@cache
def _table(protocol: str) -> tuple[Guarantee, ...]:
    """Return the guarantees of such a task at n_min, with nothing refused."""
    return guarantees(_task(protocol), 2000, 0)


_DEAR: Final = {"hierarchy", "murs", "hp-sdp", "puredump", "mixdump", "od-hp", "fe1", "hybrid"}
"""Kinds that take seconds: with hashing, or dummies and noise; tests of results have both."""
_EVERY_KIND: Final = [
    pytest.param(kind, marks=pytest.mark.slow if kind in _DEAR else ()) for kind in sorted(_KINDS)
]


@pytest.mark.parametrize("protocol", _EVERY_KIND)
def test_claims_match_the_guarantees_and_compose(protocol: str) -> None:
    """
    They hold at n_min, as the device recomputes; two rounds cost about twice one at most.

    What a batch is charged is what its result states: for clusters a little less than the claim.
    """
    task = _task(protocol)
    table = _table(protocol)
    charged, promised = claimed(table), claimed_guarantee(PrivacyParameters.of(task), 2000)

    assert charged == dataclasses.replace(promised, epsilon=charged.epsilon)
    assert 0.98 * promised.epsilon <= charged.epsilon <= promised.epsilon
    assert (charged.epsilon < promised.epsilon) == (protocol == "signed")
    cost = composed_epsilon([charged_release(task, 2000, 0)], task.delta)
    assert charged.epsilon == min(cost, task.local_epsilon)
    assert math.isfinite(charged.epsilon)
    assert promised.epsilon <= task.central_epsilon <= 1.01 * promised.epsilon
    assert task.central_epsilon == claimable_epsilon(task)
    assert delta_at_claim(task) <= task.delta
    rows = [row.coalition for row in table]
    assert ("analyzer+users" in rows) == (protocol not in _LOCAL)
    by_coalition = {row.coalition: row for row in reversed(table)}
    assert task.local_epsilon == by_coalition["shuffler+analyzer"].epsilon
    assert 0 == by_coalition["shuffler"].epsilon
    assert "computational" in by_coalition["shuffler"].theorem
    release, delta = claimed_release(task, 2000), 4 * task.delta
    together = composed_epsilon([release] * 2, delta)
    assert hash(release) == hash(claimed_release(task, 2000))
    assert release.epsilon(delta) <= together * (1 + 1e-5)
    assert together <= 2.1 * release.epsilon(task.delta)


@pytest.mark.parametrize("protocol", sorted(_LOCAL))
def test_local_protocols_guarantee_the_local_epsilon(protocol: str) -> None:
    """With δ = 0, and relying on the user's own device only."""
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
    with pytest.raises(AccountingError, match="n_users is 0"):
        guarantees(task, 0, 0)
    with pytest.raises(AccountingError, match="n_users is 0"):
        PrivacyParameters.of(_task("sh")).anonymity_set(0)


@pytest.mark.parametrize("protocol", ["sbin", "sageo"])
def test_collusion_and_refusals_do_not_affect_the_shufflers_noise(protocol: str) -> None:
    """The assumptions on the shuffler are stated; together with it nothing is left."""
    task = _task(protocol, assumed_honest_fraction=0.1)
    table = guarantees(task, 2000, 0)
    everybody, colluding, alone, pooled, shuffler = table[:5]

    assert ["analyzer", "analyzer+users", "analyzer+sybils", "shuffler+analyzer"] == [
        row.coalition for row in table[:4]
    ]
    assert everybody.epsilon == colluding.epsilon == alone.epsilon
    assert everybody.epsilon == guarantees(task, 2000, 1500)[0].epsilon
    said = " ".join(everybody.assumptions)
    assert "the shuffler adds dummies that name each item" in said
    assert "reveals to nobody which" in said
    assert "none of these dummies are refused" in said
    assert ("keeps each user's report with probability 0.5" in said) == (protocol == "sbin")
    assert math.isinf(pooled.epsilon)
    assert "no local noise" in pooled.theorem
    assert any("ignores dummies" in sentence for sentence in pooled.assumptions)
    assert any("from the counts" in sentence for sentence in shuffler.assumptions)


@pytest.mark.parametrize("protocol", ["aue", "hybrid"])
def test_collusion_and_refusals_reduce_noise_of_users(protocol: str) -> None:
    """And users without dummies."""
    task = _task(protocol, assumed_honest_fraction=0.6)
    table = guarantees(task, 2000, 0)

    assert table[0].epsilon < table[1].epsilon
    assert table[1].epsilon < guarantees(task, 2000, 600)[1].epsilon
    assert (table[2].coalition == "analyzer+skippers") == (protocol == "aue")


_BINOMIAL: Final = BinomialDummies(per_user=1, trials=3, extra_weight=2**31)


@pytest.mark.parametrize(
    ("dummies", "words"),
    [
        (
            unclaimed_task("od-hp").dummies,
            "plus a negative binomial number (r = 4, continuing with prob",
        ),
        (_BINOMIAL, "plus a binomial number (3 trials, probability 0.5 (2147483648"),
        (unclaimed_task("aue").dummies, "a dummy of each item with probability 0.0625 (268435456"),
        (unclaimed_task("aue").dummies, "redrawn above 8 in all"),
        (averaging(2.0), " and add uniform dummies, 2 each"),
        (averaging(0.5), "add one uniform dummy with probability 0.5 (2147483648 in 4294"),
        (averaging(1.25), "dummies, 1 each and one more with probability 0.25 (1073741824"),
        (averaging(1.25), "in 4294967296), drawn independently"),
    ],
)
def test_distributions_of_dummies_are_described(dummies: AnyDummies, words: str) -> None:
    """With their probability and largest number."""
    assert words in with_dummies(dummies)
    assert not with_dummies(averaging(0))


def test_the_anonymity_set_has_conditioned_dummies() -> None:
    """Of the users that are left."""
    anonymity_set = PrivacyParameters.of(_task("od-hp")).anonymity_set(2000, 5)

    assert (
        AnonymitySet(users=1595, dummies=1595, random_dummies=anonymity_set.random_dummies)
        == anonymity_set
    )
    assert isinstance(anonymity_set.random_dummies, Conditioned)


@pytest.mark.parametrize(
    "protocol", sorted(set(_KINDS) - _LOCAL - {"hybrid", "signed", "hierarchy"})
)
def test_published_claims_state_a_figure_rounded_up_or_a_reason(protocol: str) -> None:
    """A million users have a figure, and one user a reason; other protocols have no bound."""
    task = dataclasses.replace(_task(protocol), delta=9.876_54e-7)
    stated, key = PrivacyParameters.of(task), task.protocol_row.published_bound
    assert key is not None
    assert isinstance(stated.reduction, MatchCountReduction)
    name, bound = PUBLISHED[key]
    exact = bound(
        BoundSetting(
            reduction=stated.reduction,
            anonymity_set=stated.anonymity_set(10**6),
            delta=task.delta,
            dummies=task.dummies,
            shuffler=task.shuffler.by_view[0],
        )
    )
    start, epsilon, _, _, delta = published_claim(task, 10**6, 0).rsplit(" ", 4)

    assert (f"{name} would claim epsilon", "9.877e-07") == (start, delta)
    assert exact <= float(epsilon) <= 1.001 * exact
    if task.shuffler.only_permutes:
        assert published_claim(task, 1, 0).startswith(f"{name} does not apply: it ")
    assert "no paper states a bound" in published_claim(_task("ldp-grr"), 2000, 0)


def test_parameters_without_a_formula_are_refused() -> None:
    """Dummies of each item by users and shuffler, and under hashing."""
    each_item, coins = unclaimed_task("aue").dummies, unclaimed_task("sbin").shuffler
    rows = (each_item, coins), (NO_DUMMIES, coins), (each_item, ShufflerSpec())
    for dummies, shuffler in rows:
        with pytest.raises(AccountingError, match="dummies"):
            guarantees_under(parameters(of_hashing(13, 2.0), dummies, shuffler=shuffler), 100)


class _Unlisted(BinomialDummies):
    """Binomial dummies under another name."""

    distribution = "fixed"


@pytest.mark.parametrize("local_epsilon", [2.0, math.inf])
def test_dummies_without_an_entry_have_no_figure(local_epsilon: float) -> None:
    """Not even that of the class from which they inherit."""
    unlisted = _Unlisted(per_user=3, trials=2, extra_weight=1)
    for honest in (1.0, 0.5):
        task = parameters(of_hashing(13, local_epsilon), unlisted, assumed_honest_fraction=honest)
        with pytest.raises(AccountingError, match="no formula covers fixed dummies"):
            guarantees_under(task, 100)
