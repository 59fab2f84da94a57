"""
Randomized response combined with the shuffler's noise on each item. No paper states a bound.

With the notation and by the proof of docs/theory/accounting.md, and w' = 1 - p - q,

    δ(ε | K) = E_u Σ (s·A - t·B - u·w·C)_+,   s = p - e^ε·q,  t = e^ε·p - q,  w = (e^ε - 1)·w'.

Every figure is an upper bound: K is charged at the lower edge of bins, and u replaced by a low
quantile, or by 0 for rarer values. And

* H and z are cut to windows: A counts in full where B is cut off; a cut-off A is charged to δ;
* each cell's A is rounded up and its B down by more than the error of sums of positive products.
  With geometric noise A/B is next to e^ε in a quarter of the cells, so below a δ of about 1e-12
  this margin dominates, and another bound is smaller.

Formula 1 without the noise, the noise alone, and the local ε bound δ too; the least is returned,
and these three alone if the scale of the noise is above about 80: the sum has too many cells. If
only K is too large, a smaller K is counted.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, cast

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from shuffledp.common.accounting import count_distributions
from shuffledp.common.accounting.anonymity_set import Bins
from shuffledp.common.accounting.count_distributions import ROUNDING, Binomial
from shuffledp.common.accounting.epsilon_search import MAX_EPSILON, least_epsilon
from shuffledp.common.accounting.item_noise import ItemNoiseRelease
from shuffledp.common.accounting.releases import AmplifiedRelease, Release
from shuffledp.common.errors import AccountingError
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.task.shuffler_spec import RATIO_SUM, GeometricNoise, ShufflerSpec

_TAIL: Final = 1e-20
"""Maximum probability beyond a side of a window, and below the first bin of K; charged to δ."""
_MAX_CELLS: Final = 6 * 10**6
"""Maximum number of cells of one lattice."""
_MAX_WORK: Final = 3 * 10**9
"""Maximum number of products summed for one lattice."""
_ALL_CELLS: Final = 6 * 10**6
"""Maximum number of cells of all lattices, which limits the bins of K."""
_MAX_BINS: Final = 10
_BLOCK: Final = 2**16
"""Cells that are summed at a time."""
_GEOMETRIC_ERROR: Final = 1e-13
"""Relative margin, above the error of two powers e^x with x > -60."""
_SUM_MARGIN: Final = 1 + 1e-8
"""Factor that covers the relative error of summing up to _ALL_CELLS positive numbers."""
_LOW_RATIO_PROBABILITY: Final = 1e-6
"""Maximum probability that u is lower than assumed, for each of two causes."""
_CACHE_SIZE: Final = 1
"""Cached lattices, of up to fifty megabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridRelease(Release):
    """One round of randomized response with the shuffler's independent noise on each item."""

    amplified: AmplifiedRelease
    """The round as if the shuffler added nothing: reports that name an item, without dummies."""
    shuffler: ShufflerSpec
    """A shuffler that keeps every report and adds geometric noise."""

    def __post_init__(self) -> None:
        spec, reduction = self.shuffler, self.amplified.reduction
        geometric = isinstance(spec.noise, GeometricNoise)
        if reduction.collision != 0 or spec.keep_probability < 1 or not geometric:
            raise AccountingError(
                "the hybrid bound needs reports that name items, all kept, and geometric noise"
            )

    @property
    def local_epsilon(self) -> float:
        return self.amplified.local_epsilon

    def _delta(self, epsilon: float) -> float:
        """
        Return the least of four bounds. Cost: tenths of a second; a second for a new distribution.

        Raises AccountingError if epsilon is out of range, as in `delta_upper`.
        """
        without = self.amplified.delta(epsilon)
        if without == 0:
            return 0.0
        return min(without, *(curve(epsilon) for curve in self._curves()))

    def epsilon(self, delta: float) -> float:
        """Return the least of four upper bounds on ε; raise AccountingError for an invalid δ."""
        best = self.amplified.epsilon(delta)
        for curve in self._curves():
            epsilon = least_epsilon(
                curve, delta=delta, local_epsilon=self.local_epsilon, guess=min(best, 1.0)
            )
            best = min(best, epsilon)
        return best

    def curve(self, epsilons: Sequence[float]) -> Callable[[float], float]:
        """
        Return the one bound on δ(ε) that is smallest at the smallest of the given ε.

        The pointwise minimum would not be the curve of one pair of distributions.
        """
        at = min(epsilons)
        curves = [*self._curves(), self.amplified.curve(epsilons)]
        return min(curves, key=lambda curve: curve(at))

    def _curves(self) -> list[Callable[[float], float]]:
        """Return the bounds on δ that count the shuffler's noise; no lattice if it is too large."""
        noise = ItemNoiseRelease.of_shuffler(self.shuffler)
        reduction, others = self.amplified.reduction, self.amplified.anonymity_set.others

        def noise_alone(epsilon: float) -> float:
            hidden = epsilon >= reduction.local_epsilon
            return 0.0 if hidden else reduction.signal * noise.delta(epsilon)

        lattice = _lattice(reduction, others, cast("GeometricNoise", self.shuffler.noise))
        return [noise_alone] if lattice is None else [noise_alone, lattice.delta]


@dataclass(frozen=True, slots=True, eq=False)
class _Lattice:
    """The distributions J of all K, and the mass charged to δ in full."""

    reduction: MatchCountReduction
    joints: list[tuple[float, float, Vector]]
    """Each K's probability, the relative error of its J, and J itself, shape (z, z')."""
    certain: float
    """The mass that was cut off, rounded up."""
    low_ratio: float
    """A low value of u."""
    rare: float
    """Probability that u is lower."""

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on δ at ε."""
        reduction = self.reduction
        if epsilon >= reduction.local_epsilon:
            return 0.0
        growth, q = math.exp(min(epsilon, MAX_EPSILON)), reduction.blanket / reduction.answers
        p, others = q + reduction.signal, (reduction.answers - 2) * q
        # s is a difference of similar numbers: its error is some roundings of p.
        s = p - growth * q + 8 * ROUNDING * p
        t = (growth * p - q) * (1 - 4 * ROUNDING)
        w = math.expm1(min(epsilon, MAX_EPSILON)) * others * (1 - 8 * ROUNDING)
        weights = (s, t, w * self.low_ratio)
        # With probability `rare` u is taken as 0.
        total = sum(
            mass * (sums := _excesses(joint, error, weights))[0] + self.rare * mass * sums[1]
            for mass, error, joint in self.joints
        )
        return min(1.0, self.certain + total * _SUM_MARGIN)


def _excesses(
    joint: Vector, error: float, weights: tuple[float, float, float]
) -> tuple[float, float]:
    """
    Return the sum over all cells of (s·A - t·B - v·C)_+ for weights s, t and v, and for v = 0.

    A is J, B is J shifted up and back, C is J shifted up. A is rounded up, B and C are rounded
    down. Cost: a pass over the cells, a few rows at a time to save memory.
    """
    s, t, v = weights
    plain = whole = 0.0
    rows = max(1, _BLOCK // joint.shape[1])
    for first in range(0, len(joint), rows):
        excess = (s * (1 + error)) * joint[first : first + rows]
        above = joint[first + 1 : first + 1 + rows]
        excess[: len(above), 1:] -= (t * (1 - error)) * above[:, :-1]
        plain += float(np.maximum(excess, 0).sum())
        excess[: len(above)] -= (v * (1 - error)) * above
        whole += float(np.maximum(excess, 0).sum())
    return whole, plain


@lru_cache(maxsize=_CACHE_SIZE)
def _lattice(reduction: MatchCountReduction, others: int, spec: GeometricNoise) -> _Lattice | None:
    """Lay out the lattices of all K; None if even K = 0 has too many cells."""
    noise, lost = _noise(spec)
    on_both = Binomial(others, min(1.0, 2 * reduction.blanket / reduction.answers))
    low, high = (count_distributions.quantile(on_both, chance) for chance in (_TAIL, 0.9))
    while _work(high, len(noise)) > 1 and high > 0:
        high = math.floor(high / 2)
    if _work(high, len(noise)) > 1:
        return None
    low = min(low, high)
    number = max(2, min(_MAX_BINS, int(_ALL_CELLS / _cells(high, len(noise)))))
    bins = Bins(np.unique(np.floor(np.linspace(low, high, number))))
    masses, missed = bins.masses(on_both)
    certain, joints = missed, []
    for edge, mass in zip(bins.edges, masses, strict=True):
        coins = count_distributions.BinomialWindow.of(Binomial(int(edge), 0.5), _TAIL)
        # 2.5 roundings for each step of the coins from the mode, and half a rounding a product.
        error = (4 * len(coins.masses) + 64) * ROUNDING + _GEOMETRIC_ERROR
        joints.append((float(mass), error, _joint(coins.masses, noise)))
        certain += float(mass) * (coins.below + coins.above + 2 * lost)
    return _Lattice(reduction, joints, certain, *_low_ratio(spec, round(reduction.answers) - 2))


def _noise(spec: GeometricNoise) -> tuple[Vector, float]:
    """Return the distribution of z within its window, and the mass cut off; both rounded up."""
    masses = spec.probabilities() * (1 + _GEOMETRIC_ERROR)
    below, above = np.cumsum(masses), np.cumsum(masses[::-1])[::-1]
    inside = (below > _TAIL) & (above > _TAIL)
    first, last = int(np.argmax(inside)), len(inside) - int(np.argmax(inside[::-1]))
    cut = masses[:first].sum() + masses[last:].sum()
    return masses[first:last], float(cut) * _SUM_MARGIN


def _coins(size: float) -> float:
    """Estimate the number of values of H within its window."""
    return min(size, 20 * math.sqrt(size / 4)) + 1


def _cells(size: float, widest: int) -> float:
    """Estimate the number of cells of one lattice."""
    return (_coins(size) + widest) ** 2


def _work(size: float, widest: int) -> float:
    """Return the cost of one lattice relative to the limits; above 1, it exceeds one of them."""
    cells = _cells(size, widest)
    return max(cells / _MAX_CELLS, cells * _coins(size) / _MAX_WORK)


def _joint(coins: Vector, noise: Vector) -> Vector:
    """
    Return J, the distribution of (H + z, K - H + z'), over the windows of both sums.

    J is the product of a matrix for z and one for z': a sum over H of positive terms only.
    """
    padding = np.zeros(len(coins) - 1)
    windows = sliding_window_view(np.concatenate([padding, noise, padding]), len(coins))
    # windows[a, j] is g at a - (len - 1) + j, so j reversed gives g(a - h).
    with_z, with_other = windows[:, ::-1] * coins, windows
    return np.asarray(with_z @ with_other.T)


def _low_ratio(spec: GeometricNoise, items: int) -> tuple[float, float]:
    """
    Return a low value of u over the other items, and a bound on the probability that u is lower.

    r is 0 at z = 0, `left` up to the peak, 1/`right` beyond: u is bounded by quantiles of the
    numbers of items in the first and in the last case. Without other items, both results are 0.
    """
    if items == 0:
        return 0.0, 0.0
    distribution = spec.probabilities()
    none = Binomial(items, min(1.0, float(distribution[0]) * _SUM_MARGIN))
    beyond = Binomial(items, min(1.0, float(distribution[spec.peak + 1 :].sum()) / _SUM_MARGIN))
    n_none = count_distributions.upper_quantile(none, _LOW_RATIO_PROBABILITY)
    n_beyond = min(count_distributions.quantile(beyond, _LOW_RATIO_PROBABILITY), items - n_none)
    left = spec.left_weight / RATIO_SUM if spec.peak else 0.0
    between = left * (items - n_none - n_beyond)
    ratio = (between + n_beyond * RATIO_SUM / spec.right_weight) / items
    return ratio * (1 - 8 * ROUNDING), 2 * _LOW_RATIO_PROBABILITY
