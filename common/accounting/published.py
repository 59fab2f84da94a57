"""
The bounds that papers claim, one function for each theorem.

They are shown beside the tight figure for comparison; no guarantee rests on them. Printing errors
are corrected, and the name of the bound says so. Bounds for uniform dummies rest on the closed form
of [BBGN19], whose proof needs ε ≤ 1 and a blanket of at least 27·l/ε reports; they count dummies
whose number is fixed or binomial. All others are evaluated for ε ≤ 1 too, or where their
calibration can be inverted. `published_noise.py` has those of protocols with noise on each item.

Each bound raises AccountingError if delta is not between 0 and 1, and BoundRangeError outside the
range of its theorem.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from common.accounting.anonymity_set import AnonymitySet
from common.accounting.count_distributions import Binomial
from common.accounting.published_noise import at_most_one, aue, check_range_of_delta, sageo, sbin
from common.errors import BoundRangeError
from common.mechanisms.reduction import MatchCountReduction
from common.protocols import PublishedBound
from common.task.dummy_spec import NO_DUMMIES, PERMUTES, DummySpec, ShufflerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSetting:
    """The inputs of all published bounds."""

    reduction: MatchCountReduction
    crowd: AnonymitySet
    delta: float
    dummies: DummySpec = NO_DUMMIES
    """Distribution of the users' dummies; `crowd` has the number of honest ones."""
    shuffler: ShufflerSpec = PERMUTES


def balle_closed_form(reduction: MatchCountReduction, crowd: AnonymitySet, delta: float) -> float:
    """
    Return the central ε of shuffled randomized response (SH) or local hashing (SOLH, MURS).

    ε = √(14·ln(2/δ)·(e^ε0 + l - 1)/(n-1)), for l answers and n honest users [BBGN19], [WDX+20]. It
    covers no dummies, and is refused with them although it would hold. Reports need noise.
    """
    rule = "the closed form"
    _check(reduction, crowd, delta, rule)
    _needs_noise(reduction, rule)
    if crowd.dummies:
        raise BoundRangeError(f"{rule} knows no dummies; here there are {crowd.dummies}")
    blanket = reduction.blanket * crowd.others
    return _claim(14 * reduction.answers * math.log(2 / delta), blanket, reduction, rule)


def pure_dump(reduction: MatchCountReduction, crowd: AnonymitySet, delta: float) -> float:
    """
    Return the central ε of pureDUMP: values in the clear among dummies [LLF+20].

    ε = √(14·k·ln(2/δ)/(|S|-1)), for k items and |S| dummies; random ones as in `_flexible`. Reports
    must name items without noise.
    """
    rule = "pureDUMP's bound"
    _check(reduction, crowd, delta, rule, flexible=True)
    _needs_one_histogram(reduction, rule)
    if math.isfinite(reduction.local_epsilon):
        raise BoundRangeError(
            f"{rule} is for reports without noise; here the local ε is "
            f"{reduction.local_epsilon:.4g}"
        )
    counted, delta = _flexible(crowd, delta)
    dummies = counted - 1
    return _claim(14 * reduction.answers * math.log(2 / delta), dummies, reduction, rule)


def mix_dump(reduction: MatchCountReduction, crowd: AnonymitySet, delta: float) -> float:
    """
    Return the central ε of mixDUMP: randomized response among dummies [LLF+20].

    ε = √(14·k·ln(4/δ)/(|S| + γ(n-1) - √(2γ(n-1)·ln(2/δ)) - 1)), for k items, |S| dummies and n
    honest users; random dummies as in `_flexible`. Reports must name items with noise.
    """
    rule = "mixDUMP's bound"
    _check(reduction, crowd, delta, rule, flexible=True)
    _needs_one_histogram(reduction, rule)
    _needs_noise(reduction, rule)
    return _among_dummies(reduction, crowd, delta, rule)


def od_hp_theorem_1(reduction: MatchCountReduction, crowd: AnonymitySet, delta: float) -> float:
    """
    Return the central ε that OD-HP's Theorem 1 claims against the analyzer [CC24].

    ε = √(14·h·ln(4/δ) / (|M| + γ(n-1) - √(2γ(n-1)·ln(2/δ)) - 1)), for h buckets, |M| dummies and n
    honest users; h is the number of items if the protocol does not hash.
    """
    rule = "Theorem 1"
    _check(reduction, crowd, delta, rule, flexible=True)
    return _among_dummies(reduction, crowd, delta, rule)


def ddps(reduction: MatchCountReduction, crowd: AnonymitySet, delta: float) -> float:
    """
    Return the central ε of DDPS: a bit, or with probability λ/n a fair coin [CSUZZ19].

    λ = 64·ln(4/δ)/ε² where ε ≥ √(192·ln(4/δ)/n), else n - ε·n^1.5/√(432·ln(4/δ)), for n honest
    users; the two meet at λ = n/3. λ/n is the blanket. It covers no dummies.
    """
    rule = "DDPS's bound"
    _check(reduction, crowd, delta, rule)
    _needs_one_histogram(reduction, rule)
    _needs_noise(reduction, rule)
    if reduction.answers != 2:  # noqa: PLR2004  # a bit
        raise BoundRangeError(f"{rule} is for bits; here there are {reduction.answers} answers")
    if crowd.dummies:
        raise BoundRangeError(f"{rule} knows no dummies; here there are {crowd.dummies}")
    n, log = crowd.others + 1, math.log(4 / delta)
    coins = reduction.blanket * n
    if 3 * coins <= n:
        return at_most_one(math.sqrt(64 * log / coins), rule)
    return at_most_one((n - coins) * math.sqrt(432 * log) / n**1.5, rule)


def fe1(reduction: MatchCountReduction, crowd: AnonymitySet, delta: float) -> float:
    """
    Return the central ε of FE1: hashed values without noise among uniform dummies [LWY22].

    μ = 32·ln(2/δ)/ε², for μ expected dummies in each bucket, whose number is fixed or binomial.
    """
    rule = "FE1's bound"
    check_range_of_delta(delta)
    _needs_answers(reduction, rule)
    if math.isfinite(reduction.local_epsilon):
        raise BoundRangeError(
            f"{rule} is for reports without noise; here the local ε is "
            f"{reduction.local_epsilon:.4g}"
        )
    expected = float(_fixed_dummies(crowd))
    if crowd.random_dummies is not None:
        if not isinstance(crowd.random_dummies, Binomial):
            raise BoundRangeError(
                f"{rule} counts a fixed or binomial number of dummies; here their number is random"
            )
        expected += crowd.random_dummies.trials * crowd.random_dummies.chance
    if expected <= 0:
        raise BoundRangeError(f"{rule} needs dummies; it counts none")
    return at_most_one(math.sqrt(32 * math.log(2 / delta) * reduction.answers / expected), rule)


def _among_dummies(
    reduction: MatchCountReduction, crowd: AnonymitySet, delta: float, rule: str
) -> float:
    """Count the dummies and, except with probability δ/2, a lower bound of the others' blanket."""
    counted, delta = _flexible(crowd, delta)
    expected = reduction.blanket * crowd.others
    blanket = counted + expected - math.sqrt(2 * expected * math.log(2 / delta)) - 1
    return _claim(14 * reduction.answers * math.log(4 / delta), blanket, reduction, rule)


def _claim(numerator: float, blanket: float, reduction: MatchCountReduction, rule: str) -> float:
    """Return √(numerator / blanket), if it is in the range of [BBGN19]."""
    if blanket <= 0:
        raise BoundRangeError(f"{rule} needs a blanket of more than one report; it counts none")
    epsilon = math.sqrt(numerator / blanket)
    if epsilon > 1:
        raise BoundRangeError(f"{rule} holds for ε ≤ 1; here it would claim {epsilon:.3g}")
    needed = 27 * reduction.answers / epsilon
    if blanket < needed:
        raise BoundRangeError(
            f"{rule} needs a blanket of {needed:.0f} reports at ε = {epsilon:.3g}; "
            f"it counts {blanket:.0f}"
        )
    return epsilon


def _check(
    reduction: MatchCountReduction,
    crowd: AnonymitySet,
    delta: float,
    rule: str,
    *,
    flexible: bool = False,
) -> None:
    """Refuse inputs that no theorem here covers."""
    check_range_of_delta(delta)
    counted = crowd.random_dummies is None or (
        flexible and isinstance(crowd.random_dummies, Binomial)
    )
    if not counted:
        raise BoundRangeError(
            f"{rule} counts a fixed number of dummies; here their number is random"
        )
    _needs_answers(reduction, rule)


def _needs_answers(reduction: MatchCountReduction, rule: str) -> None:
    if reduction.answers != math.floor(reduction.answers):
        raise BoundRangeError(
            f"{rule} is for randomized response and local hashing; "
            f"l = {reduction.answers:.4g} is no number of answers"
        )


def _flexible(crowd: AnonymitySet, delta: float) -> tuple[float, float]:
    """
    Return the number of dummies that a bound may count, and the δ left for it.

    A binomial number of mean μ is below μ - √(2μ·ln(2/δ)) with probability at most δ/2 (Chernoff).
    """
    drawn = crowd.random_dummies
    if not isinstance(drawn, Binomial):
        return _fixed_dummies(crowd), delta
    mean = drawn.trials * drawn.chance
    tail = max(0.0, mean - math.sqrt(2 * mean * math.log(2 / delta)))
    return _fixed_dummies(crowd) + tail, delta / 2


def _fixed_dummies(crowd: AnonymitySet) -> int:
    return crowd.dummies - crowd.known_dummies


def _needs_noise(reduction: MatchCountReduction, rule: str) -> None:
    if math.isinf(reduction.local_epsilon):
        raise BoundRangeError(f"{rule} needs a finite local ε; here reports carry no noise")


def _needs_one_histogram(reduction: MatchCountReduction, rule: str) -> None:
    if reduction.collision > 0 or reduction.third_value == "independent":
        raise BoundRangeError(
            f"{rule} is for reports that are items; here a report supports several values"
        )


Bound = Callable[[MatchCountReduction, AnonymitySet, float], float]
SettingBound = Callable[[BoundSetting], float]


def _uniform(bound: Bound) -> SettingBound:
    """Wrap a bound for uniform dummies and a shuffler that only permutes."""

    def asked(setting: BoundSetting) -> float:
        if not (setting.dummies.uniform and setting.shuffler.idle):
            raise BoundRangeError(
                "it knows neither dummies of each item nor a shuffler that does more than permute"
            )
        return bound(setting.reduction, setting.crowd, setting.delta)

    return asked


def _each_item(setting: BoundSetting) -> float:
    if setting.dummies.uniform:
        raise BoundRangeError("AUE's bound is for dummies of each item; here they are uniform")
    return aue(setting.crowd, setting.delta)


PUBLISHED: Final[Mapping[PublishedBound, tuple[str, SettingBound]]] = MappingProxyType(
    {
        "balle-closed-form": (
            "the privacy blanket's closed form [BBGN19] for SH, SOLH and MURS",
            _uniform(balle_closed_form),
        ),
        "ddps": ("DDPS's bound [CSUZZ19]", _uniform(ddps)),
        "aue": ("AUE's bound [BC20]", _each_item),
        "puredump": ("pureDUMP's bound [LLF+20]", _uniform(pure_dump)),
        "mixdump": ("mixDUMP's bound [LLF+20]", _uniform(mix_dump)),
        "od-hp-theorem-1": (
            "OD-HP Theorem 1 [CC24], with its lost roots restored and a fresh seed for every dummy",
            _uniform(od_hp_theorem_1),
        ),
        "fe1": ("FE1's bound [LWY22]", _uniform(fe1)),
        "sbin": ("SBin's bound [MSE25]", lambda setting: sbin(setting.shuffler, setting.delta)),
        "sageo": ("SAGeo's bound [MSE25]", lambda setting: sageo(setting.shuffler, setting.delta)),
    }
)
"""Published bounds by the key in a protocol's row, with their full names."""
