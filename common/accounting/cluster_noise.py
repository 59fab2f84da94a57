"""
Privacy from clusters of positive and negative reports: the protocol `signed`.

Each of N honest trials shows room k with probability s_k, and a shown room is filled with
probability f_k: it then holds a cluster of i positive and j negative reports of a uniform item. The
adversary sees all lengths, so every shown room. Label each shown room: v or v' if it holds a
cluster of these items, o if of another, and v or v' by a fair coin if it is empty. Labels do not
depend on values. A room is labelled v with probability

    g_k = f_k/d + (1 - f_k)/2,   and then holds a cluster with probability  a_k = f_k / (d·g_k).

Given the numbers m_k and m'_k of rooms labelled v and v', the counts on v and v' are independent
and have the distributions L_m and L_m', with generating functions Π (1 - a_k + a_k·ψ_k)^m_k where
ψ_k generates the types of room k. The victim adds one positive report to one of them, so

    δ(ε) ≤ E[ Σ (L_m(c1 - 1)·L_m'(c2) - e^ε·L_m(c1)·L_m'(c2 - 1))_+ ],

where c - 1 has one positive report less. More rooms cannot help the adversary, who could add them,
so δ falls in every m_k.

If a user's own report is randomized by GRR, which tells the truth beyond a uniform item with
probability s, the pair of distributions is a mixture of this one and of a uniform report that is
the same for both values, and by advanced joint convexity [BBG18] δ is at most s times the above at
ln(1 + (e^ε - 1) / s). The proofs are in docs/theory/accounting.md.

Every figure is an upper bound:

* numbers of rooms are charged at the low edges of bins, and everything below the last one in full;
* distributions come from a fast Fourier transform; its error and the mass beyond the grid count;
* outcomes of tiny probability are charged in full; the rest is split onto a grid of ratios, which
  can only raise δ, and added up as in `item_noise`.

Run by the analyzer, the user agent and the planner. Replace-one neighbours.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from common.accounting.binomial import RELATIVE_ERROR
from common.accounting.count_distributions import MAX_COUNT, ROUNDING, Binomial
from common.accounting.epsilon_search import MAX_EPSILON
from common.accounting.item_noise import RatioClasses
from common.accounting.releases import Release
from common.errors import AccountingError
from common.mechanisms.base import Vector
from common.mechanisms.reduction import MatchCountReduction
from common.task.cluster_dummies import CHANCE_SUM, ClusterDummies

DEVIATIONS: Final = (0.6, 0.8, 1, 1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75, 3, 3.5, 4, 5, 6, 7, 8)
"""Low edges of the bins, in standard deviations below the mean number of rooms."""
_TRANSFORM_ERROR: Final = 2.0**-51
"""A transform's relative error counts as this times (100 + expected number of filled rooms), up to
the next power of 2: its exponent has about as many roundings. By Parseval and Cauchy-Schwarz the
total error of a distribution p is at most √cells·‖p‖₂ times as large. Measured errors are a tenth
of the charge."""
_USUAL_NORM: Final = 6.0
"""√cells·‖p‖₂ counts as at least this, so that errors do not vary with the number of trials."""
_LEAST_PROBABILITY: Final = 1e-18
"""Outcomes of smaller probability are charged in full."""
_TAIL: Final = 1e-14
"""Maximum probability beyond a grid, on each side of an axis."""
_LOG_STEPS: Final = np.geomspace(1e-6, 30, 100)
"""Steps of Chernoff's bounds, for reports that change a count by at most one."""
_MAX_CELLS: Final = 7 * 2**17
"""More trials than a grid of this size holds are not counted: a phone must check the claim."""
_FINENESS: Final = 8
"""Bins are this many times as many where this is cheap: few rooms have few numbers."""
_FINE_SHARE: Final = 256
"""Of the largest grid: grids for the finer bins."""
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
_CHARGES: Final = (2**7, 2**8, *(2**power for power in range(10, 32)))
"""Numbers of roundings that are charged."""
_MANY_ROUNDINGS: Final = 2**10
_BASES: Final = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
"""The bound at an ε also holds at any larger one; its error grows with e^ε."""
_STEPS_OF_SPREAD: Final = 100
"""Steps of the grid of log ratios in one standard deviation of them: δ rises by about 1e-4."""
_DENSE_SPREADS: Final = 3
"""Standard deviations from which steps grow with the distance from the mean."""
_MAX_CLASSES: Final = 2**13
_BLOCK: Final = 2**16
"""Outcomes that are sorted into classes at a time, to save memory."""
_SPLIT_ERROR: Final = 1e-13
"""Error of f and g in split outcomes: a few roundings of each, and of the grid."""
_LOST_TO_UNDERFLOW: Final = 1e-300
_CACHE_SIZE: Final = 32


@dataclass(frozen=True, slots=True)
class Room:
    """A number of reports that a trial may show, and what they hold."""

    shown: float
    """Probability that a trial shows the room."""
    filled: float
    """Probability that a shown room holds a cluster; above 0 and at most 1."""
    types: tuple[tuple[int, int, float], ...]
    """Positive and negative reports of each type of cluster, and its share of the clusters."""
    trials: int | None = None
    """Trials that show it, if these are known; the release has as many as the largest number."""


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

    @classmethod
    def of_shown(
        cls,
        clusters: ClusterDummies,
        shown: Sequence[tuple[int, float]],
        reduction: MatchCountReduction,
    ) -> Self:
        """
        Return one round in which so many rooms of each size are shown.

        `shown` also has the probability, for each size, that there are fewer.
        """
        most = max(number for number, _ in shown)
        release = cls.of(clusters, most, reduction)
        rooms = tuple(
            replace(room, shown=1.0, trials=number)
            for room, (number, _) in zip(release.rooms, shown, strict=True)
        )
        return replace(release, rooms=rooms, missing=sum(fewer for _, fewer in shown))

    @classmethod
    def of(cls, clusters: ClusterDummies, trials: int, reduction: MatchCountReduction) -> Self:
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
        )

    def delta(self, epsilon: float) -> float:
        """
        Return an upper bound on δ at ε.

        It is the curve of a pair of distributions, because a mixture of pairs is one. Raises
        AccountingError if epsilon is negative or not a number. Cost: at most about a second and
        80 MB for new parameters, then milliseconds.
        """
        if not epsilon >= 0:
            raise AccountingError(f"epsilon is {epsilon}; it must be at least 0")
        if epsilon >= self.local_epsilon:
            return 0.0
        # ln(1 + (e^ε - 1) / s), without overflow of a large ε, whose δ is below that of ε itself.
        inner = epsilon
        if self.signal < 1 and epsilon < MAX_EPSILON:
            inner = math.log1p(math.expm1(epsilon) / self.signal) * (1 - RELATIVE_ERROR)
        best = 1.0
        trials = self.trials >> (extra := max(0, self.trials.bit_length() - _TRIAL_BITS)) << extra
        for plan in _plans(trials, self.domain_size, self.rooms) if trials else ():
            best = min(best, plan.delta(inner, best))
        return min(1.0, self.missing + self.signal * best)


class _ItemCounts:
    """The counts on one item, with and without the victim's report."""

    def __init__(self, probabilities: Vector, error: float, step: tuple[int, int]) -> None:
        """
        Take probabilities of the counts on a grid, and their total error.

        `step` is what the victim's report adds to the place in each axis. Outcomes that are
        possible in only one of the two cases are charged.
        """
        with_report, without = (
            probabilities[tuple(map(_moved, probabilities.shape, moves))]
            for moves in ((-step[0], -step[1]), step)
        )
        ratios, masses, kept = _by_ratio(without, with_report)
        # Charged in full if the outcome on either item is left out.
        left_out = np.maximum(0.0, float(probabilities.sum()) - kept)
        certain = float(left_out.sum() - left_out.prod())
        self._classes = RatioClasses(ratios, masses, certain)
        self._error = 2 * error + _SPLIT_ERROR

    def delta(self, epsilon: float) -> float:
        """
        Return an upper bound on δ at ε, if both items have this distribution.

        It falls with ε: the least bound at ε and at the bases below it.
        """
        return min(1.0, *(self._at(each) for each in (epsilon, *_BASES) if each <= epsilon))

    def _at(self, epsilon: float) -> float:
        growth = math.exp(min(epsilon, MAX_EPSILON))
        return self._classes.delta(epsilon) + (1 + growth) * self._error


def _moved(size: int, move: int) -> slice:
    """Return the places of an axis that are still on it before they are moved back by `move`."""
    move = max(-size, min(move, size))
    return slice(max(0, move), size + min(0, move))


def _by_ratio(without: Vector, with_report: Vector) -> tuple[Vector, Vector, Vector]:
    """
    Return the ratios f/g of the outcomes, ascending, their masses of g, and the sums of g and f.

    Outcomes of tiny probability are left out.

    An outcome with probabilities (f, g) becomes two outcomes, with the ratios of a grid around f/g
    and the same sums of f and of g. An adversary who sees which of the two learns more, so δ can
    only rise: by about the square of the grid's step over the spread of the ratios. Small tables
    are left as they are.
    """
    rows = max(1, _BLOCK // max(1, without.shape[1]))
    blocks = [slice(first, first + rows) for first in range(0, len(without), rows)]
    whole = without.size <= _MAX_CLASSES
    middle = len(without) // 2
    spread = _DENSE_SPREADS * _spread(without[middle:][:rows], with_report[middle:][:rows])
    per_unit = _STEPS_OF_SPREAD * _DENSE_SPREADS
    last = math.ceil(per_unit * math.asinh(-math.log(_LEAST_PROBABILITY) / spread)) + 1
    grid: Vector = np.exp(spread * np.sinh(np.arange(-last, last + 1) / per_unit))
    split, sums = np.zeros(len(grid)), np.zeros(2)
    for block in blocks:
        g, f = without[block], with_report[block]
        kept = np.minimum(g, f) > _LEAST_PROBABILITY
        g, f = g[kept], f[kept]
        sums += g.sum(), f.sum()
        ratios = f / g
        if whole:
            order = np.argsort(ratios)
            return ratios[order], g[order], sums
        logs = np.arcsinh(np.log(ratios) / spread)
        at = np.floor(logs * per_unit).astype(np.int64) + last
        above = g * np.clip((ratios - grid[at]) / np.diff(grid)[at], 0.0, 1.0)
        split += np.bincount(at, g - above, len(grid))
        split[1:] += np.bincount(at, above, len(grid) - 1)
    used = np.flatnonzero(split)
    upward = 1 + (2 * without.size + 64) * ROUNDING
    return grid[used], split[used] * upward, sums


def _spread(without: Vector, with_report: Vector) -> float:
    """Estimate the standard deviation of log(f/g), to choose a grid."""
    kept = np.minimum(without, with_report) > _LEAST_PROBABILITY
    g, f = without[kept], with_report[kept]
    return max(1e-6, math.sqrt(np.log(f / g) ** 2 @ g / max(g.sum(), _LEAST_PROBABILITY)))


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

    def grid(self, trials: int) -> "_CountGrid":
        """Return the grid of counts for so many trials."""
        return _CountGrid(self.rooms, self.fillings, self.numbers(trials))

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
        self._counts: list[_ItemCounts] = []

    def delta(self, epsilon: float, best: float) -> float:
        """Return the bound, or 1 if it is at least `best`, which often takes one distribution."""
        least = self._at(0 if best < 1 else -1)[0].delta(epsilon)
        if least >= best:
            return 1.0
        deltas = (max(least, counts.delta(epsilon)) for counts in self._at(-1))
        return self._below + sum(w * each for w, each in zip(self._weights, deltas, strict=True))

    def _at(self, last: int) -> list[_ItemCounts]:
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
def _limits(labels: _Labels, cells: int) -> set[tuple[int, int, tuple[float, ...]]]:
    """
    Return all kinds of bounds: the trials at which one ends, and the fineness and stretch of bins.

    Bounds end where the grid is too large, and before each step of the charge for rounding.
    """
    most, fine, others = (labels.most(cells // n) for n in (1, _FINE_SHARE, _OTHERS_SHARE))

    def roundings(trials: int) -> float:
        return _roundings(labels.fillings, labels.numbers(trials))

    ends = [bisect_right(range(MAX_COUNT), charge, key=roundings) - 1 for charge in _CHARGES]
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
    finer = {(min(end, fine), _FINENESS, each) for end, each in found}
    return finer | {(end, 1, each) for end, each in found if end > fine}


@lru_cache(maxsize=_CACHE_SIZE)
def _plans(trials: int, domain_size: int, rooms: tuple[Room, ...]) -> list[_Plan]:
    """Return the bounds to try, that of most trials first. Each falls with the trials, or stays."""
    labels = _labels(domain_size, rooms)
    kinds = {(min(trials, end), *kind) for end, *kind in _limits(labels, _MAX_CELLS)}
    return [_plan(*kind, labels) for kind in sorted(kinds, reverse=True)]


def _roundings(fillings: Sequence[float], numbers: Sequence[int]) -> float:
    """Return the roundings in the exponent for so many rooms: 100 and one a filled room."""
    return 100 + sum(n * filling for n, filling in zip(numbers, fillings, strict=True))


def _low_edges(number: Binomial, chances: Vector) -> list[int]:
    """Return the largest counts with P(X < count) ≤ each of the chances."""
    low, high = np.zeros(len(chances)), np.full(len(chances), number.trials + 1.0)
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        below = number.tails(middle - 1)[0] * (1 + RELATIVE_ERROR) + _LOST_TO_UNDERFLOW
        rare = below <= chances
        low, high = np.where(rare, middle, low), np.where(rare, high, middle)
    return [int(edge) for edge in low]


class _CountGrid:
    """
    Distributions of the counts on one item, given the numbers of rooms labelled with it.

    A transform at W frequencies gives a distribution modulo W, so an axis needs the spread of its
    count only. Positive and negative reports of clusters that nearly cancel vary together: the axes
    are the pair of whole-numbered combinations of them that spread least.
    """

    def __init__(
        self, rooms: Sequence[Room], fillings: Sequence[float], most: Sequence[int]
    ) -> None:
        """
        Choose axes for up to `most` rooms of each size, filled with the `fillings`' chance.

        Both ends of Chernoff's bounds move outward with the number of rooms, relative to the mean,
        so no smaller number needs a longer axis.
        """
        self._rooms, self._fillings = rooms, fillings
        self._axes = _least_spread(_covariance(rooms, fillings, most))
        sizes = (end - first for first, end in self._windows(most))
        self._shape = tuple(int(scipy.fft.next_fast_len(size, real=True)) for size in sizes)
        self._logs: list[NDArray[np.complex128]] = []
        self.roundings = next(n for n in _CHARGES if n >= _roundings(fillings, most))

    @property
    def cells(self) -> int:
        """Number of cells of the grid."""
        return math.prod(self._shape)

    def _windows(self, numbers: Sequence[int]) -> list[tuple[int, int]]:
        return [_window(self._rooms, self._fillings, numbers, axis) for axis in self._axes]

    def _log_transform(self, room: Room, filling: float) -> NDArray[np.complex128]:
        types = np.zeros(self._shape)
        for plus, minus, share in room.types:
            types[self._place(plus, minus)] += share
        logs: NDArray[np.complex128] = scipy.fft.rfft2(types)
        del types
        for row in logs:  # one at a time, to save memory
            z = filling * (row - 1)
            # |1 + z|² = 1 + 2·Re z + |z|²: 1 + z would lose digits of a small z.
            small = 0.5 * np.log1p(np.maximum(2 * z.real + np.abs(z) ** 2, -0.9))
            large = np.log(np.maximum(np.abs(1 + z), _LOST_TO_UNDERFLOW))
            row.real = np.where(np.abs(z) < 0.5, small, large)  # noqa: PLR2004
            row.imag = np.arctan2(z.imag, 1 + z.real)
        return logs

    def _place(self, plus: int, minus: int) -> tuple[int, ...]:
        """Return the place of these counts on the grid, before the window's ends are known."""
        axes = zip(self._axes, self._shape, strict=True)
        return tuple((a * plus + b * minus) % size for (a, b), size in axes)

    def of(self, numbers: Sequence[int]) -> _ItemCounts:
        """Return the distribution for these numbers of rooms, at most those of the axes."""
        (first, _), (second, _) = self._axes
        return _ItemCounts(*self.probabilities(numbers), step=(first, second))

    def probabilities(self, numbers: Sequence[int]) -> tuple[Vector, float]:
        """Return the probabilities on the axes, from the first count in each, and their error."""
        if not self._logs:
            pairs = zip(self._rooms, self._fillings, strict=True)
            self._logs = [self._log_transform(room, filling) for room, filling in pairs]
        total = numbers[0] * self._logs[0]
        for number, log in zip(numbers[1:], self._logs[1:], strict=True):
            total += number * log
        np.exp(total, out=total)
        found = scipy.fft.irfft2(total, s=self._shape, overwrite_x=True)
        del total
        starts = [-first for first, _ in self._windows(numbers)]
        found = np.roll(found, starts, axis=(0, 1))
        np.maximum(found, 0.0, out=found)
        scale = max(_USUAL_NORM, math.sqrt(found.size) * float(np.linalg.norm(found)))
        # What lies beyond an end wraps around: it is missing in one place and added in another.
        return found, 2 * 4 * _TAIL + _TRANSFORM_ERROR * self.roundings * scale


def _covariance(
    rooms: Sequence[Room], fillings: Sequence[float], numbers: Sequence[int]
) -> NDArray[np.float64]:
    """Return the covariance of positive and negative reports, shape (2, 2)."""
    total = np.zeros((2, 2))
    for room, filling, number in zip(rooms, fillings, numbers, strict=True):
        types = np.array(room.types)
        jumps, shares = types[:, :2], types[:, 2]
        mean = filling * (shares @ jumps)
        total += number * (filling * (jumps.T * shares) @ jumps - np.outer(mean, mean))
    return total


def _least_spread(covariance: NDArray[np.float64]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return two axes of determinant ±1 with small variances: a basis that Lagrange reduced."""
    short, long = np.array([1, 0]), np.array([0, 1])
    while True:
        if long @ covariance @ long < short @ covariance @ short:
            short, long = long, short
        variance = short @ covariance @ short
        if variance <= ROUNDING * np.trace(covariance):
            break
        times = round(float(short @ covariance @ long / variance))
        if times == 0:
            break
        long = long - times * short
    return (int(short[0]), int(short[1])), (int(long[0]), int(long[1]))


def _window(
    rooms: Sequence[Room], fillings: Sequence[float], numbers: Sequence[int], axis: tuple[int, int]
) -> tuple[int, int]:
    """
    Return the first count of an axis, and the end, beyond which there is at most _TAIL each.

    By Chernoff's bound [BLM13, Section 2.2] P(S ≥ x) ≤ exp(m(h) - h·x) for every h > 0, with
    m(h) = log E[exp(h·S)], and likewise below.
    """
    log_tail, up, down = math.log(_TAIL), 0.0, 0.0
    least = most = 0
    jumps = [np.array([axis[0] * i + axis[1] * j for i, j, _ in room.types]) for room in rooms]
    steps = _LOG_STEPS / max(1, *(int(np.abs(each).max()) for each in jumps))
    for room, filling, number, jump in zip(rooms, fillings, numbers, jumps, strict=True):
        shares = np.array([share for _, _, share in room.types])
        up += number * np.log1p(filling * (np.expm1(np.outer(steps, jump)) @ shares))
        down += number * np.log1p(filling * (np.expm1(np.outer(-steps, jump)) @ shares))
        least += number * min(0, int(jump.min()))
        most += number * max(0, int(jump.max()))
    first = max(least, math.floor(float(((log_tail - down) / steps).max())))
    end = min(most, math.ceil(float(((up - log_tail) / steps).min())))
    return first, end + 1
