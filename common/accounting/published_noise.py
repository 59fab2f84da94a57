"""
Published bounds of protocols with noise on each item, one function for each theorem.

Each inverts a calibration: it returns the least ε whose requirements the noise meets. Errors are as
in `published.py`.
"""

import math
from collections.abc import Callable
from typing import Final

from common.accounting.anonymity_set import AnonymitySet
from common.accounting.count_distributions import Binomial
from common.errors import AccountingError, BoundRangeError
from common.task.dummy_spec import RATIO_SUM, ShufflerSpec

_LEAST: Final = 1e-6
_MOST: Final = 50.0
"""Range in which calibrations are inverted."""
_CLOSE: Final = 1e-9
"""Relative precision of ε."""
_ROUNDED: Final = 2.0
"""Units of 1 / RATIO_SUM by which a weight may fall short of a ratio."""


def aue(crowd: AnonymitySet, delta: float) -> float:
    """
    Return the central ε of AUE: each honest user adds a dummy of each item with chance g [BC20].

    g = 200·ln(4/δ)/(ε²n), g ≤ 1. The paper does not condition the draws on a largest number.

    Args:
        crowd: Its random dummies are those of one item.
        delta: Strictly between 0 and 1.
    """
    check_range_of_delta(delta)
    law, rule = crowd.random_dummies, "AUE's bound"
    if not isinstance(law, Binomial) or law.trials * law.chance == 0:
        raise BoundRangeError(f"{rule} counts honest users' dummies of each item; here are none")
    return at_most_one(math.sqrt(200 * math.log(4 / delta) / (law.trials * law.chance)), rule)


def sbin(shuffler: ShufflerSpec, delta: float) -> float:
    """
    Return the central ε of SBin: the least ε for which the
    authors require these coins [MSE25].
    """
    check_range_of_delta(delta)
    if shuffler.law != "binomial":
        raise BoundRangeError(f"SBin's bound is for fair coins; the law is {shuffler.law}")

    def short(epsilon: float) -> float:
        return _sbin_coins(epsilon, delta, shuffler.kept) - shuffler.trials

    return _least(short, _MOST, "SBin's bound")


def sageo(shuffler: ShufflerSpec, delta: float) -> float:
    """
    Return the central ε of SAGeo: the least ε whose ratios and peak the distribution has [MSE25].

    The paper ignores the upper cut-off. Its range is β ≥ 1 - e^-ε/2.
    """
    check_range_of_delta(delta)
    rule = "SAGeo's bound"
    if shuffler.law != "geometric":
        raise BoundRangeError(f"{rule} is for two-sided geometric noise; the law is {shuffler.law}")
    beta = shuffler.kept
    left, right = shuffler.left_weight / RATIO_SUM, shuffler.right_weight / RATIO_SUM
    unit = _ROUNDED / RATIO_SUM

    def short(epsilon: float) -> float:
        steep = max(
            sageo_left(epsilon, beta) - left - unit, sageo_right(epsilon, beta) - right - unit
        )
        if steep > 0:
            return math.inf
        return _sageo_peak(epsilon, delta, beta, left, right) - shuffler.peak

    top = _MOST if beta == 1 else min(_MOST, -2 * math.log1p(-beta))
    return _least(short, top, rule)


def sbin_trials(epsilon: float, delta: float, kept: float) -> int:
    """
    Return the fair coins for each item that SBin's authors require [MSE25].

    Raises:
        AccountingError: delta is not between 0 and 1.
        BoundRangeError: The parameters are outside the formula's range.
    """
    check_range_of_delta(delta)
    coins = _sbin_coins(epsilon, delta, kept)
    if math.isinf(coins):
        raise BoundRangeError("SBin's bound says nothing for this ε, δ and share of kept reports")
    return max(1, math.ceil(coins))


def sageo_left(epsilon: float, kept: float) -> float:
    """
    Return q_l = (e^-ε/2 - 1 + β)/β; 0 if β is below its range.

    Computed as 1 + (e^-ε/2 - 1)/β, without cancellation.
    """
    return max(0.0, 1 + math.expm1(-epsilon / 2) / kept)


def sageo_right(epsilon: float, kept: float) -> float:
    """Return q_r = β/(e^ε/2 - 1 + β)."""
    return kept / (math.expm1(epsilon / 2) + kept)


def sageo_peak(epsilon: float, delta: float, kept: float, left: float, right: float) -> int:
    """
    Return the peak that SAGeo's authors require [MSE25].

    Raises:
        AccountingError: delta is not between 0 and 1.
        BoundRangeError: The parameters are outside the formula's range.
    """
    check_range_of_delta(delta)
    peak = _sageo_peak(epsilon, delta, kept, left, right)
    if math.isinf(peak):
        raise BoundRangeError("SAGeo's bound says nothing for this ε, δ and share of kept reports")
    return max(0, math.ceil(peak))


def _sbin_coins(epsilon: float, delta: float, kept: float) -> float:
    """
    Return M before rounding up, infinite outside the formula's range.

    With ε0 = ln((e^ε/2 + β - 1)/β), E = e^ε0 and L = ln(4β/δ), M = [2(E-1) + (1+E)((1+E)L +
    √2·√(E·L·(2 + cosh(ε0)·(L-2) + L + 2·sinh ε0)))] / (E-1)².
    """
    growth = math.expm1(epsilon / 2) / kept
    e, log = 1 + growth, math.log(4 * kept / delta)
    if log <= 0 or growth <= 0:
        return math.inf
    cosh, sinh = (e + 1 / e) / 2, (e - 1 / e) / 2
    under_root = e * log * (2 + cosh * (log - 2) + log + 2 * sinh)
    if under_root < 0:
        return math.inf
    root = math.sqrt(2 * under_root)
    return (2 * growth + (1 + e) * ((1 + e) * log + root)) / growth**2


def _sageo_peak(epsilon: float, delta: float, kept: float, left: float, right: float) -> float:
    """
    Return ν before rounding up, infinite outside the formula's range.

    ν = ln[δ(q_l·q_r - 1) / ((2 - 2(β-1)e^ε/2·(q_l - 1) + (δ-2)q_l)(q_r - 1))] / ln q_l.
    """
    if not (0 < left < 1 and 0 < right < 1):
        return 0.0 if left <= 0 else math.inf
    least = (2 - 2 * (kept - 1) * math.exp(epsilon / 2) * (left - 1) + (delta - 2) * left) * (
        right - 1
    )
    share = delta * (left * right - 1) / least if least != 0 else math.inf
    return math.log(share) / math.log(left) if 0 < share < math.inf else math.inf


def _least(short: Callable[[float], float], top: float, rule: str) -> float:
    """Find from above where the required noise falls to the given one."""
    if short(top) > 0:
        raise BoundRangeError(
            f"{rule} asks for more noise than there is, for any ε up to {top:.4g}"
        )
    low, high = _LEAST, top
    if short(low) <= 0:
        return low
    # Bisection, because a calibration is infinite outside its range.
    while high - low > _CLOSE * high:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if short(middle) <= 0 else (middle, high)
    return high


def at_most_one(epsilon: float, rule: str) -> float:
    """Return a claim of ε ≤ 1, or raise BoundRangeError."""
    if epsilon > 1:
        raise BoundRangeError(f"{rule} holds for ε ≤ 1; here it would claim {epsilon:.3g}")
    return epsilon


def check_range_of_delta(delta: float) -> None:
    """Check that δ is strictly between 0 and 1, or raise AccountingError."""
    if not 0 < delta < 1:
        raise AccountingError(f"delta is {delta}; it must lie strictly between 0 and 1")
