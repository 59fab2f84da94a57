"""
Privacy from clusters of positive and negative reports: the protocol `signed`.

With the distributions L_m and L_m' of the counts on the victim's two values v and v', given the
numbers m_k and m'_k of rooms labelled v and v',

    δ(ε) ≤ E[ Σ (L_m(c1 - 1)·L_m'(c2) - e^ε·L_m(c1)·L_m'(c2 - 1))_+ ].

A room k, shown with chance s_k and filled with chance f_k, is labelled v with probability
g_k = f_k/d + (1 - f_k)/2, and then holds a cluster with probability a_k = f_k / (d·g_k). If GRR
tells the truth beyond a uniform item with probability s, δ is at most s times the above at
ln(1 + (e^ε - 1) / s) [BBG18]. docs/theory/accounting.md has the model, notation and proofs.

Every figure is an upper bound: numbers of rooms are charged at the low edges of bins, everything
below the last one is charged in full, and `cluster_counts` rounds up. Run by the analyzer, the user
agent and the planner. Replace-one neighbours.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple, Self

import numpy as np
import scipy

from shuffledp.common.accounting import cluster_counts
from shuffledp.common.accounting.binomial import RELATIVE_ERROR
from shuffledp.common.accounting.cluster_counts import CHARGES, LOST_TO_UNDERFLOW, Room
from shuffledp.common.accounting.count_distributions import MAX_COUNT, Binomial
from shuffledp.common.accounting.epsilon_search import MAX_EPSILON
from shuffledp.common.accounting.releases import Release
from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.mechanisms.reduction import MatchCountReduction
from shuffledp.common.task.cluster_dummies import CHANCE_SUM, ClusterDummies

DEVIATIONS: Final = (0.6, 0.8, 1, 1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75, 3, 3.5, 4, 5, 6, 7, 8)
"""Low edges of the bins, in standard deviations below the mean number of rooms."""
_FINER: Final = 8
"""Finer bins are this many times as many."""
_FEW_ROOMS: Final = 6
"""Bounds without the rooms of a size are tried as well while fewer are expected."""
_PLACES: Final = 16
"""Numbers of trials that are tried as the end of a bound, in each doubling."""
_OTHERS_SHARE: Final = 8
"""Of the largest grid: grids for that."""
_STRETCH: Final = 0.15
_MOST_STRETCH: Final = 2.0
"""Low edges of common rooms lie deeper: by a power of how common they are, and at most this."""
_TRIAL_BITS: Final = 16
"""Leading bits of the number of trials that count, so that numerical errors do not show."""
_MANY_ROUNDINGS: Final = 2**10
_CACHE_SIZE: Final = 32


class Fineness(NamedTuple):
    """What a bound may cost to compute: the sizes of grids of counts."""

    cells: int
    """More trials than a grid of this size holds are not counted."""
    fine_cells: int
    """Size up to which bins are finer: few rooms have few numbers."""


OF_CLAIMS: Final = Fineness(7 * 2**17, 7 * 2**9)
"""A phone must check the claim: at most about a second and 50 MB."""
OF_BATCHES: Final = Fineness(7 * 2**19, 7 * 2**15)
"""Batches that arrived: up to 6 s and 200 MB, for an ε that may be half as large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRelease(Release):
    """One round of the protocol `signed`."""

    trials: int
    """Trials of all honest users, the victim among them."""
    domain_size: int
    rooms: tuple[Room, ...]
    signal: float = 1.0
    """s: probability that a user's own report tells the truth, beyond a uniform item; above 0."""
    local_epsilon: float = math.inf
    """Local ε of a user's own report; infinite if it is the user's value."""
    missing: float = 0.0
    """Probability of fewer trials, which is charged to δ in full."""
    fineness: Fineness = OF_CLAIMS
    """What the bound may cost."""

    @classmethod
    def of_shown(
        cls,
        clusters: ClusterDummies,
        shown: Sequence[tuple[int, float]],
        reduction: MatchCountReduction,
        fineness: Fineness = OF_CLAIMS,
    ) -> Self:
        """
        Return one round in which so many rooms of each size are shown.

        `shown` also has the probability, for each size, that there are fewer.
        """
        most = max(number for number, _ in shown)
        release = cls.of(clusters, most, reduction, fineness)
        rooms = tuple(
            replace(room, shown=1.0, trials=number)
            for room, (number, _) in zip(release.rooms, shown, strict=True)
        )
        return replace(release, rooms=rooms, missing=sum(fewer for _, fewer in shown))

    @classmethod
    def of(
        cls,
        clusters: ClusterDummies,
        trials: int,
        reduction: MatchCountReduction,
        fineness: Fineness = OF_CLAIMS,
    ) -> Self:
        """Return one round in which all honest users together make these trials."""
        rooms = []
        for (_, shown, filled), types in zip(clusters.rooms, clusters.types_by_room(), strict=True):
            total = sum(weight for _, _, weight in types)
            shares = tuple((i, j, weight / total) for i, j, weight in types)
            rooms.append(Room(shown / CHANCE_SUM, filled / CHANCE_SUM, shares))
        return cls(
            trials=trials,
            domain_size=int(reduction.answers),
            rooms=tuple(rooms),
            signal=min(1.0, reduction.signal * (1 + RELATIVE_ERROR)),
            local_epsilon=reduction.local_epsilon,
            fineness=fineness,
        )

    def _delta(self, epsilon: float) -> float:
        """
        Return the bound: the curve of a pair of distributions, as a mixture of pairs is one.

        Cost: that of the `fineness` for new parameters, then milliseconds.
        """
        # ln(1 + (e^ε - 1) / s), without overflow of a large ε, whose δ is below that of ε itself.
        inner = epsilon
        if self.signal < 1 and epsilon < MAX_EPSILON:
            inner = math.log1p(math.expm1(epsilon) / self.signal) * (1 - RELATIVE_ERROR)
        best = 1.0
        trials = self.trials >> (extra := max(0, self.trials.bit_length() - _TRIAL_BITS)) << extra
        for plan in _plans(trials, self.domain_size, self.rooms, self.fineness) if trials else ():
            best = min(best, plan.delta(inner, best))
        return min(1.0, self.missing + self.signal * best)


class _Labels:
    """The rooms that are labelled with one item, for any number of trials."""

    def __init__(self, domain_size: int, rooms: tuple[Room, ...]) -> None:
        """Compute the chances that a trial shows a labelled room, and that this is filled."""
        shares = [(1 - room.filled * (1 - 2 / domain_size)) / 2 for room in rooms]
        self.rooms = rooms
        self.fillings = [
            min(1.0, room.filled / (domain_size * share))
            for room, share in zip(rooms, shares, strict=True)
        ]
        self._chances = [
            min(1.0, room.shown * share) for room, share in zip(rooms, shares, strict=True)
        ]
        self.known = max(room.trials or 0 for room in rooms)
        parts = [1.0 if room.trials is None else room.trials / self.known for room in rooms]
        self.rates = [chance * part for chance, part in zip(self._chances, parts, strict=True)]

    def grid(self, trials: int) -> cluster_counts.CountGrid:
        """Return the grid of counts for so many trials."""
        return cluster_counts.CountGrid(self.rooms, self.fillings, self.numbers(trials))

    def numbers(self, trials: int) -> list[int]:
        """Return the expected number of labelled rooms of each size, rounded up."""
        return [math.ceil(trials * rate) for rate in self.rates]

    def most(self, cells: int) -> int:
        """Return about the most trials whose grid fits; a part of it if many roundings."""

        def large(place: int) -> bool:
            grid = self.grid(int(2 ** (place / _PLACES)))
            return grid.cells * (4 if grid.roundings > _MANY_ROUNDINGS else 1) > cells

        places = range(1, _PLACES * MAX_COUNT.bit_length())
        return int(2 ** (bisect_left(places, True, key=large) / _PLACES))  # noqa: FBT003

    def bins(
        self, trials: int, fineness: int, stretch: tuple[float, ...]
    ) -> tuple[dict[tuple[int, ...], float], float]:
        """
        Return the weights of the low edges of each bin, highest edges first, and the mass below.

        The rooms labelled v and v' are binomial numbers. A bin holds the outcomes in which all of
        them are at least its low edges, but not all at least those of the bin before. Edges are
        quantiles of fixed probability, so they rise with the trials, and weights stay.
        """
        places = np.arange((len(DEVIATIONS) - 1) * fineness + 1) / fineness
        deviations = np.interp(places, np.arange(len(DEVIATIONS)), DEVIATIONS)
        chances = scipy.special.ndtr(-np.outer(stretch, deviations))
        missed = np.minimum(1.0, 2 * chances.sum(axis=0) * (1 + RELATIVE_ERROR))
        edges = [
            _low_edges(
                Binomial(trials if room.trials is None else room.trials * trials // self.known, p),
                each,
            )
            for room, p, each in zip(self.rooms, self._chances, chances, strict=True)
        ]
        found: dict[tuple[int, ...], float] = {}
        for at, weight in zip(zip(*edges, strict=True), -np.diff(missed, prepend=1.0), strict=True):
            if weight > 0:
                found[at] = found.get(at, 0.0) + float(weight)
        return found, float(missed[-1])


class _Plan:
    """A bound on δ from some number of trials: its bins, and the distributions at their edges."""

    def __init__(
        self, trials: int, fineness: int, stretch: tuple[float, ...], labels: _Labels
    ) -> None:
        """Choose bins, but compute no distribution."""
        self.trials, self._labels = trials, labels
        weights, self._below = labels.bins(trials, fineness, stretch)
        self._edges, self._weights = list(weights), list(weights.values())
        self._counts: list[cluster_counts.ItemCounts] = []

    def delta(self, epsilon: float, best: float) -> float:
        """Return the bound, or 1 if it is at least `best`, which often takes one distribution."""
        least = self._at(0 if best < 1 else -1)[0].delta(epsilon)
        if least >= best:
            return 1.0
        deltas = (max(least, counts.delta(epsilon)) for counts in self._at(-1))
        return self._below + sum(w * each for w, each in zip(self._weights, deltas, strict=True))

    def _at(self, last: int) -> list[cluster_counts.ItemCounts]:
        """Return the distributions at the edges up to one of them."""
        found = self._counts
        missing = self._edges[: last % len(self._edges) + 1][len(found) :]
        if missing:
            grid = self._labels.grid(self.trials)
            found = self._counts = found + [grid.of(edges) for edges in missing]
        return found


_labels = lru_cache(maxsize=_CACHE_SIZE)(_Labels)
_plan = lru_cache(maxsize=_CACHE_SIZE)(_Plan)


@lru_cache(maxsize=_CACHE_SIZE)
def _limits(labels: _Labels, fineness: Fineness) -> set[tuple[int, int, tuple[float, ...]]]:
    """
    Return all kinds of bounds: the trials at which one ends, and the fineness and stretch of bins.

    Bounds end where the grid is too large, and before each step of the charge for rounding.
    """
    cells, fine_cells = fineness
    most, fine, others = map(labels.most, (cells, fine_cells, cells // _OTHERS_SHARE))

    def charged(trials: int) -> float:
        return cluster_counts.roundings(labels.fillings, labels.numbers(trials))

    ends = [bisect_right(range(MAX_COUNT), charge, key=charged) - 1 for charge in CHARGES]
    # A standard deviation is a smaller part of the rooms of a common size.
    rates = np.maximum(labels.rates, 1 / MAX_COUNT)
    stretch = np.minimum((rates / rates.min()) ** _STRETCH, _MOST_STRETCH)
    ways = {(most, tuple(stretch))}
    order = np.argsort(rates)
    for rare in (order[:n] for n in range(1, len(order))):
        few = math.ceil(_FEW_ROOMS / rates[rare[-1]])
        stretch[rare] = math.inf
        ways.add((min(few, others), tuple(stretch)))
    found = {(max(1, end), way) for last, way in ways for end in (last, *ends) if end <= last}
    finer = {(min(end, fine), _FINER, each) for end, each in found}
    return finer | {(end, 1, each) for end, each in found if end > fine}


@lru_cache(maxsize=_CACHE_SIZE)
def _plans(
    trials: int, domain_size: int, rooms: tuple[Room, ...], fineness: Fineness
) -> list[_Plan]:
    """Return the bounds to try, that of most trials first. Each falls with the trials, or stays."""
    labels = _labels(domain_size, rooms)
    kinds = {(min(trials, end), *kind) for end, *kind in _limits(labels, fineness)}
    return [_plan(*kind, labels) for kind in sorted(kinds, reverse=True)]


def _low_edges(number: Binomial, chances: Vector) -> list[int]:
    """Return the largest counts with P(X < count) ≤ each of the chances."""
    low, high = np.zeros(len(chances)), np.full(len(chances), number.trials + 1.0)
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        below = number.tails(middle - 1)[0] * (1 + RELATIVE_ERROR) + LOST_TO_UNDERFLOW
        rare = below <= chances
        low, high = np.where(rare, middle, low), np.where(rare, high, middle)
    return [int(edge) for edge in low]
