"""
Randomized response, and the shuffler's noise on each item: what both leave to learn together.

No paper states a bound; this one is our own. The victim holds x or x'. With the reports of the
others that are not blanket known, and of their blanket reports those on neither x nor x', there are
K ~ Bin(n_h, 2q) left, n_h honest users and q = γ/k: uniform on {x, x'} and independent. Tell the
adversary K. With J the law of (H + z, K - H + z'), H ~ Bin(K, 1/2), the counts of x and x' have
one of three laws: A, which is J one to the right, if the victim's report is on x, with chance p or
q; B, J one up, if it is on x'; C, J itself, if it is elsewhere, on one of k - 2 items alike, with
chance w' = 1 - p - q. Of those items the adversary sees the noise, with or without the report: a
likelihood ratio u = Σ_v r(z_v) / (k - 2), r(z) = P(z - 1) / P(z), whatever else it knows. So

    δ(ε | K) = E_u Σ (s·A - t·B - u·w·C)_+,   s = p - e^ε·q,  t = e^ε·p - q,  w = (e^ε - 1)·w',

and δ(ε) = E_K[δ(ε | K)] for whoever knows as much; whoever knows less learns less.

Every figure is an upper bound, by construction:

* δ(ε | K) falls with K, since one more uniform report is added by whoever looks: K is charged at
  the low edge of bins, and what lies below the first bin is charged to δ;
* u, which has three terms for geometric noise, is counted at a low value; that it is lower is rare,
  and counted as 0;
* H and z are cut to windows: what is cut off B lets A count in full, what is cut off A is charged;
* every cell's A is taken for larger and its B for smaller than computed, by more than the rounding
  of sums of positive products can be. Geometric noise has a quarter of its weight where A/B is next
  to e^ε, so that below a δ of some 1e-12 this decides, and another bound is less.

Beside it hold formula 1, as if the shuffler added nothing (its dummies are added by whoever looks);
the bound for noise alone, times p - q: of randomized response the blanket part is the same in both
worlds, and the rest is an exact report; and the local ε. The least of all counts.

Where the shuffler's noise is so wide that the sum has too many cells, about from a scale of 80 on
(a central ε of .025), the latter three are left; where only K is large, less of it is counted.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from common.accounting.amplification import DeltaCurve, delta_upper, epsilon_upper
from common.accounting.anonymity_set import AnonymitySet
from common.accounting.blanket_size import Bins
from common.accounting.count_distributions import (
    ROUNDING,
    Binomial,
    BinomialWindow,
    quantile,
    upper_quantile,
)
from common.accounting.epsilon_search import MOST_EPSILON, least_epsilon
from common.accounting.item_noise import ItemNoiseRelease, shuffler_noise_distribution
from common.errors import AccountingError
from common.mechanisms.base import Vector
from common.mechanisms.reduction import MatchCountReduction
from common.task.shuffler_spec import RATIO_SUM, ShufflerSpec

_TAIL: Final = 1e-20
"""Probability beyond either side of a window, and below the first bin of K; charged to δ."""
_MOST_CELLS: Final = 6 * 10**6
"""Of one lattice."""
_MOST_WORK: Final = 3 * 10**9
"""Products summed for one lattice."""
_ALL_CELLS: Final = 6 * 10**6
"""Of all lattices: what bins of K may cost."""
_MOST_BINS: Final = 10
_LEAST_CELL: Final = 1e-25
"""Cells below are charged to δ in full, and forgotten."""
_GEOMETRIC_ERROR: Final = 1e-13
"""Relative; above that of two powers e^x with x > -60."""
_SUM: Final = 1 + 1e-8
"""Above the relative error of adding so many positive numbers up."""
_RARE: Final = 1e-6
"""Probability that u is lower than counted, for each of two causes."""
_REMEMBERED: Final = 2
"""Lattices; each may hold tens of megabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridRelease:
    """One round of randomized response whose items the shuffler adds noise to, each apart."""

    reduction: MatchCountReduction
    """Of one histogram: reports that name an item."""
    crowd: AnonymitySet
    """Honest users; without dummies."""
    shuffler: ShufflerSpec
    """Keeps every report."""

    def __post_init__(self) -> None:
        spec = self.shuffler
        if self.reduction.collision != 0 or spec.kept < 1 or spec.law != "geometric":
            raise AccountingError(
                "the hybrid bound is for reports that name items, all kept, and geometric noise"
            )

    @property
    def local_epsilon(self) -> float:
        """That of one report."""
        return self.reduction.local_epsilon

    def delta(self, epsilon: float) -> float:
        """
        Bound δ at ε from above: the least of four bounds.

        Raises:
            AccountingError: epsilon is negative or not a number.

        Cost: tenths of a second; a second for a law never asked before.
        """
        without = delta_upper(self.reduction, self.crowd, epsilon)
        if without == 0:
            return 0.0
        bounds = [curve(epsilon) for curve in self._curves()]
        return min(without, *bounds)

    def epsilon(self, delta: float) -> float:
        """
        Bound ε at δ from above: the least of four bounds.

        Raises:
            AccountingError: delta is outside its range.
        """
        best = epsilon_upper(self.reduction, self.crowd, delta)
        for curve in self._curves():
            found = least_epsilon(
                curve, delta=delta, local_epsilon=self.local_epsilon, guess=min(best, 1.0)
            )
            best = min(best, found)
        return best

    def curve(self, epsilons: Sequence[float], tolerance: float) -> Callable[[float], float]:
        """
        Give one of the bounds, the least at the least of the given ε.

        Not the least everywhere: that would be no pair's curve.
        """
        at = min(epsilons)
        without = DeltaCurve(self.reduction, self.crowd, epsilons, tolerance)
        curves: list[Callable[[float], float]] = [*self._curves(), without]
        return min(curves, key=lambda curve: curve(at))

    def _curves(self) -> list[Callable[[float], float]]:
        """Give the bounds that count the shuffler's noise."""
        noise = ItemNoiseRelease(noise=shuffler_noise_distribution(self.shuffler))
        signal, local_epsilon = self.reduction.signal, self.local_epsilon

        def exact_reports(epsilon: float) -> float:
            return 0.0 if epsilon >= local_epsilon else signal * noise.delta(epsilon)

        lattice = _lattice(self.reduction, self.crowd.others, self.shuffler)
        return [exact_reports] if lattice is None else [exact_reports, lattice.delta]


class _Lattice:
    """The cells of all K: what A and B have of each, and what is charged in full."""

    def __init__(
        self,
        reduction: MatchCountReduction,
        cells: Sequence["_Cells"],
        certain: float,
        elsewhere: tuple[float, float],
    ) -> None:
        """
        Put them together.

        Args:
            reduction: Of the victim's report.
            cells: Of each K.
            certain: What was cut off; rounded up.
            elsewhere: A low value of u, and how likely it is lower.
        """
        self._q = reduction.blanket / reduction.answers
        self._p = self._q + reduction.signal
        self._local_epsilon = reduction.local_epsilon
        self._certain = certain
        self._here = np.concatenate([one.here for one in cells])
        self._there = np.concatenate([one.there for one in cells])
        self._elsewhere = np.concatenate([one.elsewhere for one in cells])
        self._others = (reduction.answers - 2) * self._q
        self._ratio, self._rare = elsewhere

    def delta(self, epsilon: float) -> float:
        """Give δ at ε, an upper bound."""
        if epsilon >= self._local_epsilon:
            return 0.0
        growth = math.exp(min(epsilon, MOST_EPSILON))
        # s is a difference of like numbers, off by some roundings of p.
        s = self._p - growth * self._q + 8 * ROUNDING * self._p
        t = (growth * self._p - self._q) * (1 - 4 * ROUNDING)
        w = math.expm1(min(epsilon, MOST_EPSILON)) * self._others * (1 - 8 * ROUNDING)
        excess = s * self._here
        excess -= t * self._there
        # As if u were always 0, where it is seldom enough; that is what the rest comes to.
        rare = float(np.maximum(excess, 0).sum()) * self._rare
        excess -= w * self._ratio * self._elsewhere
        np.maximum(excess, 0, out=excess)
        return min(1.0, self._certain + (rare + float(excess.sum())) * _SUM)


@dataclass(frozen=True, slots=True)
class _Cells:
    """Where A > B: A, rounded up, B and C, rounded down, of one K or weighted by its chance."""

    here: Vector
    there: Vector
    elsewhere: Vector

    def weighted(self, chance: float) -> "_Cells":
        """Multiply by the chance of this K."""
        return _Cells(chance * self.here, chance * self.there, chance * self.elsewhere)


@lru_cache(maxsize=_REMEMBERED)
def _lattice(reduction: MatchCountReduction, others: int, spec: ShufflerSpec) -> _Lattice | None:
    """Lay the lattices of all K out; None if there are too many cells."""
    noise, lost = _noise(spec)
    on_either = Binomial(others, min(1.0, 2 * reduction.blanket / reduction.answers))
    low, high = quantile(on_either, _TAIL), quantile(on_either, 0.9)
    while _work(high, len(noise)) > 1 and high > 0:
        high = math.floor(high / 2)
    if _work(high, len(noise)) > 1:
        return None
    low = min(low, high)
    number = max(2, min(_MOST_BINS, int(_ALL_CELLS / _cells(high, len(noise)))))
    bins = Bins(np.unique(np.floor(np.linspace(low, high, number))))
    masses, missed = bins.masses(on_either)
    certain, cells = missed, []
    for edge, mass in zip(bins.edges, masses, strict=True):
        coins = BinomialWindow.of(Binomial(int(edge), 0.5), _TAIL)
        found, small = _cells_of(_joint(coins.masses, noise), len(coins.masses))
        cells.append(found.weighted(float(mass)))
        certain += float(mass) * (coins.below + coins.above + 2 * lost + small)
    return _Lattice(reduction, cells, certain, _elsewhere(spec, round(reduction.answers) - 2))


def _noise(spec: ShufflerSpec) -> tuple[Vector, float]:
    """Give the law of z where it has weight, and what was cut off on both sides."""
    masses = spec.probabilities() * (1 + _GEOMETRIC_ERROR)
    below, above = np.cumsum(masses), np.cumsum(masses[::-1])[::-1]
    inside = (below > _TAIL) & (above > _TAIL)
    first, last = int(np.argmax(inside)), len(inside) - int(np.argmax(inside[::-1]))
    cut = masses[:first].sum() + masses[last:].sum()
    return masses[first:last], float(cut) * _SUM


def _coins(size: float) -> float:
    """Give about how many values H takes within its window."""
    return min(size, 20 * math.sqrt(size / 4)) + 1


def _cells(size: float, widest: int) -> float:
    return (_coins(size) + widest) ** 2


def _work(size: float, widest: int) -> float:
    """Give what one lattice would cost, in what it may."""
    cells = _cells(size, widest)
    return max(cells / _MOST_CELLS, cells * _coins(size) / _MOST_WORK)


def _joint(coins: Vector, noise: Vector) -> Vector:
    """
    Give J: the law of (H + z, K - H + z'), from the first outcome of each.

    A product of two matrices, one for z and one for z', summed over H: every term is positive.
    """
    padding = np.zeros(len(coins) - 1)
    windows = sliding_window_view(np.concatenate([padding, noise, padding]), len(coins))
    # windows[a, j] is g at a - (len - 1) + j: with j reversed g(a - h), as it is g(a - (len-1-h)).
    with_z, with_other = windows[:, ::-1] * coins, windows
    joint: Vector = with_z @ with_other.T
    return joint


def _cells_of(joint: Vector, coins: int) -> tuple[_Cells, float]:
    """
    Give the cells where A > B; and the A of cells too small to count.

    Relative to the rest, a mass of the coins is off by 2.5 roundings a step from the mode, and a
    sum of as many products by half a rounding each.
    """
    error = (4 * coins + 64) * ROUNDING + _GEOMETRIC_ERROR
    a, b, c = joint, np.zeros_like(joint), np.zeros_like(joint)
    b[:-1, 1:] = joint[1:, :-1]
    c[:-1] = joint[1:]
    hot = a > b * (1 - 4 * error)
    small = hot & (a < _LEAST_CELL)
    forgotten = float(a[small].sum()) * _SUM
    hot ^= small
    kept = _Cells(a[hot] * (1 + error), b[hot] * (1 - error), c[hot] * (1 - error))
    return kept, forgotten


def _elsewhere(spec: ShufflerSpec, items: int) -> tuple[float, float]:
    """
    Give a low value of u over so many items, and a bound on how likely it is lower.

    r is 0 at z = 0, `left` up to the peak, 1/`right` beyond: with at most so many of the first and
    at least so many of the last, u is no less than this.
    """
    if items == 0:
        return 0.0, 0.0
    law = spec.probabilities()
    none = Binomial(items, min(1.0, float(law[0]) * _SUM))
    beyond = Binomial(items, min(1.0, float(law[spec.peak + 1 :].sum()) / _SUM))
    most, least = upper_quantile(none, _RARE), quantile(beyond, _RARE)
    least = min(least, items - most)
    left = spec.left_weight / RATIO_SUM if spec.peak else 0.0
    between = left * (items - most - least)
    ratio = (between + least * RATIO_SUM / spec.right_weight) / items
    return ratio * (1 - 8 * ROUNDING), 2 * _RARE
