"""
How much noise on each item a wanted guarantee needs: by the exact accountant, and by the papers.

The exact ones end with the accountant's own verdict, so that what is returned keeps the promise.
Run by the planner, for one round and users who hide nothing themselves.
"""

import math
from collections.abc import Callable

from common.accounting.count_distributions import Binomial
from common.accounting.epsilon_search import check_delta
from common.accounting.item_noise import ItemNoiseRelease, shuffler_law
from common.accounting.published_noise import (
    sageo_left,
    sageo_peak,
    sageo_right,
    sbin_trials,
)
from common.errors import AccountingError
from common.task.shuffler_spec import KEEP_SUM, MAX_PER_ITEM, RATIO_SUM, ShufflerSpec

_CUT_SHARE = 1e-3
"""Of δ, what cutting the upper flank may cost."""


def binomial_trials(epsilon: float, delta: float, kept: float) -> int:
    """
    Give the least fair coins per item that make a report kept with a probability (ε, δ)-private.

    More coins are noise on top: δ falls with their number.

    Args:
        epsilon: Above 0.
        delta: MIN_DELTA .. 1.
        kept: β, above 0 and at most 1; rounded down to a share of KEEP_SUM.

    Raises:
        AccountingError: An argument is out of range, or no number up to MAX_PER_ITEM is enough.
    """
    beta = _keep_weight(epsilon, delta, kept) / KEEP_SUM

    def enough(trials: int) -> bool:
        release = ItemNoiseRelease(noise=Binomial(trials, 0.5), kept=beta)
        return release.delta(epsilon) <= delta

    return _least(enough, 1)


def geometric_spec(epsilon: float, delta: float, kept: float) -> ShufflerSpec:
    """
    Give the two-sided geometric law of least variance that makes reports (ε, δ)-private.

    Flanks as steep as no ratio of f and g lies outside e^-ε/2 .. e^ε/2 [MSE25], rounded to be less
    steep; the least peak by the exact accountant; an upper end that costs 1e-3 of δ.

    Args:
        epsilon: Above 0.
        delta: MIN_DELTA .. 1.
        kept: β, above 0 and at most 1; rounded down to a share of KEEP_SUM. Below 1 - e^-ε/2 no
            left flank is needed, and there is none.

    Raises:
        AccountingError: An argument is out of range, or no peak up to MAX_PER_ITEM is enough.
    """
    keep_weight = _keep_weight(epsilon, delta, kept)

    def enough(peak: int) -> bool:
        spec = _two_sided(epsilon, delta, keep_weight, peak)
        release = ItemNoiseRelease(noise=shuffler_law(spec), kept=spec.kept)
        return release.delta(epsilon) <= delta

    return _two_sided(epsilon, delta, keep_weight, _least(enough, 0))


def sbin_trials_published(epsilon: float, delta: float, kept: float) -> int:
    """
    Give the fair coins per item that SBin's authors use [MSE25].

    Raises:
        BoundRangeError: The formula says nothing here.
    """
    return sbin_trials(epsilon, delta, kept)


def sageo_spec_published(epsilon: float, delta: float, kept: float) -> ShufflerSpec:
    """
    Give the law that SAGeo's authors use [MSE25], cut at an upper end that costs 1e-3 of δ.

    Raises:
        AccountingError: An argument is out of range.
        BoundRangeError: The formula says nothing here.
    """
    keep_weight = _keep_weight(epsilon, delta, kept)
    beta = keep_weight / KEEP_SUM
    left, right = sageo_left(epsilon, beta), sageo_right(epsilon, beta)
    peak = sageo_peak(epsilon, delta, beta, left, right)
    if peak > MAX_PER_ITEM:
        raise _too_many()
    return _two_sided(epsilon, delta, keep_weight, max(0, peak))


def _keep_weight(epsilon: float, delta: float, kept: float) -> int:
    """Check what is asked for, and round β down: δ falls as fewer reports are kept."""
    check_delta(delta)
    if not 0 < epsilon < math.inf:
        raise AccountingError(f"epsilon is {epsilon}; it must be above 0 and finite")
    if not 1 / KEEP_SUM <= kept <= 1:
        raise AccountingError(f"kept is {kept}; it must lie between 1 / {KEEP_SUM} and 1")
    return math.floor(kept * KEEP_SUM)


def _two_sided(epsilon: float, delta: float, keep_weight: int, peak: int) -> ShufflerSpec:
    beta = keep_weight / KEEP_SUM
    left_weight = _less_steep(sageo_left(epsilon, beta))
    right_weight = _less_steep(sageo_right(epsilon, beta))
    right = math.log(right_weight / RATIO_SUM)
    # What lies above the peak's own weight, 1, is less than a share right^cut of everything.
    cut = max(1, math.ceil(math.log(_CUT_SHARE * delta) / right))
    if peak + cut > MAX_PER_ITEM:
        raise _too_many()
    return ShufflerSpec(
        law="geometric",
        keep_weight=keep_weight,
        peak=peak,
        left_weight=left_weight,
        right_weight=right_weight,
        most=peak + cut,
    )


def _less_steep(ratio: float) -> int:
    """Give the weight of a ratio rounded up; at least 1 and below RATIO_SUM."""
    weight = math.ceil(ratio * RATIO_SUM) + 1
    if weight >= RATIO_SUM:
        raise _too_many()
    return max(1, weight)


def _least(enough: Callable[[int], bool], low: int) -> int:
    """Find the least number from `low` on that is enough, by doubling and halving."""
    high = max(low, 1)
    if enough(low):
        return low
    while not enough(high):
        low, high = high, 2 * high
        if high > MAX_PER_ITEM:
            raise _too_many()
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _too_many() -> AccountingError:
    return AccountingError(f"more than {MAX_PER_ITEM} dummies of an item would be needed")
