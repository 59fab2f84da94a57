"""
The bounds that papers claim, one function for each theorem.

They are shown beside the tight figure for comparison; no guarantee rests on them. Their conditions
and corrections are in docs/theory/accounting.md#published-bounds.

Each function of δ raises AccountingError if delta is below MIN_DELTA, or not below 1, and
BoundRangeError outside the range of its theorem; a bound's message calls it "it".
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from shuffledp.common.accounting.anonymity_set import AnonymitySet
from shuffledp.common.accounting.clones import finite_epsilon
from shuffledp.common.accounting.count_distributions import Binomial
from shuffledp.common.accounting.epsilon_search import check_delta
from shuffledp.common.accounting.privacy_parameters import PrivacyParameters
from shuffledp.common.errors import BoundRangeError
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.common.task import shuffler_spec
from shuffledp.common.task.dummies import Dummies
from shuffledp.common.task.shuffler_spec import RATIO_SUM
from shuffledp.common.task.uniform_dummies import NO_DUMMIES

_MIN_EPSILON: Final = 1e-6
_MAX_EPSILON: Final = 50.0
"""Range of ε in which calibrations are inverted."""
_EPSILON_PRECISION: Final = 1e-9
"""Relative precision of the inverted ε."""
_WEIGHT_ROUNDING: Final = 2.0
"""Units of 1 / RATIO_SUM by which a weight may fall short of the required ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundSetting:
    """The inputs of all published bounds."""

    reduction: MatchCountReduction
    anonymity_set: AnonymitySet
    delta: float
    dummies: Dummies = NO_DUMMIES
    """Distribution of a user's dummies; `anonymity_set` has the honest users' total."""
    shuffler: shuffler_spec.ShufflerSpec = shuffler_spec.PERMUTE_ONLY

    def __post_init__(self) -> None:
        check_delta(self.delta)

    @classmethod
    def of(cls, parameters: PrivacyParameters, n_users: int, n_refused: int = 0) -> Self:
        """Return the setting of a batch, if any bound covers such reports; or BoundRangeError."""
        if parameters.match_count is None:
            raise BoundRangeError("it needs reports with a privacy blanket")
        return cls(
            reduction=parameters.match_count,
            anonymity_set=parameters.anonymity_set(n_users, n_refused),
            delta=parameters.delta,
            dummies=parameters.dummies,
            shuffler=parameters.shuffler,
        )


Bound = Callable[[BoundSetting], float]


def aue(setting: BoundSetting) -> float:
    """
    Return the central ε of AUE, where honest users add a dummy of each item with probability g.

    g = 200·ln(4/δ)/(ε²n) ≤ 1, solved for ε [BC20]. The paper sets no maximum number of dummies.

    The random dummies of the anonymity set are those of one item.
    """
    if setting.dummies.uniform:
        raise BoundRangeError("it is for dummies of each item; here they are uniform")
    dummies = setting.anonymity_set.random_dummies
    if not isinstance(dummies, Binomial) or dummies.trials * dummies.chance == 0:
        raise BoundRangeError("it counts honest users' dummies of each item; there are none")
    expected = dummies.trials * dummies.chance
    return at_most_one(math.sqrt(200 * math.log(4 / setting.delta) / expected))


def sbin(setting: BoundSetting) -> float:
    """Return SBin's published central ε: the least for which the coins suffice [MSE25]."""
    noise, delta = setting.shuffler.noise, setting.delta
    if not isinstance(noise, shuffler_spec.BinomialNoise) or not noise.trials:
        raise BoundRangeError(f"it is for fair coins; the distribution is {noise.distribution}")

    def missing_noise(epsilon: float) -> float:
        return sbin_coins(epsilon, delta, setting.shuffler.keep_probability) - noise.trials

    return _least_epsilon(missing_noise, _MAX_EPSILON)


def sageo(setting: BoundSetting) -> float:
    """
    Return SAGeo's published central ε: the least for which these ratios and peak suffice [MSE25].

    The paper ignores the upper cut-off; the theorem's range is β ≥ 1 - e^(-ε/2).
    """
    noise, delta = setting.shuffler.noise, setting.delta
    if not isinstance(noise, shuffler_spec.GeometricNoise):
        raise BoundRangeError(
            f"it is for two-sided geometric noise; the distribution is {noise.distribution}"
        )
    beta = setting.shuffler.keep_probability
    left, right = noise.left_weight / RATIO_SUM, noise.right_weight / RATIO_SUM
    unit = _WEIGHT_ROUNDING / RATIO_SUM

    def missing_noise(epsilon: float) -> float:
        steep = max(
            sageo_left(epsilon, beta) - left - unit, sageo_right(epsilon, beta) - right - unit
        )
        if steep > 0:
            return math.inf
        return sageo_peak(epsilon, delta, beta, left, right) - noise.peak

    top = _MAX_EPSILON if beta == 1 else min(_MAX_EPSILON, -2 * math.log1p(-beta))
    return _least_epsilon(missing_noise, top)


def sageo_left(epsilon: float, keep_probability: float) -> float:
    """
    Return SAGeo's ratio q_l = (e^(-ε/2) - 1 + β)/β [MSE25]; 0 if β is below the range.

    Computed as 1 + (e^(-ε/2) - 1)/β, without cancellation.
    """
    return max(0.0, 1 + math.expm1(-epsilon / 2) / keep_probability)


def sageo_right(epsilon: float, keep_probability: float) -> float:
    """Return SAGeo's ratio q_r = β/(e^(ε/2) - 1 + β) [MSE25]."""
    return keep_probability / (math.expm1(epsilon / 2) + keep_probability)


def sbin_coins(epsilon: float, delta: float, keep_probability: float) -> float:
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


def sageo_peak(
    epsilon: float, delta: float, keep_probability: float, left: float, right: float
) -> float:
    """
    Return SAGeo's ν before rounding up; 0 if q_l is 0, infinite outside the formula's range.

    ν = ln[δ(q_l·q_r - 1) / ((2 - 2(β-1)e^(ε/2)(q_l - 1) + (δ-2)q_l)(q_r - 1))] / ln q_l [MSE25].
    """
    if not (0 < left < 1 and 0 < right < 1):
        return 0.0 if left <= 0 else math.inf
    least = (
        2 - 2 * (keep_probability - 1) * math.exp(epsilon / 2) * (left - 1) + (delta - 2) * left
    ) * (right - 1)
    share = delta * (left * right - 1) / least if least != 0 else math.inf
    return math.log(share) / math.log(left) if 0 < share < math.inf else math.inf


def _least_epsilon(missing_noise: Callable[[float], float], top: float) -> float:
    """Find from above the least ε ≤ top with no missing noise; raise BoundRangeError if none."""
    if missing_noise(top) > 0:
        raise BoundRangeError(f"it asks for more noise than there is, for any ε up to {top:.4g}")
    low, high = _MIN_EPSILON, top
    if missing_noise(low) <= 0:
        return low
    # By bisection, because calibrations are infinite outside their range.
    while high - low > _EPSILON_PRECISION * high:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if missing_noise(middle) <= 0 else (middle, high)
    return high


def at_most_one(epsilon: float) -> float:
    """Return ε if it is at most 1; raise BoundRangeError otherwise."""
    if epsilon > 1:
        raise BoundRangeError(f"it holds for ε ≤ 1; the formula gives {rounded_up(epsilon)}")
    return epsilon


def balle_closed_form(setting: BoundSetting) -> float:
    """
    Return the central ε of shuffled randomized response (SH) or local hashing (SOLH, MURS).

    ε = √(14·ln(2/δ)·(e^ε0 + l - 1)/(n-1)), for l answers and n honest users [BBGN19], [WDX+20]. The
    papers cover no dummies, so any are refused, although the bound would hold. Reports need noise.
    """
    _check(setting, noise=True, dummies=False)
    blanket = setting.reduction.blanket * setting.anonymity_set.others
    return _closed_form(setting, math.log(2 / setting.delta), blanket)


def pure_dump(setting: BoundSetting) -> float:
    """
    Return the central ε of pureDUMP: values in the clear among dummies [LLF+20].

    ε = √(14·k·ln(2/δ)/(|S|-1)), for k items and |S| dummies; random ones as in `_counted_dummies`.
    Reports must name items without noise.
    """
    _check(setting, noise=False, plain=True)
    counted, delta = _counted_dummies(setting)
    return _closed_form(setting, math.log(2 / delta), counted - 1)


def mix_dump(setting: BoundSetting) -> float:
    """
    Return the central ε of mixDUMP: randomized response among dummies [LLF+20].

    The formula is `od_hp_theorem_1`'s, for k items instead of h buckets. Reports must name items
    with noise.
    """
    _check(setting, noise=True, plain=True)
    return od_hp_theorem_1(setting)


def od_hp_theorem_1(setting: BoundSetting) -> float:
    """
    Return the central ε that OD-HP's Theorem 1 claims against the analyzer [CC24].

    ε = √(14·h·ln(4/δ) / (|M| + γ(n-1) - √(2γ(n-1)·ln(2/δ)) - 1)), for h buckets, |M| dummies
    (random ones as in `_counted_dummies`) and n honest users; without hashing, h counts the items.
    Bin(n-1, γ) is below μ - √(2μ·ln(2/δ)), for its mean μ, with probability at most δ/2 (Chernoff).
    """
    _check(setting)
    counted, delta = _counted_dummies(setting)
    expected = setting.reduction.blanket * setting.anonymity_set.others
    blanket = counted + expected - math.sqrt(2 * expected * math.log(2 / delta)) - 1
    return _closed_form(setting, math.log(4 / delta), blanket)


def ddps(setting: BoundSetting) -> float:
    """
    Return the central ε of DDPS: a bit, or with probability λ/n a fair coin [CSUZZ19].

    λ = 64·ln(4/δ)/ε² where ε ≥ √(192·ln(4/δ)/n), else n - ε·n^1.5/√(432·ln(4/δ)), for n honest
    users; the two meet at λ = n/3. λ/n is the blanket. It covers no dummies.
    """
    _check(setting, noise=True, dummies=False, plain=True)
    if setting.reduction.answers != 2:  # noqa: PLR2004  # a bit has two answers
        raise BoundRangeError(f"it is for bits; here there are {setting.reduction.answers} answers")
    n, log = setting.anonymity_set.others + 1, math.log(4 / setting.delta)
    coins = setting.reduction.blanket * n
    if 3 * coins <= n:
        return at_most_one(math.sqrt(64 * log / coins))
    return at_most_one((n - coins) * math.sqrt(432 * log) / n**1.5)


def fe1(setting: BoundSetting) -> float:
    """
    Return the central ε of FE1: hashed values without noise among uniform dummies [LWY22].

    μ = 32·ln(2/δ)/ε², for μ expected dummies in each bucket; their number is fixed or binomial.
    """
    _check(setting, noise=False)
    expected = float(_fixed_dummies(setting))
    if isinstance(random := setting.anonymity_set.random_dummies, Binomial):
        expected += random.trials * random.chance
    if expected <= 0:
        raise BoundRangeError("it needs dummies; it counts none")
    log = math.log(2 / setting.delta)
    return at_most_one(math.sqrt(32 * log * setting.reduction.answers / expected))


def _closed_form(setting: BoundSetting, log: float, blanket: float) -> float:
    """Return √(14·l·log / blanket); raise BoundRangeError outside the range of [BBGN19]."""
    if blanket <= 0:
        raise BoundRangeError("it needs a blanket of more than one report; it counts none")
    answers = setting.reduction.answers
    epsilon = at_most_one(math.sqrt(14 * answers * log / blanket))
    needed = 27 * answers / epsilon
    if blanket < needed:
        raise BoundRangeError(
            f"it needs a blanket of {needed:.0f} reports at ε = {rounded_up(epsilon)}; "
            f"it counts {blanket:.0f}"
        )
    return epsilon


def _check(
    setting: BoundSetting, *, noise: bool | None = None, dummies: bool = True, plain: bool = False
) -> None:
    """
    Check that a bound covers the setting, or raise BoundRangeError.

    Reports must have local noise or none, unless `noise` is None, and name an item if `plain`.
    """
    reduction, anonymity_set = setting.reduction, setting.anonymity_set
    if not (setting.dummies.uniform and setting.shuffler.only_permutes):
        raise BoundRangeError(
            "it covers neither dummies of each item nor a shuffler that adds or drops reports"
        )
    allowed = (Binomial, type(None)) if dummies else type(None)
    if not isinstance(anonymity_set.random_dummies, allowed):
        raise BoundRangeError(
            f"it counts a fixed{' or binomial' * dummies} number of dummies; here their number is "
            "random"
        )
    if reduction.answers != math.floor(reduction.answers):
        raise BoundRangeError(
            "it is for randomized response and local hashing; "
            f"l = {reduction.answers:.4g} is not a whole number of answers"
        )
    if plain and (reduction.collision > 0 or reduction.third_value == "independent"):
        here = "are hashed" if reduction.collision > 0 else "may support several values"
        raise BoundRangeError(f"only for reports that name an item; here reports {here}")
    if noise:
        finite_epsilon(reduction)
    elif noise is not None and math.isfinite(reduction.local_epsilon):
        local_epsilon = rounded_up(reduction.local_epsilon)
        raise BoundRangeError(
            f"it is for reports without noise; here the local ε is {local_epsilon}"
        )
    if not dummies and anonymity_set.dummies:
        raise BoundRangeError(f"it covers no dummies; here there are {anonymity_set.dummies}")


def _counted_dummies(setting: BoundSetting) -> tuple[float, float]:
    """
    Return the number of dummies that a bound may count, and the δ left for the bound.

    A binomial number of mean μ is below μ - √(2μ·ln(2/δ)) with probability at most δ/2 (Chernoff).
    """
    random, delta = setting.anonymity_set.random_dummies, setting.delta
    if not isinstance(random, Binomial):
        return _fixed_dummies(setting), delta
    mean = random.trials * random.chance
    lower = max(0.0, mean - math.sqrt(2 * mean * math.log(2 / delta)))
    return _fixed_dummies(setting) + lower, delta / 2


def _fixed_dummies(setting: BoundSetting) -> int:
    return setting.anonymity_set.dummies - setting.anonymity_set.known_dummies


PUBLISHED: Final[Mapping[str, tuple[str, Bound]]] = {
    "balle-closed-form": (
        "the privacy blanket's closed form [BBGN19] for SH, SOLH and MURS",
        balle_closed_form,
    ),
    "ddps": ("DDPS's bound [CSUZZ19]", ddps),
    "aue": ("AUE's bound [BC20]", aue),
    "puredump": ("pureDUMP's bound [LLF+20]", pure_dump),
    "mixdump": ("mixDUMP's bound [LLF+20]", mix_dump),
    "od-hp-theorem-1": (
        "OD-HP Theorem 1 [CC24] (lost roots restored, a fresh seed for every dummy)",
        od_hp_theorem_1,
    ),
    "fe1": ("FE1's bound [LWY22]", fe1),
    "sbin": ("SBin's bound [MSE25]", sbin),
    "sageo": ("SAGeo's bound [MSE25]", sageo),
}
"""Published bounds with their full names, by the key in a protocol's row."""
