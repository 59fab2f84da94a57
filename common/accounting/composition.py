"""
Composition: the privacy loss of several releases about the same users.

Each release has a curve δ(ε) of a pair of distributions that dominates it (`DeltaCurve`). Its
privacy loss is put on a grid, pessimistically, by connecting the dots [DGKKM22]; grids are composed
by Fourier transform, and bound the releases even if later tasks were chosen after earlier results
[ZDW22].

Run by the analyzer (ledger), the user agent (claims) and the planner. Replace-one neighbours.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffledp.common.accounting.epsilon_search import check_delta
from shuffledp.common.accounting.releases import PermanentRelease, Release, lasting_epsilon
from shuffledp.common.errors import AccountingError
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.messages.guarantee import sum_upper
from shuffledp.common.task.task import MIN_COMPOSED_DELTA

_TRANSFORM_ERROR: Final = 1e-15
"""Absolute error of δ by one composition, subtracted from the requested δ. Up to 1000
compositions gave a δ too low by at most 6e-17 each, against exact binomial sums."""
_DELTA_ERROR: Final = 1e-6
"""Relative error of δ, also subtracted; below 1e-9 against the same sums for δ > 1e-6."""
_STEPS: Final = 8
"""Grid points in a standard deviation of the loss; the grid adds at most 1/384 of the variance."""
_DENSE_DEVIATIONS: Final = 4
"""Standard deviations beyond which grid points may be further apart."""
_TAIL: Final = 1e-16
"""Maximum probability of a loss beyond either end of a transform; charged to δ."""
_LOG_STEPS: Final = np.geomspace(1e-4, 100, 60)
"""Steps of Chernoff's bounds, for losses of at most one."""
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
    check_delta(delta, MIN_COMPOSED_DELTA, "for several releases together ")
    local = sum_upper(release.local_epsilon for release in releases)
    return min(local, _composed(_release_curves(releases), delta))


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedRelease(Release):
    """One round that consists of independent releases, such as the views of a value."""

    releases: tuple[Release, ...]

    @property
    def local_epsilon(self) -> float:
        return sum_upper(release.local_epsilon for release in self.releases)

    def _delta(self, epsilon: float) -> float:
        """Return the bound. Cost: about a second for each distinct release."""
        if len(self.releases) == 1:
            return self.releases[0].delta(epsilon)  # exact, as `composed_epsilon`
        curves = _release_curves(self.releases)
        if any(curve.deltas[-1] >= 1 for curve, _ in curves):
            return 1.0  # one of them hides nothing
        delta = _total_loss(curves).delta(epsilon)
        return min(1.0, delta * (1 + _DELTA_ERROR) + len(self.releases) * _TRANSFORM_ERROR)

    def epsilon(self, delta: float) -> float:
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
    check_delta(delta, MIN_COMPOSED_DELTA, "for several releases together ")
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


def _steps(wanted: Mapping[Hashable, float]) -> dict[Hashable, float]:
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
    total_variation = release.curve((0.0,))(0.0)
    return min(total_variation * math.sqrt(2 * math.pi), release.local_epsilon)


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
    return _total_loss(curves).epsilon(delta - error)


@dataclass(frozen=True, slots=True)
class _TotalLoss:
    """A privacy loss at multiples of a step: the `first` and those that follow."""

    step: float
    first: int
    masses: Vector
    rest: float
    """Probability of an infinite loss, and of any outside the masses."""

    @property
    def _losses(self) -> Vector:
        return (self.first + np.arange(len(self.masses), dtype=np.float64)) * self.step

    def delta(self, epsilon: float) -> float:
        """Return δ(ε) = E[(1 - e^(ε - loss))_+]."""
        return self.rest + float(self.masses @ -np.expm1(np.minimum(epsilon - self._losses, 0.0)))

    def epsilon(self, delta: float) -> float:
        """Return the least ε of at least 0 with δ(ε) ≤ delta; infinite if there is none."""
        if self.rest > delta:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        # Between two losses δ(ε) = above - e^(ε - end)·weight, sums over the losses from `end` on.
        losses = self._losses
        at = bisect_left(losses, -delta, key=lambda loss: -self.delta(loss))
        above = self.rest + float(self.masses[at:].sum())
        weight = float(self.masses[at:] @ np.exp(losses[at] - losses[at:]))
        return max(0.0, float(losses[at]) + math.log((above - delta) / weight))


def _total_loss(curves: Sequence[tuple[_GridCurve, int]]) -> _TotalLoss:
    """
    Return the privacy loss of all curves together, by one Fourier transform.

    A transform at W frequencies gives a distribution modulo W. W covers all but _TAIL of the loss
    on either side, by Chernoff's bound [BLM13, Section 2.2].
    """
    step = min(curve.step for curve, _ in curves)
    losses = [(*_loss(curve, step), count) for curve, count in curves]
    if not all(masses.any() for _, masses, _ in losses):
        return _TotalLoss(step, 0, np.zeros(1), 1.0)
    largest = max(int(np.abs(multiples).max()) for multiples, _, _ in losses)
    steps = _LOG_STEPS / largest
    ends = []
    for sign in (-1, 1):
        log_moment = sum(
            count * np.log(np.exp(sign * np.outer(steps, multiples)) @ masses)
            for multiples, masses, count in losses
        )
        reach = sum(count * int((sign * multiples).max()) for multiples, _, count in losses)
        ends.append(sign * min(reach, math.ceil(((log_moment - math.log(_TAIL)) / steps).min())))
    first, last = ends
    size = scipy.fft.next_fast_len(last - first + 1, real=True)
    total, finite = np.ones(size // 2 + 1, dtype=np.complex128), 1.0
    for multiples, masses, count in losses:
        total *= scipy.fft.rfft(np.bincount(multiples % size, masses, size)) ** count
        finite *= float(masses.sum()) ** count
    found = np.roll(scipy.fft.irfft(total, size), -(first % size))
    rest = max(0.0, 1 - finite) + 2 * _TAIL
    return _TotalLoss(step, first, np.maximum(found, 0.0), rest)


def _loss(curve: _GridCurve, step: float) -> tuple[NDArray[np.int64], Vector]:
    """
    Return the finite losses whose curve connects the dots [DGKKM22], and their probabilities.

    The pair (P, Q) is symmetric: δ(-ε) = Σ(P - e^-ε·Q)_+ = 1 - e^-ε + e^-ε·Σ(Q - e^ε·P)_+, where
    the last sum is δ(ε). Between two dots the curve is a - b·e^ε: each loss gets the change of
    slope there, and an infinite one the last dot's δ.
    """
    above: Vector = np.array(curve.deltas)
    epsilons = np.array(curve.multiples) * curve.step
    below = -np.expm1(-epsilons[:0:-1]) + np.exp(-epsilons[:0:-1]) * above[:0:-1]
    deltas = np.minimum.accumulate(np.concatenate([below, above]))
    multiples = np.array(curve.multiples, dtype=np.int64) * round(curve.step / step)
    support = np.concatenate([-multiples[:0:-1], multiples])
    gaps, falls = np.diff(support) * step, np.diff(deltas)
    masses = np.concatenate([[1 - deltas[0]], falls / np.expm1(-gaps)])
    masses[:-1] += falls / np.expm1(gaps)
    return support, np.maximum(masses, 0.0)
