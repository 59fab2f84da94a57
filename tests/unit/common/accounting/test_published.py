import dataclasses
import math

import pytest

from common.accounting.amplification import epsilon_upper
from common.accounting.anonymity_set import AnonymitySet
from common.accounting.count_distributions import Binomial, Poisson
from common.accounting.published import (
    PUBLISHED,
    Bound,
    BoundSetting,
    balle_closed_form,
    ddps,
    fe1,
    mix_dump,
    od_hp_theorem_1,
    pure_dump,
)
from common.errors import BoundRangeError
from common.mechanisms.reduction import MatchCountReduction
from common.protocols import PublishedBound
from common.task.dummy_spec import DummySpec
from common.task.shuffler_spec import ShufflerSpec


def _hashing(buckets: int, local_epsilon: float) -> MatchCountReduction:
    return MatchCountReduction.for_epsilon(
        answers=buckets, local_epsilon=local_epsilon, hashed=True
    )


def test_theorem_1_is_the_printed_formula() -> None:
    """By hand: the n-1 other users' blanket and nm dummies."""
    gamma = 16 / (math.exp(8) + 15)
    expected_blanket = gamma * 602_324
    blanket = 602_325 * 4 + expected_blanket - math.sqrt(2 * expected_blanket * math.log(2e6)) - 1
    expected = math.sqrt(14 * 16 * math.log(4e6) / blanket)

    claim = od_hp_theorem_1(
        _hashing(16, 8.0), AnonymitySet(users=602_325, dummies=4 * 602_325), 1e-6
    )

    assert claim == pytest.approx(expected, rel=1e-12)
    assert claim == pytest.approx(0.0376, abs=1e-4)


def test_the_second_condition_is_enforced() -> None:
    """At large δ the first condition holds while the blanket is too small."""
    with pytest.raises(BoundRangeError, match="needs a blanket of"):
        od_hp_theorem_1(_hashing(1000, 8.0), AnonymitySet(users=2, dummies=22_000), 0.9)


def _grr(items: int, local_epsilon: float) -> MatchCountReduction:
    return MatchCountReduction.for_epsilon(answers=items, local_epsilon=local_epsilon, hashed=False)


def test_the_closed_form_is_the_printed_formula() -> None:
    """√(14·ln(2/δ)·(e^ε0 + l - 1)/(n-1)), n the honest users, for SH and SOLH."""
    expected = math.sqrt(14 * math.log(2e6) * (math.exp(4) + 55) / 602_324)
    crowd = AnonymitySet(users=612_325, colluders=10_000)

    assert balle_closed_form(_hashing(56, 4.0), crowd, 1e-6) == pytest.approx(expected, rel=1e-12)
    assert balle_closed_form(_grr(56, 4.0), crowd, 1e-6) == pytest.approx(expected, rel=1e-12)
    assert expected == pytest.approx(0.192, abs=5e-4)


def test_pure_dump_is_the_printed_formula() -> None:
    """√(14·k·ln(2/δ)/(|S|-1)); known dummies do not count."""
    expected = math.sqrt(14 * 915 * math.log(2e6) / (31 * 602_325 - 1))
    crowd = AnonymitySet(users=602_325, dummies=31 * 602_325 + 1000, known_dummies=1000)

    assert pure_dump(_grr(915, math.inf), crowd, 1e-6) == pytest.approx(expected, rel=1e-12)


def test_mix_dump_is_the_printed_formula() -> None:
    """√(14·k·ln(4/δ)/(|S| + (n-1)γ - √(2(n-1)γ·ln(2/δ)) - 1))."""
    expected_blanket = 602_324 * 100 / (math.exp(5) + 99)
    blanket = 602_325 + expected_blanket - math.sqrt(2 * expected_blanket * math.log(2e6)) - 1
    expected = math.sqrt(14 * 100 * math.log(4e6) / blanket)
    crowd = AnonymitySet(users=602_325, dummies=602_325)

    assert mix_dump(_grr(100, 5.0), crowd, 1e-6) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("bound", "reduction", "crowd", "message"),
    [
        (
            balle_closed_form,
            _grr(56, 4.0),
            AnonymitySet(users=10**6, dummies=7),
            "here there are 7",
        ),
        (balle_closed_form, _grr(56, math.inf), AnonymitySet(users=10**6), "finite local ε"),
        (balle_closed_form, _grr(56, 4.0), AnonymitySet(users=10**4), "would claim 1.49"),
        (balle_closed_form, _grr(56, 4.0), AnonymitySet(users=1), "it counts none"),
        (pure_dump, _grr(56, 4.0), AnonymitySet(users=10, dummies=10**7), "the local ε is 4"),
        (pure_dump, _grr(56, math.inf), AnonymitySet(users=10**6), "it counts none"),
        (pure_dump, _grr(56, math.inf), AnonymitySet(users=10, dummies=5000), "would claim 1.51"),
        (
            pure_dump,
            _hashing(56, math.inf),
            AnonymitySet(users=10, dummies=10**7),
            "several values",
        ),
        (mix_dump, _hashing(56, 4.0), AnonymitySet(users=10**6), "several values"),
        (mix_dump, _grr(56, math.inf), AnonymitySet(users=10, dummies=10**7), "finite local ε"),
        (mix_dump, _grr(56, 4.0), AnonymitySet(users=10), "it counts none"),
        (od_hp_theorem_1, _hashing(53, 4.0), AnonymitySet(users=1), "more than one report"),
        (
            od_hp_theorem_1,
            _hashing(53, 4.0),
            AnonymitySet(users=5000, dummies=5000),
            "holds for ε ≤ 1",
        ),
        (ddps, _grr(3, 1.0), AnonymitySet(users=10**6), "3 answers"),
        (ddps, _grr(2, math.inf), AnonymitySet(users=10**6), "finite local ε"),
        (ddps, _grr(2, 1.0), AnonymitySet(users=10**6, dummies=5), "here there are 5"),
        (ddps, _grr(2, 1.0), AnonymitySet(users=100), "holds for ε ≤ 1"),
        (fe1, _hashing(56, 4.0), AnonymitySet(users=10, dummies=10**7), "the local ε is 4"),
        (fe1, _hashing(56, math.inf), AnonymitySet(users=10), "it counts none"),
        (fe1, _hashing(56, math.inf), AnonymitySet(users=10, dummies=1000), "holds for ε ≤ 1"),
        (
            fe1,
            _hashing(56, math.inf),
            AnonymitySet(users=10, random_dummies=Poisson(1e6)),
            "number is random",
        ),
    ],
)
def test_each_bound_keeps_to_its_range(
    bound: Bound, reduction: MatchCountReduction, crowd: AnonymitySet, message: str
) -> None:
    """The message states the rule and the number."""
    with pytest.raises(BoundRangeError, match=message):
        bound(reduction, crowd, 1e-6)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_every_bound_accepts_only_its_own_settings(name: PublishedBound) -> None:
    """Plain, with users' dummies of each item, and with the shuffler's noise."""
    each_item = DummySpec(
        law="each-item",
        per_user=0,
        trials=56,
        extra_weight=2**30,
        most=40,
    )
    noise = ShufflerSpec(law="binomial", trials=50_000, most=50_000)
    dummies = AnonymitySet(users=10**6, random_dummies=Binomial(10**6, 0.25))
    plain = BoundSetting(reduction=_grr(56, 4.0), crowd=AnonymitySet(users=10**6), delta=1e-6)
    settings = {
        "plain": plain,
        "each item": dataclasses.replace(plain, crowd=dummies, dummies=each_item),
        "noise": dataclasses.replace(plain, shuffler=noise),
    }
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


def test_ddps_is_the_printed_formula() -> None:
    """λ = 64·ln(4/δ)/ε² up to n/3, and the other branch above; they meet."""
    n, log = 10**6, math.log(4e6)
    few, many = _grr(2, 4.0), _grr(2, 0.5)

    assert ddps(few, AnonymitySet(users=n), 1e-6) == pytest.approx(
        math.sqrt(64 * log / (few.blanket * n)), rel=1e-12
    )
    assert ddps(many, AnonymitySet(users=n), 1e-6) == pytest.approx(
        (1 - many.blanket) * math.sqrt(432 * log / n), rel=1e-12
    )
    third = math.log(5)  # blanket 2 / (e^ε0 + 1) = 1/3
    below, above = (
        ddps(_grr(2, third + step), AnonymitySet(users=n), 1e-6) for step in (1e-9, -1e-9)
    )
    assert below == pytest.approx(above, rel=1e-6)


def test_fe1_is_the_printed_formula() -> None:
    """μ = 32·ln(2/δ)/ε² expected dummies in each bucket."""
    reduction = _hashing(101, math.inf)
    mu = 32 * math.log(2e6) / 0.5**2
    certain = math.ceil(mu * 101)
    drawn = AnonymitySet(
        users=10**5, dummies=certain - 10_000, random_dummies=Binomial(20_000, 0.5)
    )

    assert fe1(reduction, AnonymitySet(users=10**5, dummies=certain), 1e-6) == pytest.approx(
        0.5, rel=1e-4
    )
    assert fe1(reduction, drawn, 1e-6) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize(
    ("bound", "reduction", "crowd"),
    [
        (balle_closed_form, _grr(56, 4.0), AnonymitySet(users=602_325)),
        (pure_dump, _grr(56, math.inf), AnonymitySet(users=602_325, dummies=602_325)),
        (mix_dump, _grr(56, 6.0), AnonymitySet(users=602_325, dummies=602_325)),
        (ddps, _grr(2, 4.0), AnonymitySet(users=602_325)),
        (od_hp_theorem_1, _hashing(53, 4.0), AnonymitySet(users=602_156, dummies=602_156)),
        (fe1, _hashing(53, math.inf), AnonymitySet(users=602_325, dummies=602_325)),
    ],
)
def test_every_claim_is_above_the_tight_value(
    bound: Bound, reduction: MatchCountReduction, crowd: AnonymitySet
) -> None:
    """By a factor of two or more."""
    assert bound(reduction, crowd, 1e-6) > 2 * epsilon_upper(reduction, crowd, 1e-6)
