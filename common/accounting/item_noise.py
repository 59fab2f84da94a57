"""
Noise on each item's count: what is left to learn where dummies name every item.

Every item v is added z_v times, z_v independent of everything [MSE25], [BC20]. Let g be the law of
z, and let a report be kept with probability β: the count of the victim's own item then has the law
f = (1-β)·g + β·g(· - 1) beside what all others put there. If the others are known, as in the worst
case they are, the two worlds are the laws f⊗g and g⊗f of the counts of x and x', and

    δ(ε) = Σ (f(k1)·g(k2) - e^ε·g(k1)·f(k2))_+.

Nothing is assumed of the other users, so that colluding ones change nothing; and where they hold
other items, nothing is lost either: it is the protocol's own δ.

With the ratio r = f/g this is Σ g(k1)·g(k2)·(r(k1) - e^ε·r(k2))_+, and what has g = 0 and f > 0, an
infinite ratio, adds its whole f. Ratios sorted and sums of f and g from the top make it O(K log K)
for K outcomes; a two-sided geometric law has three ratios only.

Every figure is an upper bound, by construction:

* r is computed from its own formula, not from f and g, so that errors of g enter as factors of
  terms that are not negative: masses of g that are rounded up can only raise δ;
* of the two sums that are subtracted, each is a sum of positive terms, off by a relative
  (2K + 64)·ROUNDING at most, which is added;
* the threshold e^ε·r is lowered by some roundings, so that no positive term is left out; what is
  put in beside is below the same margin;
* outcomes outside the window are charged in full: their f as k1, their g as k2.

Run by the analyzer, by the user agent and by the planner. Replace-one neighbours.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np

from common.accounting.count_distributions import ROUNDING, Binomial, BinomialWindow
from common.accounting.epsilon_search import MOST_EPSILON, least_epsilon
from common.errors import AccountingError
from common.mechanisms.base import Vector
from common.task.shuffler_spec import RATIO_SUM, ShufflerSpec

_TAIL: Final = 1e-30
"""Probability beyond either side of a window; it is charged to δ all the same."""
_SPARE: Final = 64
_LOST_TO_UNDERFLOW: Final = 1e-290
_GEOMETRIC_ERROR: Final = 1e-11
"""Relative; above that of a power e^x with x > -700, some 10^-13."""
_REMEMBERED: Final = 64
_LOWERED: Final = 1 - 16 * ROUNDING


@dataclass(frozen=True, slots=True)
class Geometric:
    """
    The shuffler's two-sided geometric law: weights left^(peak-z) below the peak, right^(z-peak).

    Conditioned on z ≤ most, as it is drawn.
    """

    peak: int
    left_weight: int
    right_weight: int
    most: int


ItemLaw = Binomial | Geometric
"""The law of the noise on one item's count."""


def shuffler_noise_distribution(spec: ShufflerSpec) -> ItemLaw:
    """
    Give the law of what the shuffler adds to each item.

    A shuffler that adds nothing has a binomial law without trials.
    """
    if spec.law == "geometric":
        return Geometric(spec.peak, spec.left_weight, spec.right_weight, spec.most)
    return Binomial(spec.trials, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemNoiseRelease:
    """One round of a protocol in which every item's count gets independent noise."""

    noise: ItemLaw
    kept: float = 1.0
    """β: probability that a report is kept; above 0 and at most 1."""
    missing: float = 0.0
    """Probability that the noise is not of this law; charged to δ in full."""
    local_epsilon: float = field(default=math.inf, init=False)
    """Reports carry no noise of their own."""

    def __post_init__(self) -> None:
        if not 0 < self.kept <= 1:
            raise AccountingError(f"kept is {self.kept}; it must be above 0 and at most 1")
        if not 0 <= self.missing <= 1:
            raise AccountingError(f"missing is {self.missing}; it must lie between 0 and 1")

    def delta(self, epsilon: float) -> float:
        """
        Bound δ at ε from above, within a relative 1e-4 of what is exact from 1e-15 on.

        Raises:
            AccountingError: epsilon is negative or not a number.

        Cost: milliseconds; a tenth of a second for a law never asked before.
        """
        if not epsilon >= 0:
            raise AccountingError(f"epsilon is {epsilon}; it must be at least 0")
        return min(1.0, self.missing + _classes(self.noise, self.kept).delta(epsilon))

    def epsilon(self, delta: float) -> float:
        """
        Bound ε at δ from above, within a relative 1e-5; infinite if nothing is certified.

        Raises:
            AccountingError: delta is outside its range.
        """
        return least_epsilon(self.delta, delta=delta, local_epsilon=math.inf)

    def curve(
        self,
        epsilons: Sequence[float],  # noqa: ARG002  # as good everywhere
        tolerance: float,  # noqa: ARG002
    ) -> Callable[[float], float]:
        """Give `delta` itself: the curve of a pair of laws."""
        return self.delta


class _Classes:
    """Outcomes of the noise by their likelihood ratio r = f/g."""

    def __init__(self, ratios: Vector, masses: Vector, certain: float) -> None:
        """
        Sum from the top.

        Args:
            ratios: r, ascending.
            masses: Of g, rounded up.
            certain: f where r is infinite, and whatever was left out of f and of g; rounded up.
        """
        self._ratios, self._g, self._f = ratios, masses, masses * ratios
        self._certain = certain
        self._f_from = _sums_from(self._f)
        self._g_from = _sums_from(self._g)
        self._margin = (2 * len(ratios) + _SPARE) * ROUNDING

    def delta(self, epsilon: float) -> float:
        """Give δ, an upper bound; beyond MOST_EPSILON that of MOST_EPSILON."""
        growth = math.exp(min(epsilon, MOST_EPSILON))
        start = np.searchsorted(self._ratios, self._ratios * (growth * _LOWERED), side="right")
        gained = float(self._g @ self._f_from[start])
        lost = growth * float(self._f @ self._g_from[start])
        excess = gained - lost + self._margin * (gained + lost)
        return self._certain + max(excess, 0.0)


def _sums_from(terms: Vector) -> Vector:
    """Give the sum of all terms from each on, and nothing after the last."""
    return np.concatenate([np.cumsum(terms[::-1])[::-1], [0.0]])


@lru_cache(maxsize=_REMEMBERED)
def _classes(noise: ItemLaw, kept: float) -> _Classes:
    if isinstance(noise, Geometric):
        return _geometric_classes(noise, kept)
    return _binomial_classes(noise, kept)


def _binomial_classes(law: Binomial, kept: float) -> _Classes:
    """g(k-1) / g(k) = k(1-c) / ((n-k+1)c), which rises with k: nothing needs to be sorted."""
    window = BinomialWindow.of(law, _TAIL)
    k = window.outcomes
    before = np.zeros(len(k))
    np.divide(k * (1 - law.chance), (law.trials - k + 1) * law.chance, out=before, where=k > 0)
    # As k1: f below the window is at most g below it, f above at most this. As k2: g itself.
    over = kept * float(window.masses[-1]) + window.above
    certain = over + window.below + window.below + window.above
    return _Classes((1 - kept) + kept * before, window.masses, certain)


def _geometric_classes(law: Geometric, kept: float) -> _Classes:
    """
    g(k-1) / g(k) is 0 at k = 0, `left` up to the peak, 1/`right` beyond, infinite at most + 1.

    1 - left and 1 - right are exact, being ratios of small integers.
    """
    left, right = law.left_weight / RATIO_SUM, law.right_weight / RATIO_SUM
    lowest = math.exp(law.peak * math.log(left))
    span = (law.most - law.peak) * math.log(right)
    weights = np.array(
        [
            lowest,
            -math.expm1(law.peak * math.log(left)) / (1 - left),
            right * -math.expm1(span) / (1 - right),
        ]
    )
    total = float(weights.sum())
    ratios = (1 - kept) + kept * np.array([0.0, left, 1 / right])
    masses = weights / total * (1 + _GEOMETRIC_ERROR)
    certain = kept * math.exp(span) / total * (1 + _GEOMETRIC_ERROR) + _LOST_TO_UNDERFLOW
    return _Classes(ratios, masses, certain)
