"""
The cost of several releases together, for the same people or for separate groups.

Each release has a curve δ(ε) of a pair of distributions that dominates it for every two
neighbouring data sets (`DeltaCurve`). Dominating pairs compose: the curve of their product bounds
the releases together, even if a later task was chosen after an earlier result [ZDW22]. Each pair's
privacy loss is put on a grid from its curve, pessimistically, by connecting the dots [DGKKM22];
dp-accounting composes the grids by Fourier transform.

People in only one group are charged that group's releases: the maximum over groups.

Run by the analyzer (ledger, planner) and the user agent (claims). Replace-one neighbours.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar

import numpy as np

from common.accounting.releases import LastingRelease, Release
from common.errors import AccountingError
from common.mechanisms.base import Vector
from common.messages.guarantee import sum_upper

MIN_COMPOSED_DELTA: Final = 1e-12
"""Below it the rounding of Fourier transforms would dominate."""

_TRANSFORM_ERROR: Final = 1e-15
"""Absolute error of δ by one composition, subtracted from the requested δ."""
_STEPS: Final = 8
"""Dots in one standard deviation of the loss; they add at most 1/384 to its variance."""
_BULK: Final = 4
"""Standard deviations beyond which dots may be further apart."""
_CUT: Final = 1e-17
"""δ at which a curve ends; the rest counts as an infinite loss."""
_LAYOUT_TOLERANCE: Final = 3e-2
_CLAIM_STEPS: Final = 64
_FINEST: Final = 2.0**-8
_REMEMBERED: Final = 4096


@dataclass(frozen=True, slots=True)
class _Dots:
    """A curve at multiples of a step that is a power of two, so that any two have a common one."""

    step: float
    multiples: tuple[int, ...]
    deltas: tuple[float, ...]


def composed_epsilon(releases: Sequence[Release], delta: float) -> float:
    """
    Bound the central ε at δ of several releases about the same users.

    Args:
        releases: At least one; equal ones are composed faster.
        delta: For all together; at least MIN_COMPOSED_DELTA if there are several.

    Returns:
        An upper bound, at most the sum of the local ε; infinite if nothing is certified.

    Raises:
        AccountingError: There is no release, or delta is out of range.

    Cost: about a second for each different release, cached; milliseconds for the rest.
    """
    if not releases:
        raise AccountingError("there is no release to compose")
    if len(releases) == 1:
        return releases[0].epsilon(delta)
    _check_delta(delta)
    lasting = [each.local_epsilon for each in releases if isinstance(each, LastingRelease)]
    if lasting:
        # Rounds that share noise have no better bound than their sum, which is added to the rest.
        others = [each for each in releases if not isinstance(each, LastingRelease)]
        rest = [composed_epsilon(others, delta)] if others else []
        return sum_upper([*lasting, *rest])
    local = sum_upper(release.local_epsilon for release in releases)
    counted = Counter(releases)
    steps = _steps({release: _deviation(release) / _STEPS for release in counted})
    dots = [(_release_dots(release, steps[release]), n) for release, n in counted.items()]
    return min(local, _composed(dots, delta))


def composed_claims(claims: Sequence[tuple[float, float]], delta: float) -> float:
    """
    Bound the ε of several rounds together from the (ε, δ) of each.

    The better of the sum and of composing the worst pair of distributions that each claim allows,
    for which adaptive composition is exact [KOV15].

    Raises:
        AccountingError: There is no claim, or delta is out of range.
    """
    if not claims:
        raise AccountingError("there is no claim to compose")
    _check_delta(delta)
    for epsilon, claimed in claims:
        if not (epsilon >= 0 and 0 <= claimed <= 1):
            raise AccountingError(
                f"a claim of epsilon {epsilon} at delta {claimed} is invalid: "
                "epsilon must be at least 0, and delta between 0 and 1"
            )
    added = math.inf
    if sum_upper(claimed for _, claimed in claims) <= delta:
        added = sum_upper(epsilon for epsilon, _ in claims)
    largest = max(epsilon for epsilon, _ in claims)
    if len(claims) == 1 or largest == 0 or math.isinf(largest) or math.isinf(added):
        return added
    counted = Counter(claims)
    steps = _steps({claim: claim[0] / _CLAIM_STEPS for claim in counted})
    dots = [(_claim_dots(claim, steps[claim]), n) for claim, n in counted.items()]
    return min(added, _composed(dots, delta))


def _check_delta(delta: float) -> None:
    if not MIN_COMPOSED_DELTA <= delta < 1:
        raise AccountingError(
            f"delta is {delta}; for several releases together it must be at least "
            f"{MIN_COMPOSED_DELTA} and below 1"
        )


_Key = TypeVar("_Key")


def _steps(wanted: Mapping[_Key, float]) -> dict[_Key, float]:
    """
    Round steps down to powers of two, so that any two have a common multiple.

    None is finer than the coarsest by more than _FINEST: a grid must fit the memory, and a much
    smaller loss is bounded well enough.
    """
    least = max(wanted.values()) * _FINEST
    return {key: 2.0 ** math.floor(math.log2(max(step, least))) for key, step in wanted.items()}


@lru_cache(maxsize=_REMEMBERED)
def _deviation(release: Release) -> float:
    """
    Return about one standard deviation of a release's privacy loss.

    The total variation distance of two Gaussian distributions μ apart is about μ / √(2π).
    """
    return min(release.delta(0.0) * math.sqrt(2 * math.pi), release.local_epsilon)


@lru_cache(maxsize=_REMEMBERED)
def _release_dots(release: Release, step: float) -> _Dots:
    """Put a release's curve on a grid."""
    deviation = _deviation(release)
    return _connect(release.curve((deviation, _BULK * deviation), _LAYOUT_TOLERANCE), step)


@lru_cache(maxsize=_REMEMBERED)
def _claim_dots(claim: tuple[float, float], step: float) -> _Dots:
    """Put the worst curve of an (ε, δ) claim on a grid: randomized response, and δ revealed."""
    epsilon, delta = claim

    def curve(at: float) -> float:
        rest = max(math.expm1(epsilon) - math.expm1(at), 0.0) / (math.exp(epsilon) + 1)
        return delta + (1 - delta) * rest

    return _connect(curve, step)


def _connect(curve: Callable[[float], float], step: float) -> _Dots:
    """Evaluate a curve at multiples of a step, further apart in its tail."""
    multiples, deltas = [0], [curve(0.0)]
    stride = 1
    while deltas[-1] > _CUT and (len(deltas) < 2 or deltas[-1] < deltas[-2]):  # noqa: PLR2004
        if multiples[-1] >= _BULK * _STEPS * stride:
            stride *= 2
        multiples.append(multiples[-1] + stride)
        # Convex and falling in spite of rounding.
        deltas.append(min(curve(multiples[-1] * step), deltas[-1]))
    return _Dots(step, tuple(multiples), tuple(deltas))


def _composed(dots: Sequence[tuple[_Dots, int]], delta: float) -> float:
    if max(one.deltas[-1] for one, _ in dots) >= delta:
        return math.inf  # some loss is infinite with more than that probability
    step = min(one.step for one, _ in dots)
    total: Any = None
    for one, count in dots:
        loss = _loss(one, step)
        loss = loss.self_compose(count) if count > 1 else loss
        total = loss if total is None else total.compose(loss)
    compositions = sum(count for _, count in dots)
    return float(total.get_epsilon_for_delta(delta * (1 - 1e-6) - compositions * _TRANSFORM_ERROR))


def _loss(one: _Dots, step: float) -> Any:  # noqa: ANN401  # the library has no types
    """
    Return the loss of the pair of distributions whose curve connects the dots.

    The pair is symmetric, so δ(-ε) = 1 - e^-ε·(1 - δ(ε)).
    """
    factor = round(one.step / step)
    above: Vector = np.array(one.deltas)
    epsilons = np.array(one.multiples) * one.step
    below = -np.expm1(-epsilons[:0:-1]) + np.exp(-epsilons[:0:-1]) * above[:0:-1]
    multiples = np.array(one.multiples, dtype=int) * factor
    support = np.concatenate([-multiples[:0:-1], multiples])
    deltas = np.minimum.accumulate(np.concatenate([below, above]))
    from dp_accounting.pld import pld_pmf  # noqa: PLC0415  # takes a second to load

    return pld_pmf.create_pmf_pessimistic_connect_dots(step, support, deltas).to_dense_pmf()
