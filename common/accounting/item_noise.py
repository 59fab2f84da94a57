"""
Noise on each item's count: privacy from dummies that name every item [MSE25], [BC20].

z_v dummies, with distribution g, name item v; a report is kept with probability β. With r = f/g for
f = (1-β)·g + β·g(· - 1),

    δ(ε) = Σ (f(k1)·g(k2) - e^ε·g(k1)·f(k2))_+ = Σ g(k1)·g(k2)·(r(k1) - e^ε·r(k2))_+.

Sorted ratios and cumulative sums of f and g make the cost O(K log K) for K outcomes. Every figure
is an upper bound (docs/theory/accounting.md): masses, ratios and sums have margins for rounding,
the threshold e^ε·r is lowered by some roundings, and outcomes outside the window count in full.
Run by the analyzer, the user agent and the planner. Replace-one neighbours.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Self

import numpy as np

from shuffledp.common.accounting import count_distributions
from shuffledp.common.accounting.count_distributions import ROUNDING, Binomial
from shuffledp.common.accounting.epsilon_search import MAX_EPSILON
from shuffledp.common.accounting.releases import Release
from shuffledp.common.errors import AccountingError
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.task import shuffler_spec
from shuffledp.common.task.named_dummies import ItemDummies
from shuffledp.common.task.shuffler_spec import RATIO_SUM, GeometricNoise, SummedNoise

_TAIL: Final = 1e-30
"""Maximum probability beyond either side of a window, which is charged to δ."""
_EXTRA_ROUNDINGS: Final = 64
_LOST_TO_UNDERFLOW: Final = 1e-290
_EXCLUDED_TAIL: Final = 1e-20
"""Maximum probability, charged to δ, that more users are excluded than assumed."""
_GEOMETRIC_ERROR: Final = 1e-11
"""Relative margin, above the error of a power e^x with x > -700, about 10^-13."""
_CUT: Final = 1e-40
"""Probability of an outcome that a sum leaves out: all of them together are charged to δ."""
_TABLE_ERROR: Final = 1e-12
"""Relative margin of a probability above _CUT, above the error of e^x with x > -100, 10^-13."""
_MOST_PRODUCTS: Final = 2**28
"""Maximum number of products of a sum's convolution, half a second."""
_CACHE_SIZE: Final = 64
_THRESHOLD_FACTOR: Final = 1 - 16 * ROUNDING


ItemDistribution = Binomial | GeometricNoise | SummedNoise
"""Distribution of the noise on one item's count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemNoiseRelease(Release):
    """One round of a protocol in which every item's count gets independent noise."""

    noise: ItemDistribution
    keep_probability: float = 1.0
    """β: probability that a report is kept; above 0 and at most 1."""
    missing: float = 0.0
    """Probability that the noise has another distribution, which is charged to δ in full."""
    local_epsilon: float = field(default=math.inf, init=False)
    """Infinite: reports carry no noise of their own."""

    def __post_init__(self) -> None:
        if not 0 < self.keep_probability <= 1:
            raise AccountingError(
                f"keep_probability is {self.keep_probability}; it must be above 0 and at most 1"
            )
        count_distributions.check_between("missing", self.missing, 0, 1)

    @classmethod
    def of_shuffler(cls, spec: shuffler_spec.ShufflerSpec) -> Self:
        """Return one round of reports without noise, whose shuffler adds dummies or samples."""
        noise = spec.noise
        coins = Binomial(noise.most, 0.5)
        added = noise if isinstance(noise, GeometricNoise | SummedNoise) else coins
        return cls(noise=added, keep_probability=spec.keep_probability)

    def _delta(self, epsilon: float) -> float:
        """
        Return the bound, at most a relative 1e-4 too large if δ is at least 1e-15.

        Raises AccountingError if a sum is too dear. Cost: milliseconds; a tenth of a second for a
        new distribution, half a second for a sum.
        """
        return min(1.0, self.missing + _classes(self.noise, self.keep_probability).delta(epsilon))


def each_item_release(spec: ItemDummies, users: int) -> ItemNoiseRelease:
    """
    Return a round in which each user adds a dummy of each item with probability c [BC20].

    A user's total is conditioned to be at most `most`. Users with W > most - 2 dummies of the d - 2
    items other than x and x' are excluded (docs/theory/accounting.md); a user is with probability
    P(W > most - 2 | total ≤ most) ≤ P(W > most - 2), as W and the total rise together.
    """
    chance = spec.item_chance
    share = count_distributions.beyond(Binomial(max(0, spec.trials - 2), chance), spec.most - 2)
    n_excluded = Binomial(users, min(share, 1.0))
    excluded = min(int(count_distributions.upper_quantile(n_excluded, _EXCLUDED_TAIL)), users)
    return ItemNoiseRelease(
        noise=Binomial(users - excluded, chance),
        missing=count_distributions.beyond(n_excluded, excluded),
    )


class RatioClasses:
    """Outcomes of the noise, sorted or grouped by their likelihood ratio r = f/g."""

    def __init__(
        self, ratios: Vector, masses: Vector, certain: float, *, error: float = 0.0
    ) -> None:
        """
        Compute cumulative sums of f and g from the largest ratio down.

        `ratios` are r, ascending, and `masses` g, rounded up, each of shape (K,). `certain` is f
        where r is infinite, and all mass of f and g left out; rounded up. `error` is that of the
        masses, relative, if they are not rounded up: r then has twice the error.
        """
        self._ratios, self._g, self._f = ratios, masses, masses * ratios
        self._certain = certain
        self._f_from = _sums_from(self._f)
        self._g_from = _sums_from(self._g)
        # A quotient of two ratios has four errors, and a product of f and g two.
        self._threshold = _THRESHOLD_FACTOR - 5 * error
        self._margin = (2 * len(ratios) + _EXTRA_ROUNDINGS) * ROUNDING + 10 * error

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on δ at ε, or at MAX_EPSILON if ε is larger."""
        growth = math.exp(min(epsilon, MAX_EPSILON))
        start = np.searchsorted(
            self._ratios, self._ratios * (growth * self._threshold), side="right"
        )
        first = float(self._g @ self._f_from[start])
        second = growth * float(self._f @ self._g_from[start])
        excess = first - second + self._margin * (first + second)
        return self._certain + max(excess, 0.0)


def _sums_from(terms: Vector) -> Vector:
    """Return the sum of all terms from each index on, and 0 after the last."""
    return np.concatenate([np.cumsum(terms[::-1])[::-1], [0.0]])


@lru_cache(maxsize=_CACHE_SIZE)
def _classes(noise: ItemDistribution, beta: float) -> RatioClasses:
    if isinstance(noise, Binomial):
        return _binomial_classes(noise, beta)
    if isinstance(noise, SummedNoise):
        return _summed_classes(noise, beta)
    return _geometric_classes(noise, beta)


def _binomial_classes(distribution: Binomial, beta: float) -> RatioClasses:
    """Return outcomes sorted by g(k-1) / g(k) = k(1-c) / ((n-k+1)c), which rises with k."""
    window = count_distributions.BinomialWindow.of(distribution, _TAIL)
    k = window.first + np.arange(len(window.masses), dtype=np.float64)
    before = np.zeros(len(k))
    np.divide(
        k * (1 - distribution.chance),
        (distribution.trials - k + 1) * distribution.chance,
        out=before,
        where=k > 0,
    )
    # For k1, f below the window is at most g there, and f above it at most f_above. For k2, add g.
    f_above = beta * float(window.masses[-1]) + window.above
    certain = f_above + window.below + window.below + window.above
    return RatioClasses((1 - beta) + beta * before, window.masses, certain)


def _geometric_classes(spec: GeometricNoise, beta: float) -> RatioClasses:
    """
    Return outcomes grouped by g(k-1) / g(k): 0 at k = 0, `left` up to the peak, 1/`right` beyond.

    The ratio is infinite at k = most + 1. Masses are sums of geometric series; 1 - left and
    1 - right are exact, as ratios of small integers.
    """
    left, right = spec.left_weight / RATIO_SUM, spec.right_weight / RATIO_SUM
    below, span = spec.peak * math.log(left), (spec.most - spec.peak) * math.log(right)
    weights = np.array(
        [math.exp(below), -math.expm1(below) / (1 - left), right * -math.expm1(span) / (1 - right)]
    )
    total = float(weights.sum())
    ratios = (1 - beta) + beta * np.array([0.0, left, 1 / right])
    masses = weights / total * (1 + _GEOMETRIC_ERROR)
    certain = beta * math.exp(span) / total * (1 + _GEOMETRIC_ERROR) + _LOST_TO_UNDERFLOW
    return RatioClasses(ratios, masses, certain)


def _summed_classes(spec: SummedNoise, beta: float) -> RatioClasses:
    """
    Return outcomes sorted by g(k-1) / g(k), for the convolution g of two distributions.

    All products are positive, so that each sum has the relative error of its terms. What a table
    leaves out makes f and g smaller, and is charged once for each of k1 and k2.
    """
    check_sums([spec])
    (one, _), (other, _) = tables = [_likely(part) for part in spec.parts]
    left_out = _LOST_TO_UNDERFLOW + sum(rest for _, rest in tables)
    g = np.convolve(one, other)
    error = 2 * _TABLE_ERROR + (min(len(one), len(other)) + _EXTRA_ROUNDINGS) * ROUNDING
    before = np.concatenate([[0.0], g[:-1] / g[1:]])
    order = np.argsort(before)
    certain = (beta * float(g[-1]) + 2 * left_out) * (1 + 4 * error)
    return RatioClasses((1 - beta) + beta * before[order], g[order], certain, error=error)


def _likely(part: GeometricNoise) -> tuple[Vector, float]:
    """Return the probabilities of the likely values, which are one stretch, and of the others."""
    table = part.probabilities()
    kept = table > _CUT
    return table[kept], float(table[~kept].sum())


def check_sums(noises: Iterable[shuffler_spec.ItemNoise]) -> None:
    """Raise AccountingError if the sums of two numbers among these distributions are too dear."""
    pairs = 0
    for each in {*noises}:
        if isinstance(each, SummedNoise):
            pairs += math.prod(len(_likely(part)[0]) for part in each.parts)
    if pairs > _MOST_PRODUCTS:
        raise AccountingError(
            f"the numbers of dummies of the two shufflers take {pairs:,} likely pairs of values; a "
            f"device can check the sums of at most {_MOST_PRODUCTS:,}"
        )
