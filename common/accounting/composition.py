"""
Composition: the privacy loss of several releases about the same users.

Each release has a curve δ(ε) of a pair of distributions that dominates it for all neighbouring data
sets (`DeltaCurve`). Dominating pairs compose adaptively: the product's curve bounds the releases
together, even if a later task was chosen after an earlier result [ZDW22]. Each pair's privacy loss
distribution is put on a grid from its curve, pessimistically, by connecting the dots [DGKKM22];
dp-accounting composes the grids by Fourier transform.

Run by the analyzer (ledger), the user agent (claims) and the planner. Replace-one neighbours.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Final, TypeVar

import numpy as np

from common.accounting.releases import PermanentRelease, Release, lasting_epsilon
from common.errors import AccountingError
from common.mechanisms.base import Vector
from common.messages.guarantee import sum_upper

MIN_COMPOSED_DELTA: Final = 1e-12
"""Minimum δ of several releases: below it, rounding errors of Fourier transforms dominate."""

_TRANSFORM_ERROR: Final = 1e-15
"""Absolute error of δ by one composition, subtracted from the requested δ. Up to 1000
compositions gave a δ too low by at most 6e-17 each, against exact binomial sums."""
_DELTA_ERROR: Final = 1e-6
"""Relative error of δ, also subtracted; below 1e-9 against the same sums for δ > 1e-6."""
_STEPS: Final = 8
"""Grid points in a standard deviation of the loss; the grid adds at most 1/384 of the variance."""
_DENSE_DEVIATIONS: Final = 4
"""Standard deviations beyond which grid points may be further apart."""
_MIN_CURVE_DELTA: Final = 1e-17
"""δ at which a curve ends; the rest counts as an infinite loss."""
_CLAIM_STEPS: Final = 64
_MIN_STEP_RATIO: Final = 2.0**-8
_CACHE_SIZE: Final = 4096


@dataclass(frozen=True, slots=True)
class _GridCurve:
    """δ(ε) at multiples of a step of ε. Steps are powers of two, so curves can share a grid."""

    step: float
    multiples: tuple[int, ...]
    deltas: tuple[float, ...]


def composed_epsilon(releases: Sequence[Release], delta: float) -> float:
    """
    Return an upper bound on the central ε at δ of several releases about the same users.

    There is at least one release; equal ones are composed faster. δ is at least MIN_COMPOSED_DELTA
    if there are several, or AccountingError is raised. The bound is at most the sum of their local
    ε; infinite if nothing is certified. Releases that share permanent noise add `lasting_epsilon`,
    which assumes that texts stay the same. Cost: about a second for each distinct release, cached;
    milliseconds for their composition.
    """
    if not releases:
        raise AccountingError("there is no release to compose")
    parts = (each.releases if isinstance(each, ComposedRelease) else (each,) for each in releases)
    releases = list(chain.from_iterable(parts))
    others = [each for each in releases if not isinstance(each, PermanentRelease)]
    if len(others) < len(releases):
        rest = composed_epsilon(others, delta) if others else 0.0
        return sum_upper([lasting_epsilon(releases), rest])
    if len(releases) == 1:
        return releases[0].epsilon(delta)
    _check_delta(delta)
    local = sum_upper(release.local_epsilon for release in releases)
    return min(local, _composed(_release_curves(releases), delta))


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedRelease(Release):
    """One round that consists of independent releases, such as the levels of a hierarchy."""

    releases: tuple[Release, ...]

    @property
    def local_epsilon(self) -> float:
        """Sum of the local ε."""
        return sum_upper(release.local_epsilon for release in self.releases)

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on δ at ε. Cost: about a second for each distinct release."""
        if epsilon >= self.local_epsilon:
            return 0.0
        total = _total_loss(_release_curves(self.releases))
        delta = float(total.get_delta_for_epsilon(epsilon))
        return min(1.0, delta * (1 + _DELTA_ERROR) + len(self.releases) * _TRANSFORM_ERROR)

    def epsilon(self, delta: float) -> float:
        """Return an upper bound on ε at δ. Errors: see `composed_epsilon`."""
        return composed_epsilon(self.releases, delta)


def _release_curves(releases: Sequence[Release]) -> list[tuple["_GridCurve", int]]:
    """Return the curve of each distinct release on a grid, and how often it occurs."""
    counted = Counter(releases)
    steps = _steps({release: _deviation(release) / _STEPS for release in counted})
    return [(_release_curve(release, steps[release]), n) for release, n in counted.items()]


def composed_claims(claims: Sequence[tuple[float, float]], delta: float) -> float:
    """
    Return an upper bound on the ε of several rounds together, from the (ε, δ) of each.

    The bound is infinite if the claims' δ sum to more than delta. Otherwise it is the sum of the
    claims' ε or, if smaller, the composition of the worst pairs that the claims allow [KOV15].

    Raises AccountingError if there is no claim, a claim is invalid, or delta is out of range.
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
    total = math.inf
    if sum_upper(claimed for _, claimed in claims) <= delta:
        total = sum_upper(epsilon for epsilon, _ in claims)
    largest = max(epsilon for epsilon, _ in claims)
    if len(claims) == 1 or largest == 0 or math.isinf(largest) or math.isinf(total):
        return total
    counted = Counter(claims)
    steps = _steps({claim: claim[0] / _CLAIM_STEPS for claim in counted})
    curves = [(_claim_curve(claim, steps[claim]), n) for claim, n in counted.items()]
    return min(total, _composed(curves, delta))


def _check_delta(delta: float) -> None:
    """Check that δ is at least MIN_COMPOSED_DELTA and below 1, or raise AccountingError."""
    if not MIN_COMPOSED_DELTA <= delta < 1:
        raise AccountingError(
            f"delta is {delta}; for several releases together it must be at least "
            f"{MIN_COMPOSED_DELTA} and below 1"
        )


_Key = TypeVar("_Key")


def _steps(wanted: Mapping[_Key, float]) -> dict[_Key, float]:
    """
    Round steps down to powers of two, so that curves can share a grid.

    A step much below the coarsest is raised to _MIN_STEP_RATIO of it, so that the grid fits into
    memory; the small loss that wants the finer step is still bounded well enough.
    """
    least = max(wanted.values()) * _MIN_STEP_RATIO
    return {key: 2.0 ** math.floor(math.log2(max(step, least))) for key, step in wanted.items()}


@lru_cache(maxsize=_CACHE_SIZE)
def _deviation(release: Release) -> float:
    """
    Estimate the standard deviation of a release's privacy loss; at most the local ε.

    For μ-Gaussian privacy δ(0), the total variation distance, is about μ / √(2π).
    """
    return min(release.delta(0.0) * math.sqrt(2 * math.pi), release.local_epsilon)


@lru_cache(maxsize=_CACHE_SIZE)
def _release_curve(release: Release, step: float) -> _GridCurve:
    """Put a release's curve on a grid of this step."""
    deviation = _deviation(release)
    return _connect(release.curve((deviation, _DENSE_DEVIATIONS * deviation)), step)


@lru_cache(maxsize=_CACHE_SIZE)
def _claim_curve(claim: tuple[float, float], step: float) -> _GridCurve:
    """Put on a grid a claim's worst curve: a bit, exact with probability δ, else noisy [KOV15]."""
    epsilon, delta = claim

    def curve(at: float) -> float:
        rest = max(math.expm1(epsilon) - math.expm1(at), 0.0) / (math.exp(epsilon) + 1)
        return delta + (1 - delta) * rest

    return _connect(curve, step)


def _connect(curve: Callable[[float], float], step: float) -> _GridCurve:
    """Evaluate a curve at multiples of a step, wider apart in its tail, to a tiny or constant δ."""
    multiples, deltas = [0], [curve(0.0)]
    stride = 1
    while deltas[-1] > _MIN_CURVE_DELTA and (len(deltas) < 2 or deltas[-1] < deltas[-2]):  # noqa: PLR2004
        if multiples[-1] >= _DENSE_DEVIATIONS * _STEPS * stride:
            stride *= 2
        multiples.append(multiples[-1] + stride)
        # Rounding must not make the falling curve rise.
        deltas.append(min(curve(multiples[-1] * step), deltas[-1]))
    return _GridCurve(step, tuple(multiples), tuple(deltas))


def _composed(curves: Sequence[tuple[_GridCurve, int]], delta: float) -> float:
    """Compose each curve as often as it is counted; return ε at δ, infinite if δ is too small."""
    if max(curve.deltas[-1] for curve, _ in curves) >= delta:
        return math.inf  # some loss is infinite with at least that probability
    error = delta * _DELTA_ERROR + sum(count for _, count in curves) * _TRANSFORM_ERROR
    return float(_total_loss(curves).get_epsilon_for_delta(delta - error))


def _total_loss(curves: Sequence[tuple[_GridCurve, int]]) -> Any:  # noqa: ANN401  # see `_loss`
    """Return the privacy loss distribution of all curves together."""
    step = min(curve.step for curve, _ in curves)
    total: Any = None
    for curve, count in curves:
        loss = _loss(curve, step)
        loss = loss.self_compose(count) if count > 1 else loss
        total = loss if total is None else total.compose(loss)
    return total


def _loss(curve: _GridCurve, step: float) -> Any:  # noqa: ANN401  # the library has no types
    """
    Return the privacy loss distribution whose curve connects the dots [DGKKM22].

    The pair (P, Q) is symmetric: δ(-ε) = Σ(P - e^-ε·Q)_+ = 1 - e^-ε + e^-ε·Σ(Q - e^ε·P)_+, where
    the last sum is δ(ε).
    """
    factor = round(curve.step / step)
    above: Vector = np.array(curve.deltas)
    epsilons = np.array(curve.multiples) * curve.step
    below = -np.expm1(-epsilons[:0:-1]) + np.exp(-epsilons[:0:-1]) * above[:0:-1]
    multiples = np.array(curve.multiples, dtype=int) * factor
    support = np.concatenate([-multiples[:0:-1], multiples])
    deltas = np.minimum.accumulate(np.concatenate([below, above]))
    from dp_accounting.pld import pld_pmf  # noqa: PLC0415  # takes a second to load

    return pld_pmf.create_pmf_pessimistic_connect_dots(step, support, deltas).to_dense_pmf()
