"""
Randomized response, and the shuffler's noise on each item: what both leave to learn together.

No paper states a bound; this one is our own. The victim holds x or x'. With the reports of the
others that are not blanket known, and of their blanket reports those on neither x nor x', there are
K ~ Bin(n_h, 2q) left, n_h honest users and q = γ/k: uniform on {x, x'} and independent. Tell the
adversary K, and whether the victim's own report is on x or x' at all, which no value makes likelier
(the chance is p + q). Then the counts of x and x' are all that is left to look at,

    (H + z + [y = x], K - H + z' + [y = x']),    H ~ Bin(K, 1/2), y = x with odds p : q,

and with J the law of (H + z, K - H + z'), A = J one to the right, B = J one up,

    δ(ε | K) = Σ (s·A - t·B)_+,   s = p - e^ε·q,   t = e^ε·p - q,      δ(ε) = E_K[δ(ε | K)],

for P - e^ε·P' = s·A - t·B. Whoever knows less learns less: an upper bound. For two items and no
noise of the shuffler's it is exact.

Every figure is an upper bound, by construction:

* δ(ε | K) falls with K, since one more uniform report is added by whoever looks: K is charged at
  the low edge of bins, and what lies below the first bin is charged to δ;
* H and z are cut to windows: what is cut off B lets A count in full, what is cut off A is charged;
* cells of like ln(A/B) are put together at the upper end, a relative 1e-3 at most.

Beside it hold formula 1, as if the shuffler added nothing (its dummies are added by whoever looks);
the bound for noise alone, times p - q: of randomized response the blanket part is the same in both
worlds, and the rest is an exact report; and the local ε. The least of all counts.

Where the shuffler's noise is so wide that the sum has too many cells, about from a scale of 40 on
(a central ε of .05), the latter three are left; where only K is large, less of it is counted.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from common.accounting.amplification import DeltaCurve, delta_upper, epsilon_upper
from common.accounting.binomial_window import ROUNDING, BinomialWindow
from common.accounting.counts import Binomial, quantile
from common.accounting.crowd import Crowd
from common.accounting.epsilon_search import MOST_EPSILON, least_epsilon
from common.accounting.item_noise import ItemNoiseRelease, shuffler_law
from common.accounting.surroundings import Bins
from common.errors import AccountingError
from common.mechanisms.mechanism import Vector
from common.mechanisms.reduction import MatchCountReduction
from common.shuffler_spec import ShufflerSpec

_TAIL: Final = 1e-20
"""Probability beyond either side of a window, and below the first bin of K; charged to δ."""
_MOST_CELLS: Final = 6 * 10**6
"""Of one lattice."""
_MOST_WORK: Final = 3 * 10**9
"""Products summed for one lattice."""
_ALL_CELLS: Final = 16 * 10**6
"""Of all lattices: what bins of K may cost."""
_MOST_BINS: Final = 16
_ERROR: Final = 1e-11
"""Relative; above that of a cell, a sum of products of masses good to some 1e-12."""
_LEAST_LOG_RATIO: Final = 1e-7
_MOST_LOG_RATIO: Final = 1e3
_LEVEL: Final = 1e-3
"""Relative width of a class of ln(A/B)."""
_REMEMBERED: Final = 32

_LOG_RATIOS: Final[Vector] = np.exp(
    np.arange(math.log(_LEAST_LOG_RATIO), math.log(_MOST_LOG_RATIO) + _LEVEL, _LEVEL)
)
"""Upper ends of the classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridRelease:
    """One round of randomized response whose items the shuffler adds noise to, each apart."""

    reduction: MatchCountReduction
    """Of one histogram: reports that name an item."""
    crowd: Crowd
    """Honest users; without dummies."""
    shuffler: ShufflerSpec
    """Keeps every report."""

    def __post_init__(self) -> None:
        if self.reduction.collision != 0 or self.shuffler.kept < 1:
            raise AccountingError("the hybrid bound is for reports that name items, all kept")

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
        noise = ItemNoiseRelease(noise=shuffler_law(self.shuffler))
        signal, local_epsilon = self.reduction.signal, self.local_epsilon

        def exact_reports(epsilon: float) -> float:
            return 0.0 if epsilon >= local_epsilon else signal * noise.delta(epsilon)

        lattice = _lattice(self.reduction, self.crowd.others, self.shuffler)
        return [exact_reports] if lattice is None else [exact_reports, lattice.delta]


class _Lattice:
    """The cells of all K by their ratio A/B: A summed in classes, and what is charged in full."""

    def __init__(self, reduction: MatchCountReduction, gained: Vector, certain: float) -> None:
        """
        Sum from the top.

        Args:
            reduction: Of the victim's report.
            gained: A of each class of _LOG_RATIOS, and at last of what lies above them.
            certain: What was cut off; rounded up.
        """
        self._q = reduction.blanket / reduction.answers
        self._p = self._q + reduction.signal
        self._local_epsilon = reduction.local_epsilon
        self._certain = certain
        self._gained, self._above = gained[:-1] * (1 + _ERROR), float(gained[-1]) * (1 + _ERROR)
        self._ratios = np.exp(-_LOG_RATIOS * (1 + _ERROR)) * (1 - _ERROR)

    def delta(self, epsilon: float) -> float:
        """Give δ at ε, an upper bound."""
        if epsilon >= self._local_epsilon:
            return 0.0
        growth = math.exp(min(epsilon, MOST_EPSILON))
        s, t = self._p - growth * self._q, growth * self._p - self._q
        # Each difference of like numbers, s among them, is off by some roundings of p.
        room = 8 * ROUNDING * self._p
        inside = float(np.maximum(s - t * self._ratios + room, 0) @ self._gained)
        return min(1.0, self._certain + inside + (s + room) * self._above)


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
    gained = np.zeros(len(_LOG_RATIOS) + 1)
    certain = missed
    for edge, mass in zip(bins.edges, masses, strict=True):
        coins = BinomialWindow.of(Binomial(int(edge), 0.5), _TAIL)
        _add_classes(gained, mass, _joint(coins.masses, noise))
        certain += float(mass) * (coins.below + coins.above + 2 * lost)
    return _Lattice(reduction, gained, certain)


def _noise(spec: ShufflerSpec) -> tuple[Vector, float]:
    """Give the law of z where it has weight, and what was cut off on both sides."""
    law = shuffler_law(spec)
    if isinstance(law, Binomial):
        window = BinomialWindow.of(law, _TAIL)
        return window.masses, window.below + window.above
    masses = spec.probabilities() * (1 + _ERROR)
    below, above = np.cumsum(masses), np.cumsum(masses[::-1])[::-1]
    inside = (below > _TAIL) & (above > _TAIL)
    first, last = int(np.argmax(inside)), len(inside) - int(np.argmax(inside[::-1]))
    cut = masses[:first].sum() + masses[last:].sum()
    return masses[first:last], float(cut) * (1 + _ERROR)


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


def _add_classes(gained: Vector, mass: float, joint: Vector) -> None:
    """Put the cells where A > B into their classes, weighted by the chance of this K."""
    rows, columns = joint.shape
    zeros = np.zeros((1, columns))
    # A one row down, B one column right: of both only where A may be above 0.
    a = joint
    b = np.concatenate([joint[1:], zeros])
    b = np.concatenate([np.zeros((rows, 1)), b[:, :-1]], axis=1)
    hot = a > b * (1 - 2 * _ERROR)
    a, b = a[hot], b[hot]
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log(a) - np.log(b), _LEAST_LOG_RATIO)
    classes = np.ceil((np.log(logs) - math.log(_LEAST_LOG_RATIO)) / _LEVEL)
    classes = np.clip(classes, 0, len(_LOG_RATIOS)).astype(np.intp)
    gained += mass * np.bincount(classes, weights=a, minlength=len(gained))
