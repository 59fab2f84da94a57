"""The search from above for the least ε at which a bound on δ is small enough."""

import math
from collections.abc import Callable
from typing import Final

import scipy
from scipy import special

from common.errors import AccountingError
from common.task.task import MIN_DELTA

LEAST_EPSILON: Final = 1e-9
MOST_EPSILON: Final = 100.0
"""Range of a search; beyond it nothing is certified."""

_CLOSE_ENOUGH: Final = 1e-5
"""Relative precision of ε."""
_STRIDE: Final = 1.02
"""Factor by which a bracket around a guess grows at first; it is squared each time."""


def least_epsilon(
    delta_at: Callable[[float], float], *, delta: float, local_epsilon: float, guess: float = 0.1
) -> float:
    """
    Find an ε at which `delta_at` is at most delta, within a relative 1e-5 of the least.

    Args:
        delta_at: An upper bound on δ for each ε, falling with ε.
        delta: Allowed δ, MIN_DELTA .. 1.
        local_epsilon: The ε at which every δ is 0; may be infinite.
        guess: Start of the search; a close one is faster.

    Returns:
        At most local_epsilon; infinite if that is and nothing is certified.

    Raises:
        AccountingError: delta is outside its range.

    Cost: about ten evaluations.
    """
    check_delta(delta)

    def excess(epsilon: float) -> float:
        return math.log(max(delta_at(epsilon), 1e-300)) - math.log(delta)

    top = min(local_epsilon, MOST_EPSILON) * (1 - _CLOSE_ENOUGH)
    high = min(max(guess, LEAST_EPSILON), top)
    low, stride = high, _STRIDE
    while excess(high) > 0:
        if high >= top:
            return local_epsilon
        low, high, stride = high, min(stride * high, top), stride**2
    while low == high or excess(low) <= 0:
        high = low
        if low <= LEAST_EPSILON:
            return min(LEAST_EPSILON, local_epsilon)
        low, stride = max(low / stride, LEAST_EPSILON), stride**2
    epsilon = float(scipy.optimize.brentq(excess, low, high, rtol=_CLOSE_ENOUGH, xtol=1e-300))
    while delta_at(epsilon) > delta:
        epsilon *= 1 + _CLOSE_ENOUGH
    return min(epsilon, local_epsilon)


def check_delta(delta: float) -> None:
    """Check that δ is at least MIN_DELTA and below 1, or raise AccountingError."""
    if not MIN_DELTA <= delta < 1:
        raise AccountingError(f"delta is {delta}; it must be at least {MIN_DELTA} and below 1")


_LEAST: float = 1e-12
_MOST: float = 1e6
"""Range of a search for μ."""


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return δ(ε) = Φ(-ε/μ + μ/2) - e^ε·Φ(-ε/μ - μ/2) of μ-Gaussian privacy [DRS22]."""
    first = float(special.log_ndtr(-epsilon / mu + mu / 2))
    second = epsilon + float(special.log_ndtr(-epsilon / mu - mu / 2))
    return math.exp(first) * -math.expm1(min(second - first, 0.0))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the μ of Gaussian privacy through (ε, δ), 1e-12 .. 1e6; 0 if δ is 0, infinite if 1."""
    if delta <= 0:
        return 0.0
    if delta >= 1:
        return math.inf
    wanted = math.log(delta)

    def excess(log_mu: float) -> float:
        return math.log(max(gaussian_delta(math.exp(log_mu), epsilon), 1e-300)) - wanted

    low, high = math.log(_LEAST), math.log(_MOST)
    if excess(low) >= 0:
        return _LEAST
    if excess(high) <= 0:
        return _MOST
    return math.exp(float(scipy.optimize.brentq(excess, low, high, xtol=1e-9)))
