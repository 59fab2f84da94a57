"""Find the least noise that meets a privacy target, with few exact evaluations. Pure."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar

import scipy

from shuffledp.common.accounting.epsilon_search import gaussian_delta

MARGIN: Final = 0.99
"""Share of the target δ that searches use, so that the task's rounded claim meets the target."""
CLAIM_ROOM: Final = 1.00015
"""Factor by which a task's claim may exceed the ε of its noise: claims are rounded up."""
MAX_STEP: Final = 0.7
"""Largest step in ln μ before the target is bracketed: a factor of 4 of the noise."""

_MAX_EVALUATIONS: Final = 12
_AIM: Final = 0.4
"""Share of the slack below the target μ at which each step aims."""
_LEAST_EXCESS: Final = 1e-12

_MIN_MU: Final = 1e-12
_MAX_MU: Final = 1e6
"""End of the search for μ, which starts at _MIN_MU."""

T = TypeVar("T")
_Trial = tuple[float, float]
"""A level of noise and the excess of its design; above 0 the target is missed."""


@lru_cache(maxsize=256)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return μ with gaussian_delta(μ, ε) = δ, cut to 1e-12 .. 1e6; 0 if δ ≤ 0, ∞ if δ ≥ 1."""
    if delta <= 0:
        return 0.0
    if delta >= 1:
        return math.inf

    def excess(log_mu: float) -> float:
        return math.log(max(gaussian_delta(math.exp(log_mu), epsilon), 1e-300)) - math.log(delta)

    low, high = math.log(_MIN_MU), math.log(_MAX_MU)
    if excess(low) >= 0:
        return _MIN_MU
    if excess(high) <= 0:
        return _MAX_MU
    return math.exp(float(scipy.optimize.brentq(excess, low, high, xtol=1e-9)))


def log_excess(found: tuple[float, float], target: tuple[float, float]) -> float:
    """Return ln(μ / target μ) of two (ε, δ); at most 0 exactly if the first meets the second."""
    mu = math.inf if math.isinf(found[0]) else gaussian_mu(*found)
    excess = math.log(mu / gaussian_mu(*target)) if mu > 0 else -math.inf
    meets = found[0] <= target[0] and found[1] <= target[1]
    return min(excess, 0.0) if meets else max(excess, _LEAST_EXCESS)


def least_noise(
    attempt: Callable[[float], tuple[T | None, float]],
    *,
    start: float,
    slack: float,
    max_step: float = MAX_STEP,
    most: int = _MAX_EVALUATIONS,
) -> tuple[T, float] | None:
    """
    Return the least noisy design found that meets a target, with its level; None without one.

    A level is the log of a factor on μ: the higher, the less noise. `attempt` maps it to a design
    and its `log_excess`, which rises with the level, about as fast; to None and -∞ if so much noise
    is impossible. The search ends `slack` below the target at most; steps are at most `max_step`
    before the target is bracketed. Cost: up to `most` attempts, mostly two or three.
    """
    best: tuple[T, float] | None = None
    passed: _Trial | None = None
    failed: _Trial | None = None
    before: _Trial | None = None
    level, slope, aim = start, 1.0, -_AIM * slack
    for _ in range(most):
        design, excess = attempt(level)
        if excess > 0:
            failed = (level, excess)
        else:
            passed = (level, excess)
            if design is not None and (best is None or level > best[1]):
                best = (design, level)
            if design is not None and excess >= -slack:
                break
        if passed is not None and failed is not None and failed[0] - passed[0] < slack / 4:
            break
        if before is not None and math.isfinite(excess - before[1]) and level != before[0]:
            slope = min(max((excess - before[1]) / (level - before[0]), 0.25), 4.0)
        before = (level, excess)
        if passed is None or failed is None:
            level += min(max((aim - excess) / slope, -max_step), max_step)
        else:  # where the secant meets the aim, or halfway
            rise = failed[1] - passed[1]
            share = min(max((aim - passed[1]) / rise, 0.02), 0.98) if math.isfinite(rise) else 0.5
            level = passed[0] + share * (failed[0] - passed[0])
    return best


def last_enough(
    enough: Callable[[float], bool], good: float, bad: float, rel_tol: float
) -> float | None:
    """Return the number nearest to `bad` that is enough, by bisection of logs; None without any."""
    if enough(bad):
        return bad
    if not enough(good):
        return None
    while max(good, bad) > min(good, bad) * (1 + rel_tol):
        middle = math.sqrt(good * bad)
        good, bad = (middle, bad) if enough(middle) else (good, middle)
    return good
