"""
The bounds that papers claim, one function for each theorem.

They are shown beside the tight figure for comparison; no guarantee rests on them. Misprints are
corrected, and the bound's name says so. Bounds for uniform dummies rest on the closed form of
[BBGN19], whose proof needs ε ≤ 1 and a blanket of at least 27·l/ε reports; they count a fixed or
binomial number of dummies. The others are evaluated for ε ≤ 1 too, or where their calibration can
be inverted.

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
from common.errors import AccountingError, BoundRangeError
from common.mechanisms.reduction import MatchCountReduction
from common.protocols import PublishedBound
from common.task.dummy_spec import NO_DUMMIES, PERMUTE_ONLY, RATIO_SUM, DummySpec, ShufflerSpec

_MIN: Final = 1e-6
_MAX: Final = 50.0
"""Range of ε in which calibrations are inverted."""
_CLOSE: Final = 1e-9
"""Relative precision of ε."""
_ROUNDED: Final = 2.0
"""Units of 1 / RATIO_SUM by which a weight may fall short of a ratio."""


def aue(anonymity_set: AnonymitySet, delta: float) -> float:
    """
    Return the central ε of AUE, where honest users add a dummy of each item with probability g.

    g = 200·ln(4/δ)/(ε²n) ≤ 1, solved for ε [BC20]. The paper sets no maximum number of dummies.

    Args:
        anonymity_set: Its random dummies are those of one item.
        delta: Strictly between 0 and 1.
    """
    check_range_of_delta(delta)
    distribution, rule = anonymity_set.random_dummies, "AUE's bound"
    if not isinstance(distribution, Binomial) or distribution.trials * distribution.chance == 0:
        raise BoundRangeError(f"{rule} counts honest users' dummies of each item; here are none")
    return at_most_one(
        math.sqrt(200 * math.log(4 / delta) / (distribution.trials * distribution.chance)), rule
    )


def sbin(shuffler: ShufflerSpec, delta: float) -> float:
    """
    Return SBin's published central ε: the least one for which its coins suffice [MSE25].

    Raises:
        BoundRangeError: The shuffler's noise is not of fair coins, or no ε suffices.
    """
    check_range_of_delta(delta)
    if shuffler.law != "binomial":
        raise BoundRangeError(f"SBin's bound is for fair coins; the distribution is {shuffler.law}")

    def short(epsilon: float) -> float:
        return _sbin_coins(epsilon, delta, shuffler.keep_probability) - shuffler.trials

    return _least(short, _MAX, "SBin's bound")


def sageo(shuffler: ShufflerSpec, delta: float) -> float:
    """
    Return the central ε of SAGeo: the least ε for which these ratios and peak suffice [MSE25].

    The paper ignores the upper cut-off. Its range is β ≥ 1 - e^(-ε/2).
    """
    check_range_of_delta(delta)
    rule = "SAGeo's bound"
    if shuffler.law != "geometric":
        raise BoundRangeError(
            f"{rule} is for two-sided geometric noise; the distribution is {shuffler.law}"
        )
    beta = shuffler.keep_probability
    left, right = shuffler.left_weight / RATIO_SUM, shuffler.right_weight / RATIO_SUM
    unit = _ROUNDED / RATIO_SUM

    def short(epsilon: float) -> float:
        steep = max(
            sageo_left(epsilon, beta) - left - unit, sageo_right(epsilon, beta) - right - unit
        )
        if steep > 0:
            return math.inf
        return _sageo_peak(epsilon, delta, beta, left, right) - shuffler.peak

    top = _MAX if beta == 1 else min(_MAX, -2 * math.log1p(-beta))
    return _least(short, top, rule)


def sbin_trials(epsilon: float, delta: float, keep_probability: float) -> int:
    """
    Return the number of fair coins for each item that SBin requires [MSE25].

    Raises:
        AccountingError: delta is not between 0 and 1.
        BoundRangeError: The parameters are outside the formula's range.
    """
    check_range_of_delta(delta)
    coins = _sbin_coins(epsilon, delta, keep_probability)
    if math.isinf(coins):
        raise BoundRangeError(
            "SBin's bound does not cover this ε, δ and share of keep_probability reports"
        )
    return max(1, math.ceil(coins))


def sageo_left(epsilon: float, keep_probability: float) -> float:
    """
    Return SAGeo's ratio q_l = (e^(-ε/2) - 1 + β)/β [MSE25]; 0 if β is below its range.

    Computed as 1 + (e^(-ε/2) - 1)/β, without cancellation.
    """
    return max(0.0, 1 + math.expm1(-epsilon / 2) / keep_probability)


def sageo_right(epsilon: float, keep_probability: float) -> float:
    """Return SAGeo's ratio q_r = β/(e^(ε/2) - 1 + β) [MSE25]."""
    return keep_probability / (math.expm1(epsilon / 2) + keep_probability)


def sageo_peak(
    epsilon: float, delta: float, keep_probability: float, left: float, right: float
) -> int:
    """
    Return the peak ν of the noise that SAGeo requires [MSE25].

    Raises:
        AccountingError: delta is not between 0 and 1.
        BoundRangeError: The parameters are outside the formula's range.
    """
    check_range_of_delta(delta)
    peak = _sageo_peak(epsilon, delta, keep_probability, left, right)
    if math.isinf(peak):
        raise BoundRangeError(
            "SAGeo's bound does not cover this ε, δ and share of keep_probability reports"
        )
    return max(0, math.ceil(peak))


def _sbin_coins(epsilon: float, delta: float, keep_probability: float) -> float:
    """
    Return SBin's number M of coins before rounding up, infinite outside the formula's range.

    With ε0 = ln((e^(ε/2) + β - 1)/β), E = e^ε0 and L = ln(4β/δ), M = [2(E-1) + (1+E)((1+E)L +
    √2·√(E·L·(2 + cosh(ε0)·(L-2) + L + 2·sinh ε0)))] / (E-1)² [MSE25].
    """
    growth = math.expm1(epsilon / 2) / keep_probability
    e, log = 1 + growth, math.log(4 * keep_probability / delta)
    if log <= 0 or growth <= 0:
        return math.inf
    cosh, sinh = (e + 1 / e) / 2, (e - 1 / e) / 2
    under_root = e * log * (2 + cosh * (log - 2) + log + 2 * sinh)
    if under_root < 0:
        return math.inf
    root = math.sqrt(2 * under_root)
    return (2 * growth + (1 + e) * ((1 + e) * log + root)) / growth**2


def _sageo_peak(
    epsilon: float, delta: float, keep_probability: float, left: float, right: float
) -> float:
    """
    Return SAGeo's ν before rounding up, infinite outside the formula's range.

    ν = ln[δ(q_l·q_r - 1) / ((2 - 2(β-1)e^(ε/2)(q_l - 1) + (δ-2)q_l)(q_r - 1))] / ln q_l [MSE25].
    """
    if not (0 < left < 1 and 0 < right < 1):
        return 0.0 if left <= 0 else math.inf
    least = (
        2 - 2 * (keep_probability - 1) * math.exp(epsilon / 2) * (left - 1) + (delta - 2) * left
    ) * (right - 1)
    share = delta * (left * right - 1) / least if least != 0 else math.inf
    return math.log(share) / math.log(left) if 0 < share < math.inf else math.inf


def _least(short: Callable[[float], float], top: float, rule: str) -> float:
    """Find from above the least ε whose required noise does not exceed the given noise."""
    if short(top) > 0:
        raise BoundRangeError(
            f"{rule} asks for more noise than there is, for any ε up to {top:.4g}"
        )
    low, high = _MIN, top
    if short(low) <= 0:
        return low
    # By bisection, because calibrations are infinite outside their range.
    while high - low > _CLOSE * high:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if short(middle) <= 0 else (middle, high)
    return high


def at_most_one(epsilon: float, rule: str) -> float:
    """Return ε if it is at most 1; raise BoundRangeError otherwise."""
    if epsilon > 1:
        raise BoundRangeError(f"{rule} holds for ε ≤ 1; here it would claim {epsilon:.3g}")
    return epsilon


def check_range_of_delta(delta: float) -> None:
    """Check that δ is strictly between 0 and 1, or raise AccountingError."""
    if not 0 < delta < 1:
        raise AccountingError(f"delta is {delta}; it must lie strictly between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSetting:
    """The inputs of all published bounds."""

    reduction: MatchCountReduction
    anonymity_set: AnonymitySet
    delta: float
    dummies: DummySpec = NO_DUMMIES
    """Distribution of a user's dummies; `anonymity_set` has the honest users' total."""
    shuffler: ShufflerSpec = PERMUTE_ONLY


def balle_closed_form(
    reduction: MatchCountReduction, anonymity_set: AnonymitySet, delta: float
) -> float:
    """
    Return the central ε of shuffled randomized response (SH) or local hashing (SOLH, MURS).

    ε = √(14·ln(2/δ)·(e^ε0 + l - 1)/(n-1)), for l answers and n honest users [BBGN19], [WDX+20]. It
    covers no dummies, and is refused with them although it would hold. Reports need noise.
    """
    rule = "the closed form"
    _check(reduction, anonymity_set, delta, rule)
    _needs_noise(reduction, rule)
    if anonymity_set.dummies:
        raise BoundRangeError(f"{rule} covers no dummies; here there are {anonymity_set.dummies}")
    blanket = reduction.blanket * anonymity_set.others
    return _claim(14 * reduction.answers * math.log(2 / delta), blanket, reduction, rule)


def pure_dump(reduction: MatchCountReduction, anonymity_set: AnonymitySet, delta: float) -> float:
    """
    Return the central ε of pureDUMP: values in the clear among dummies [LLF+20].

    ε = √(14·k·ln(2/δ)/(|S|-1)), for k items and |S| dummies; random ones as in `_flexible`. Reports
    must name items without noise.
    """
    rule = "pureDUMP's bound"
    _check(reduction, anonymity_set, delta, rule, flexible=True)
    _needs_one_histogram(reduction, rule)
    if math.isfinite(reduction.local_epsilon):
        raise BoundRangeError(
            f"{rule} is for reports without noise; here the local ε is "
            f"{reduction.local_epsilon:.4g}"
        )
    counted, delta = _flexible(anonymity_set, delta)
    dummies = counted - 1
    return _claim(14 * reduction.answers * math.log(2 / delta), dummies, reduction, rule)


def mix_dump(reduction: MatchCountReduction, anonymity_set: AnonymitySet, delta: float) -> float:
    """
    Return the central ε of mixDUMP: randomized response among dummies [LLF+20].

    ε = √(14·k·ln(4/δ)/(|S| + γ(n-1) - √(2γ(n-1)·ln(2/δ)) - 1)), for k items, |S| dummies and n
    honest users; random dummies as in `_flexible`. Reports must name items with noise.
    """
    rule = "mixDUMP's bound"
    _check(reduction, anonymity_set, delta, rule, flexible=True)
    _needs_one_histogram(reduction, rule)
    _needs_noise(reduction, rule)
    return _among_dummies(reduction, anonymity_set, delta, rule)


def od_hp_theorem_1(
    reduction: MatchCountReduction, anonymity_set: AnonymitySet, delta: float
) -> float:
    """
    Return the central ε that OD-HP's Theorem 1 claims against the analyzer [CC24].

    ε = √(14·h·ln(4/δ) / (|M| + γ(n-1) - √(2γ(n-1)·ln(2/δ)) - 1)), for h buckets, |M| dummies and n
    honest users; h is the number of items if the protocol does not hash.
    """
    rule = "Theorem 1"
    _check(reduction, anonymity_set, delta, rule, flexible=True)
    return _among_dummies(reduction, anonymity_set, delta, rule)


def ddps(reduction: MatchCountReduction, anonymity_set: AnonymitySet, delta: float) -> float:
    """
    Return the central ε of DDPS: a bit, or with probability λ/n a fair coin [CSUZZ19].

    λ = 64·ln(4/δ)/ε² where ε ≥ √(192·ln(4/δ)/n), else n - ε·n^1.5/√(432·ln(4/δ)), for n honest
    users; the two meet at λ = n/3. λ/n is the blanket. It covers no dummies.
    """
    rule = "DDPS's bound"
    _check(reduction, anonymity_set, delta, rule)
    _needs_one_histogram(reduction, rule)
    _needs_noise(reduction, rule)
    if reduction.answers != 2:  # noqa: PLR2004  # a bit
        raise BoundRangeError(f"{rule} is for bits; here there are {reduction.answers} answers")
    if anonymity_set.dummies:
        raise BoundRangeError(f"{rule} covers no dummies; here there are {anonymity_set.dummies}")
    n, log = anonymity_set.others + 1, math.log(4 / delta)
    coins = reduction.blanket * n
    if 3 * coins <= n:
        return at_most_one(math.sqrt(64 * log / coins), rule)
    return at_most_one((n - coins) * math.sqrt(432 * log) / n**1.5, rule)


def fe1(reduction: MatchCountReduction, anonymity_set: AnonymitySet, delta: float) -> float:
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
    expected = float(_fixed_dummies(anonymity_set))
    if anonymity_set.random_dummies is not None:
        if not isinstance(anonymity_set.random_dummies, Binomial):
            raise BoundRangeError(
                f"{rule} counts a fixed or binomial number of dummies; here their number is random"
            )
        expected += anonymity_set.random_dummies.trials * anonymity_set.random_dummies.chance
    if expected <= 0:
        raise BoundRangeError(f"{rule} needs dummies; it counts none")
    return at_most_one(math.sqrt(32 * math.log(2 / delta) * reduction.answers / expected), rule)


def _among_dummies(
    reduction: MatchCountReduction, anonymity_set: AnonymitySet, delta: float, rule: str
) -> float:
    """
    Return √(14·l·ln(4/δ) / blanket), counting dummies and a lower bound on the others' blanket.

    Bin(n-1, γ) is below its mean μ by √(2μ·ln(2/δ)) with probability at most δ/2 (Chernoff).
    """
    counted, delta = _flexible(anonymity_set, delta)
    expected = reduction.blanket * anonymity_set.others
    blanket = counted + expected - math.sqrt(2 * expected * math.log(2 / delta)) - 1
    return _claim(14 * reduction.answers * math.log(4 / delta), blanket, reduction, rule)


def _claim(numerator: float, blanket: float, reduction: MatchCountReduction, rule: str) -> float:
    """Return √(numerator / blanket) if that is in the range of [BBGN19]."""
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
    anonymity_set: AnonymitySet,
    delta: float,
    rule: str,
    *,
    flexible: bool = False,
) -> None:
    """Refuse inputs that no theorem here covers."""
    check_range_of_delta(delta)
    counted = anonymity_set.random_dummies is None or (
        flexible and isinstance(anonymity_set.random_dummies, Binomial)
    )
    if not counted:
        raise BoundRangeError(
            f"{rule} counts a fixed number of dummies; here their number is random"
        )
    _needs_answers(reduction, rule)


def _needs_answers(reduction: MatchCountReduction, rule: str) -> None:
    """Refuse a real l: the papers' theorems count answers."""
    if reduction.answers != math.floor(reduction.answers):
        raise BoundRangeError(
            f"{rule} is for randomized response and local hashing; "
            f"l = {reduction.answers:.4g} is not a whole number of answers"
        )


def _flexible(anonymity_set: AnonymitySet, delta: float) -> tuple[float, float]:
    """
    Return the number of dummies that a bound may count, and the δ left for it.

    A binomial number of mean μ is below μ - √(2μ·ln(2/δ)) with probability at most δ/2 (Chernoff).
    """
    random = anonymity_set.random_dummies
    if not isinstance(random, Binomial):
        return _fixed_dummies(anonymity_set), delta
    mean = random.trials * random.chance
    lower = max(0.0, mean - math.sqrt(2 * mean * math.log(2 / delta)))
    return _fixed_dummies(anonymity_set) + lower, delta / 2


def _fixed_dummies(anonymity_set: AnonymitySet) -> int:
    return anonymity_set.dummies - anonymity_set.known_dummies


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

    def wrapped(setting: BoundSetting) -> float:
        if not (setting.dummies.uniform and setting.shuffler.only_permutes):
            raise BoundRangeError(
                "it covers neither dummies of each item nor a shuffler that adds or drops reports"
            )
        return bound(setting.reduction, setting.anonymity_set, setting.delta)

    return wrapped


def _each_item(setting: BoundSetting) -> float:
    """Apply AUE's bound to dummies of each item."""
    if setting.dummies.uniform:
        raise BoundRangeError("AUE's bound is for dummies of each item; here they are uniform")
    return aue(setting.anonymity_set, setting.delta)


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
"""Published bounds with their full names, by the key in a protocol's row."""
