"""The bounds of the papers, by their printed formulas and within their printed ranges."""

import dataclasses
import math

import pytest

from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.count_distributions import Binomial
from shuffledp.common.accounting.item_noise import ItemNoiseRelease
from shuffledp.common.accounting.published import (
    PUBLISHED,
    Bound,
    BoundSetting,
    aue,
    balle_closed_form,
    ddps,
    fe1,
    mix_dump,
    od_hp_theorem_1,
    pure_dump,
    sageo,
    sageo_left,
    sageo_peak,
    sageo_right,
    sbin,
    sbin_coins,
)
from shuffledp.common.errors import BoundRangeError
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.task.named_dummies import ItemDummies
from shuffledp.common.task.shuffler_spec import (
    KEEP_SUM,
    RATIO_SUM,
    BinomialNoise,
    GeometricNoise,
    ShufflerSpec,
)
from shuffledp.lab.accountant.query import Poisson
from tests.support.reductions import of_grr, of_hashing
from tests.support.tables import table


def _setting(
    reduction: MatchCountReduction, anonymity_set: AnonymitySet, delta: float = 1e-6
) -> BoundSetting:
    return BoundSetting(reduction=reduction, anonymity_set=anonymity_set, delta=delta)


def _of_items(anonymity_set: AnonymitySet) -> BoundSetting:
    each_item = ItemDummies(trials=56, extra_weight=2**30, most=40)
    return dataclasses.replace(_setting(of_grr(56, 4.0), anonymity_set), dummies=each_item)


def _noise(spec: ShufflerSpec, delta: float) -> BoundSetting:
    setting = _setting(of_grr(56, 4.0), AnonymitySet(users=10**6), delta)
    return dataclasses.replace(setting, shuffler=spec)


def _blanket(mean: float, dummies: int) -> float:
    return dummies + mean - math.sqrt(2 * mean * math.log(2e6)) - 1


_N = 602_325
_MILLION = AnonymitySet(users=10**6)
_LOG_4 = math.log(4e6)
_CLOSED = math.sqrt(14 * math.log(2e6) * (math.exp(4) + 55) / (_N - 1))


@table(
    ("bound", "reduction", "anonymity_set", "expected"),
    [
        (  # √(14·h·ln(4/δ)/(|S| + (n-1)γ - √(2(n-1)γ·ln(2/δ)) - 1)), about .0376
            od_hp_theorem_1,
            of_hashing(16, 8.0),
            AnonymitySet(users=_N, dummies=4 * _N),
            math.sqrt(
                14 * 16 * math.log(4e6) / _blanket((_N - 1) * 16 / (math.exp(8) + 15), 4 * _N)
            ),
        ),
        (  # the same with k items
            mix_dump,
            of_grr(100, 5.0),
            AnonymitySet(users=_N, dummies=_N),
            math.sqrt(14 * 100 * math.log(4e6) / _blanket((_N - 1) * 100 / (math.exp(5) + 99), _N)),
        ),
        # √(14·ln(2/δ)·(e^ε0 + l - 1)/(n-1)), n the honest users, for SH and SOLH
        (balle_closed_form, of_hashing(56, 4.0), AnonymitySet(users=_N + 9, colluders=9), _CLOSED),
        (balle_closed_form, of_grr(56, 4.0), AnonymitySet(users=_N), _CLOSED),
        (  # √(14·k·ln(2/δ)/(|S|-1)); known dummies do not count
            pure_dump,
            of_grr(915, math.inf),
            AnonymitySet(users=_N, dummies=31 * _N + 1000, known_dummies=1000),
            math.sqrt(14 * 915 * math.log(2e6) / (31 * _N - 1)),
        ),
        # λ = 64·ln(4/δ)/ε² up to n/3, and the other branch above
        (ddps, of_grr(2, 4.0), _MILLION, math.sqrt(64 * _LOG_4 / (of_grr(2, 4.0).blanket * 10**6))),
        *(
            (ddps, reduction, _MILLION, (1 - reduction.blanket) * math.sqrt(432 * _LOG_4 / 10**6))
            for reduction in (of_grr(2, 0.5), of_grr(2, math.log(5) - 1e-9))
        ),
        # μ = 32·ln(2/δ)/ε² expected dummies in each bucket
        *(
            (
                fe1,
                of_hashing(101, math.inf),
                anonymity_set,
                math.sqrt(32 * math.log(2e6) * 101 / 190_000),
            )
            for anonymity_set in (
                AnonymitySet(users=10**5, dummies=190_000),
                AnonymitySet(users=10**5, dummies=180_000, random_dummies=Binomial(20_000, 0.5)),
            )
        ),
    ],
)
def test_bounds_match_the_printed_formulas(
    bound: Bound, reduction: MatchCountReduction, anonymity_set: AnonymitySet, expected: float
) -> None:
    """At δ = 1e-6."""
    assert bound(_setting(reduction, anonymity_set)) == pytest.approx(expected, rel=1e-12)


@table(
    ("bound", "reduction", "users", "dummies", "message"),
    [
        (balle_closed_form, of_grr(56, 4.0), 10**6, 7, "here there are 7"),
        (balle_closed_form, of_grr(56, math.inf), 10**6, 0, "finite local ε"),
        (balle_closed_form, of_grr(56, 4.0), 10**4, 0, "the formula gives 1.49"),
        (balle_closed_form, of_grr(56, 4.0), 1, 0, "it counts none"),
        (pure_dump, of_grr(56, 4.0), 10, 10**7, "the local ε is 4"),
        (pure_dump, of_grr(56, math.inf), 10**6, 0, "it counts none"),
        (pure_dump, of_grr(56, math.inf), 10, 5000, "the formula gives 1.509"),
        (pure_dump, of_hashing(56, math.inf), 10, 10**7, "here reports are hashed"),
        (mix_dump, of_hashing(56, 4.0), 10**6, 0, "here reports are hashed"),
        (mix_dump, of_grr(56, math.inf), 10, 10**7, "finite local ε"),
        (mix_dump, of_grr(56, 4.0), 10, 0, "it counts none"),
        (od_hp_theorem_1, of_hashing(53, 4.0), 1, 0, "more than one report"),
        (od_hp_theorem_1, of_hashing(53, 4.0), 5000, 5000, "holds for ε ≤ 1"),
        (ddps, of_grr(3, 1.0), 10**6, 0, "3 answers"),
        (ddps, of_grr(2, math.inf), 10**6, 0, "finite local ε"),
        (ddps, of_grr(2, 1.0), 10**6, 5, "here there are 5"),
        (ddps, of_grr(2, 1.0), 100, 0, "holds for ε ≤ 1"),
        (fe1, of_hashing(56, 4.0), 10, 10**7, "the local ε is 4"),
        (fe1, of_hashing(56, math.inf), 10, 0, "it counts none"),
        (fe1, of_hashing(56, math.inf), 10, 1000, "holds for ε ≤ 1"),
    ],
)
def test_each_bound_keeps_to_its_range(
    bound: Bound, reduction: MatchCountReduction, users: int, dummies: int, message: str
) -> None:
    """The message states the rule and the number; random dummies are refused unless binomial."""
    with pytest.raises(BoundRangeError, match=message):
        bound(_setting(reduction, AnonymitySet(users=users, dummies=dummies)))
    random = AnonymitySet(users=10**6, random_dummies=Poisson(1e6))
    if bound is not ddps:
        with pytest.raises(BoundRangeError, match="number is random"):
            bound(_setting(of_grr(56, math.inf if bound is fe1 else 4.0), random))


def test_theorem_1_needs_a_large_blanket() -> None:
    """At large δ the first condition holds while the blanket is too small."""
    with pytest.raises(BoundRangeError, match="needs a blanket of"):
        od_hp_theorem_1(_setting(of_hashing(1000, 8.0), AnonymitySet(users=2, dummies=22_000), 0.9))


@table("name", sorted(PUBLISHED))
def test_every_bound_accepts_only_its_own_settings(name: str) -> None:
    """Plain, with users' dummies of each item, and with the shuffler's noise."""
    noise = ShufflerSpec(noise=BinomialNoise(trials=50_000))
    dummies = AnonymitySet(users=10**6, random_dummies=Binomial(10**6, 0.25))
    plain = _setting(of_grr(56, 4.0), AnonymitySet(users=10**6))
    settings = {"plain": plain, "each item": _of_items(dummies), "noise": _noise(noise, 1e-6)}
    answers = set()
    for key, setting in settings.items():
        try:
            assert 0 < PUBLISHED[name][1](setting) <= 1
        except BoundRangeError:
            continue
        answers.add(key)

    expected = {
        "aue": {"each item"},
        "sbin": {"noise"},
        "balle-closed-form": {"plain"},
        "mixdump": {"plain"},
        "od-hp-theorem-1": {"plain"},
    }
    assert expected.get(name, set()) == answers


def _coins(trials: int, kept: float = 1.0) -> ShufflerSpec:
    return ShufflerSpec(keep_weight=int(kept * KEEP_SUM), noise=BinomialNoise(trials=trials))


def _flanks(epsilon: float, delta: float, kept: float) -> ShufflerSpec:
    """Return the noise that SAGeo's authors use, with weights rounded up."""
    left, right = sageo_left(epsilon, kept), sageo_right(epsilon, kept)
    peak = max(0, math.ceil(sageo_peak(epsilon, delta, kept, left, right)))
    cut = math.ceil(math.log(1e-3 * delta) / math.log(right))
    return ShufflerSpec(
        keep_weight=int(kept * KEEP_SUM),
        noise=GeometricNoise(
            peak=peak,
            left_weight=math.ceil(left * RATIO_SUM) + 1,
            right_weight=math.ceil(right * RATIO_SUM) + 1,
            most=peak + cut,
        ),
    )


def test_aue_is_the_printed_formula() -> None:
    """G = 200·ln(4/δ)/(ε²n), inverted; far above the exact figure."""
    anonymity_set = AnonymitySet(users=602_325, random_dummies=Binomial(602_325, 0.25))
    expected = math.sqrt(200 * math.log(4e6) / (0.25 * 602_325))

    assert aue(_of_items(anonymity_set)) == pytest.approx(expected, rel=1e-12)
    exact = ItemNoiseRelease(noise=Binomial(602_325, 0.25)).epsilon(1e-6)
    assert 5 < expected / exact < 20


@pytest.mark.parametrize("kept", [1.0, 0.5])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-12)])
def test_calibrations_are_inverted(epsilon: float, delta: float, kept: float) -> None:
    """The bound of noise calibrated for an ε is that ε; the exact figure is smaller."""
    coins = _coins(math.ceil(sbin_coins(epsilon, delta, kept)), kept)
    spec = _flanks(epsilon, delta, kept)

    assert epsilon == pytest.approx(sbin(_noise(coins, delta)), rel=1e-2)
    assert sbin(_noise(coins, delta)) <= epsilon
    assert epsilon == pytest.approx(sageo(_noise(spec, delta)), rel=1e-5)
    for one, claim in ((coins, sbin(_noise(coins, delta))), (spec, sageo(_noise(spec, delta)))):
        exact = ItemNoiseRelease.of_shuffler(one).epsilon(delta)
        assert exact <= claim * (1 + 1e-4)


def test_bounds_on_noise_keep_to_their_range() -> None:
    """Another distribution, or too little noise."""
    geometric = _flanks(0.1, 1e-6, 1.0)
    for bound, spec in ((sbin, geometric), (sbin, ShufflerSpec()), (sageo, _coins(100))):
        with pytest.raises(BoundRangeError, match="the distribution is"):
            bound(_noise(spec, 1e-6))
    with pytest.raises(BoundRangeError, match="more noise than there is"):
        sbin(_noise(_coins(5), 1e-12))
    narrow = ShufflerSpec(
        noise=GeometricNoise(peak=0, left_weight=2**29, right_weight=2**29, most=40)
    )
    with pytest.raises(BoundRangeError, match="more noise than there is"):
        sageo(_noise(narrow, 1e-12))
    assert math.inf == sbin_coins(0.1, 0.5, 0.1)
    with pytest.raises(BoundRangeError, match="there are none"):
        aue(_of_items(AnonymitySet(users=100)))
    with pytest.raises(BoundRangeError, match="holds for ε ≤ 1"):
        aue(_of_items(AnonymitySet(users=100, random_dummies=Binomial(100, 0.5))))
