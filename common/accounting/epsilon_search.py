"""Search for the least ε at which a bound on δ is small enough, and convert Gaussian privacy."""

import math
from collections.abc import Callable
from functools import cache
from typing import Final

import scipy
from scipy import special

from shuffledp.common.errors import AccountingError
from shuffledp.common.task.task import MIN_DELTA

MIN_EPSILON: Final = 1e-9
MAX_EPSILON: Final = 100.0
"""End of the search, which starts at MIN_EPSILON; larger ε are not tried."""

_EPSILON_PRECISION: Final = 1e-5
"""Relative precision of ε."""
_STRIDE: Final = 1.02
"""Initial growth factor of the bracket around the guess; it is squared at each step."""


def least_epsilon(
    delta_at: Callable[[float], float], *, delta: float, local_epsilon: float, guess: float = 0.1
) -> float:
    """
    Find an ε at which `delta_at` is at most delta, within a relative 1e-5 of the least.

    `delta_at` is an upper bound on δ that falls with ε and is 0 at local_epsilon, which may be
    infinite; a close `guess` is faster. The result is at least min(MIN_EPSILON, local_epsilon);
    local_epsilon if nothing smaller is certified. Raises AccountingError unless delta is at least
    MIN_DELTA and below 1. Cost: about ten evaluations of `delta_at`.
    """
    check_delta(delta)
    delta_at = cache(delta_at)

    def excess(epsilon: float) -> float:
        return math.log(max(delta_at(epsilon), 1e-300)) - math.log(delta)

    top = min(local_epsilon, MAX_EPSILON) * (1 - _EPSILON_PRECISION)
    high = min(max(guess, MIN_EPSILON), top)
    low, stride = high, _STRIDE
    while excess(high) > 0:
        if high >= top:
            return local_epsilon
        low, high, stride = high, min(stride * high, top), stride**2
    while low == high or excess(low) <= 0:
        high = low
        if low <= MIN_EPSILON:
            return min(MIN_EPSILON, local_epsilon)
        low, stride = max(low / stride, MIN_EPSILON), stride**2
    epsilon = float(scipy.optimize.brentq(excess, low, high, rtol=_EPSILON_PRECISION, xtol=1e-300))
    while delta_at(epsilon) > delta:
        epsilon *= 1 + _EPSILON_PRECISION
    return min(epsilon, local_epsilon)


def check_delta(delta: float, least: float = MIN_DELTA, subject: str = "") -> None:
    """Check that δ is at least `least` and below 1, or raise AccountingError about `subject`."""
    if not least <= delta < 1:
        raise AccountingError(f"delta is {delta}; {subject}it must be at least {least} and below 1")


def check_tried(epsilon: float) -> None:
    """Raise AccountingError for an ε below the local one that is beyond the search."""
    if epsilon > MAX_EPSILON:
        raise AccountingError(
            f"epsilon is {epsilon}; below the local epsilon it must be at most {MAX_EPSILON}"
        )


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return δ(ε) = Φ(-ε/μ + μ/2) - e^ε·Φ(-ε/μ - μ/2) of μ-Gaussian privacy, μ > 0 [DRS22]."""
    first = float(special.log_ndtr(-epsilon / mu + mu / 2))
    second = epsilon + float(special.log_ndtr(-epsilon / mu - mu / 2))
    return math.exp(first) * -math.expm1(min(second - first, 0.0))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return ε with gaussian_delta(μ, ε) = δ to .1 %, cut to MIN_EPSILON .. MAX_EPSILON."""

    def excess(epsilon: float) -> float:
        return gaussian_delta(mu, epsilon) - delta

    if mu <= 0 or excess(MIN_EPSILON) <= 0:
        return MIN_EPSILON
    if not excess(MAX_EPSILON) <= 0:  # also for an infinite μ
        return MAX_EPSILON
    return float(scipy.optimize.brentq(excess, MIN_EPSILON, MAX_EPSILON, rtol=1e-3))
