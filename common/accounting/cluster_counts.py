"""
The counts of positive and negative reports on one item, given the rooms labelled with it.

A room holds a cluster with some probability, so the counts have a compound binomial distribution: a
product of powers, computed by a fast Fourier transform. Its error, and the mass beyond the grid,
are charged. For sums over both items, outcomes of tiny probability are charged in full; the rest is
split onto a grid of ratios, which can only raise δ, and added up as in `item_noise`. The proofs are
in docs/theory/accounting.md.

Run by the analyzer, the user agent and the planner.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from shuffledp.common.accounting.count_distributions import ROUNDING
from shuffledp.common.accounting.epsilon_search import MAX_EPSILON
from shuffledp.common.accounting.item_noise import RatioClasses
from shuffledp.common.mechanisms.base import Vector

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
CHARGES: Final = (2**7, 2**8, *(2**power for power in range(10, 32)))
"""Numbers of roundings that are charged."""
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
LOST_TO_UNDERFLOW: Final = 1e-300


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


class ItemCounts:
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


def roundings(fillings: Sequence[float], numbers: Sequence[int]) -> float:
    """Return the roundings in the exponent for so many rooms: 100 and one a filled room."""
    return 100 + sum(n * filling for n, filling in zip(numbers, fillings, strict=True))


class CountGrid:
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
        self.roundings = next(n for n in CHARGES if n >= roundings(fillings, most))

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
            large = np.log(np.maximum(np.abs(1 + z), LOST_TO_UNDERFLOW))
            row.real = np.where(np.abs(z) < 0.5, small, large)  # noqa: PLR2004
            row.imag = np.arctan2(z.imag, 1 + z.real)
        return logs

    def _place(self, plus: int, minus: int) -> tuple[int, ...]:
        """Return the place of these counts on the grid, before the window's ends are known."""
        axes = zip(self._axes, self._shape, strict=True)
        return tuple((a * plus + b * minus) % size for (a, b), size in axes)

    def of(self, numbers: Sequence[int]) -> ItemCounts:
        """Return the distribution for these numbers of rooms, at most those of the axes."""
        (first, _), (second, _) = self._axes
        return ItemCounts(*self.probabilities(numbers), step=(first, second))

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
