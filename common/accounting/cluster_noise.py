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

* numbers of rooms are charged at the low edges of bins, and everything below the first one in full;
* distributions come from a fast Fourier transform; its error and the mass beyond the grid count;
* outcomes of tiny probability are charged in full; the rest is split onto a grid of ratios, which
  can only raise δ, and added up as in `item_noise`.

Run by the analyzer, the user agent and the planner. Replace-one neighbours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from common.accounting.binomial import RELATIVE_ERROR
from common.accounting.count_distributions import ROUNDING, Binomial
from common.accounting.epsilon_search import MAX_EPSILON
from common.accounting.item_noise import RatioClasses
from common.accounting.releases import Release
from common.errors import AccountingError
from common.mechanisms.base import Vector
from common.mechanisms.reduction import MatchCountReduction
from common.task.cluster_spec import CHANCE_SUM, ClusterSpec

DEVIATIONS: Final = (0.6, 0.8, 1, 1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75, 3, 3.5, 4, 5, 6, 7)
"""Low edges of the bins, in standard deviations below the mean number of rooms."""
_TRANSFORM_ERROR: Final = 2.0**-51
"""A transform's relative error counts as this times (100 + expected number of filled rooms): its
exponent has about as many roundings. By Parseval and Cauchy-Schwarz the total error of a
distribution p is at most √cells·‖p‖₂ times as large. Measured errors are a tenth of the charge."""
_LEAST_PROBABILITY: Final = 1e-18
"""Outcomes of smaller probability are charged in full."""
_TAIL: Final = 1e-14
"""Maximum probability beyond a grid, on either axis."""
_MAX_CELLS: Final = 2**23
"""More trials than a grid of this size holds are not counted."""
_FEWER: Final = 0.99
_BASES: Final = (0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
"""The bound at an ε also holds at any larger one; its error grows with e^ε."""
_STEPS_OF_SPREAD: Final = 100
"""Steps of the grid of log ratios in one standard deviation of them: δ rises by about 1e-4."""
_MAX_CLASSES: Final = 2**15
_SPLIT_ERROR: Final = 1e-14
"""Error of f and g, each of which is a few roundings, in a split outcome."""
_LOST_TO_UNDERFLOW: Final = 1e-300
_CACHE_SIZE: Final = 16


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
    """Trials that may show it; None if all of the release's."""


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
        clusters: ClusterSpec,
        shown: Sequence[tuple[int, float]],
        reduction: MatchCountReduction,
    ) -> Self:
        """
        Return one round in which so many rooms of each size are shown.

        `shown` also has the probability, for each size, that there are fewer.
        """
        release = cls.of(clusters, 0, reduction)
        rooms = tuple(
            replace(room, shown=1.0, trials=number)
            for room, (number, _) in zip(release.rooms, shown, strict=True)
        )
        return replace(release, rooms=rooms, missing=sum(fewer for _, fewer in shown))

    @classmethod
    def of(cls, clusters: ClusterSpec, trials: int, reduction: MatchCountReduction) -> Self:
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
        AccountingError if epsilon is negative or not a number. Cost: about a second for new
        parameters, then milliseconds; at most .6 GB and 15 seconds, for three rooms whose clusters
        fill the largest grid of counts.
        """
        if not epsilon >= 0:
            raise AccountingError(f"epsilon is {epsilon}; it must be at least 0")
        if epsilon >= self.local_epsilon:
            return 0.0
        bins, missed = _bins(self.trials, self.domain_size, self.rooms)
        # ln(1 + (e^ε - 1) / s), without overflow of a large ε, whose δ is below that of ε itself.
        inner = epsilon
        if self.signal < 1 and epsilon < MAX_EPSILON:
            inner = math.log1p(math.expm1(epsilon) / self.signal) * (1 - RELATIVE_ERROR)
        delta = missed + sum(weight * counts.delta(inner) for weight, counts in bins)
        return min(1.0, self.missing + self.signal * delta)


class _ItemCounts:
    """The counts on one item, with and without the victim's report."""

    def __init__(self, probabilities: Vector, error: float) -> None:
        """Take probabilities of the counts, shape (positive, negative), and their total error."""
        none = np.zeros((1, probabilities.shape[1]))
        without, with_report = (
            np.concatenate([probabilities, none]),
            np.concatenate([none, probabilities]),
        )
        kept = (without > _LEAST_PROBABILITY) & (with_report > _LEAST_PROBABILITY)
        certain = float(without[~kept].sum() + with_report[~kept].sum())
        ratios, masses = _on_grid(with_report[kept] / without[kept], without[kept])
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


def _on_grid(ratios: Vector, masses: Vector) -> tuple[Vector, Vector]:
    """
    Return the ratios of the outcomes, ascending, and masses of g; split onto a grid if many.

    An outcome with probabilities (f, g) becomes two outcomes, with the ratios of the grid around
    f/g and the same sums of f and of g. An adversary who sees which of the two learns more, so δ
    can only rise: by about the square of the grid's step over the spread of the ratios.
    """
    if len(ratios) <= _MAX_CLASSES:
        order = np.argsort(ratios)
        return ratios[order], masses[order]
    logs: Vector = np.log(ratios)
    mean = logs @ masses / masses.sum()
    spread = math.sqrt((logs - mean) ** 2 @ masses / masses.sum())
    step = max(spread / _STEPS_OF_SPREAD, float(np.ptp(logs)) / _MAX_CLASSES)
    first = math.floor(logs.min() / step)
    places = np.floor(logs / step).astype(np.int64) - first
    grid: Vector = np.exp(step * np.arange(first, first + int(places.max()) + 2))
    above = masses * (ratios - grid[places]) / (grid[places + 1] - grid[places])
    above = np.clip(above, 0.0, masses)
    at = np.concatenate([places, places + 1])
    split = np.bincount(at, np.concatenate([masses - above, above]), len(grid))
    upward = 1 + (2 * len(masses) + 64) * ROUNDING
    return grid, np.asarray(split * upward, dtype=np.float64)


@lru_cache(maxsize=_CACHE_SIZE)
def _bins(
    trials: int, domain_size: int, rooms: tuple[Room, ...]
) -> tuple[list[tuple[float, _ItemCounts]], float]:
    """
    Return a weight and a distribution for each bin of the numbers of rooms, and the mass below.

    The rooms labelled v and v' are binomial numbers. A bin holds the outcomes in which all of them
    are at least its low edges, but not all at least those of the bin before.
    """
    shares = [(1 - room.filled * (1 - 2 / domain_size)) / 2 for room in rooms]
    fillings = [
        min(1.0, room.filled / (domain_size * share))
        for room, share in zip(rooms, shares, strict=True)
    ]
    # Rooms that are rarely filled hide little, so their low edges may lie deeper.
    fullest = max(room.filled for room in rooms)
    numbers = [trials if room.trials is None else room.trials for room in rooms]
    while True:
        labelled = [
            Binomial(number, min(1.0, room.shown * share))
            for number, room, share in zip(numbers, rooms, shares, strict=True)
        ]
        first = [
            _low_edge(number, DEVIATIONS[0] * fullest / room.filled)
            for number, room in zip(labelled, rooms, strict=True)
        ]
        axes = [_Axis.of(rooms, fillings, first, axis) for axis in (0, 1)]
        if max(numbers) <= 1 or math.prod(axis.size for axis in axes) <= _MAX_CELLS:
            break
        # δ falls in the trials, so fewer are a bound.
        numbers = [int(_FEWER * number) for number in numbers]
    weights: dict[tuple[int, ...], float] = {}
    before = 1.0
    for deviations in DEVIATIONS:
        edges = tuple(
            _low_edge(number, deviations * fullest / room.filled)
            for number, room in zip(labelled, rooms, strict=True)
        )
        missed = min(before, 2 * sum(map(_below, labelled, edges)))
        weights[edges] = weights.get(edges, 0.0) + before - missed
        before = missed
    grid = _CountGrid(rooms, fillings, axes)
    return [(weight, grid.of(edges)) for edges, weight in weights.items() if weight], before


def _low_edge(number: Binomial, deviations: float) -> int:
    mean = number.trials * number.chance
    return max(0, math.ceil(mean - deviations * math.sqrt(mean * (1 - number.chance))))


def _below(number: Binomial, edge: int) -> float:
    """Return P(X < edge), rounded up."""
    if edge <= 0:
        return 0.0
    return float(number.tails(np.array([edge - 1.0]))[0][0]) * (1 + RELATIVE_ERROR)


class _CountGrid:
    """Distributions of the counts on one item, given the numbers of rooms labelled with it."""

    def __init__(
        self, rooms: Sequence[Room], fillings: Sequence[float], axes: "Sequence[_Axis]"
    ) -> None:
        """Prepare transforms on a grid; a labelled room is filled with the `fillings`' chance."""
        self._shape = (axes[0].size, axes[1].size)
        self._fillings = fillings
        # What lies beyond the grid wraps around: it is missing in one place and added in another.
        self._beyond = 2 * sum(axis.tail for axis in axes)
        self._logs = [
            self._log_transform(room, filling)
            for room, filling in zip(rooms, fillings, strict=True)
        ]

    def _log_transform(self, room: Room, filling: float) -> NDArray[np.complex128]:
        types = np.zeros(self._shape)
        for plus, minus, share in room.types:
            types[plus, minus] += share
        z = filling * (scipy.fft.rfft2(types) - 1)
        # |1 + z|² = 1 + 2·Re z + |z|²: 1 + z would lose digits of a small z.
        small = 0.5 * np.log1p(np.maximum(2 * z.real + np.abs(z) ** 2, -0.9))
        large = np.log(np.maximum(np.abs(1 + z), _LOST_TO_UNDERFLOW))
        logs: NDArray[np.complex128] = np.where(np.abs(z) < 0.5, small, large)  # noqa: PLR2004
        return logs + 1j * np.arctan2(z.imag, 1 + z.real)

    def of(self, numbers: Sequence[int]) -> _ItemCounts:
        """Return the distribution for these numbers of rooms, at most those of the axes."""
        return _ItemCounts(*self.probabilities(numbers))

    def probabilities(self, numbers: Sequence[int]) -> tuple[Vector, float]:
        """Return the probabilities of the counts, shape (positive, negative), and their error."""
        total = sum(n * log for n, log in zip(numbers, self._logs, strict=True))
        found = np.maximum(scipy.fft.irfft2(np.exp(total), s=self._shape), 0.0)
        filled = sum(n * filling for n, filling in zip(numbers, self._fillings, strict=True))
        relative = _TRANSFORM_ERROR * (100 + filled)
        return found, self._beyond + relative * math.sqrt(found.size) * float(np.linalg.norm(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """One axis of a grid of counts."""

    size: int
    tail: float
    """Bound on the probability that a count is at least `size`."""

    @classmethod
    def of(
        cls, rooms: Sequence[Room], fillings: Sequence[float], numbers: Sequence[int], axis: int
    ) -> Self:
        """Return the grid of positive (0) or negative (1) reports in these numbers of rooms."""
        jumps = [np.array([each[axis] for each in room.types]) for room in rooms]
        shares = [np.array([each[2] for each in room.types]) for room in rooms]
        parts = list(zip(numbers, fillings, jumps, shares, strict=True))
        largest = max(1, *(int(jump.max()) for jump in jumps))
        mean, square = (
            sum(n * filling * float(share @ jump**power) for n, filling, jump, share in parts)
            for power in (1, 2)
        )
        # Chernoff's bound [BLM13, Section 2.2]: each h gives one.
        steps = np.geomspace(1e-3, 30, 60) / largest
        log_moments = sum(
            n * np.log1p(filling * (np.expm1(np.outer(steps, jump)) @ share))
            for n, filling, jump, share in parts
        )
        size = math.ceil(mean + 8 * math.sqrt(square) + 10.5 * largest + 20)
        while (beyond := math.exp(min(0.0, float((log_moments - steps * size).min())))) > _TAIL:
            size = math.ceil(1.1 * size)
        return cls(size=int(scipy.fft.next_fast_len(size, real=True)), tail=beyond)
