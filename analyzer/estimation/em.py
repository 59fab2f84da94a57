"""SQUAREM: a leap along two steps of a slow map towards where it is going [VR08]."""

from typing import Final

import numpy as np

from common.mechanisms.base import Channel, Counts, Vector

_TINY: Final = 1e-300
_LEAST: Final = 0.1
"""Share of the second image that a leap leaves of each item, before all is scaled back."""


def squarem_step(start: Vector, first: Vector, second: Vector) -> Vector:
    """
    Extrapolate from a distribution and its first and second image, by scheme S3 [VR08].

    Whoever leaps must check where it lands: a leap keeps no promise that the map makes.

    Args:
        start: A distribution, shape (domain_size,).
        first: The map's image of it.
        second: The map's image of that.

    Returns:
        A distribution: what would fall below a tenth of the second image is held there, and all
        is scaled back. A map that multiplies, as that of EM does, never raises a share from 0.
    """
    step, bend = first - start, second - 2 * first + start
    length = min(-1.0, -float(np.sqrt((step @ step) / max(float(bend @ bend), _TINY))))
    landed: Vector = np.maximum(start - 2 * length * step + length**2 * bend, _LEAST * second)
    landed /= landed.sum()
    return landed


MIN_GAIN: Final = 0.5
"""
Stop when a cycle raises the log-likelihood by less than this. Fitting one parameter that is pure
noise raises it by 1/2 on average (Wilks), so a smaller gain is no evidence of signal; going on to
the maximum would fit noise.
"""

_MAX_CYCLES: Final = 2000
"""Stands for a probability of 0 where nothing was reported, so that 0/0 is 0."""


def maximise_likelihood(
    cells: Counts, channel: Channel, domain_size: int, *, min_gain: float = MIN_GAIN
) -> Vector:
    """
    Estimate the distribution of items from counts by cell. Run by the analyzer.

    A leap stands only if it climbs at least as high as one plain step: so a cycle that gains little
    is one in which plain steps gain little too.

    One EM step is θ_v ← θ_v · Σ_c A[c, v]·(n_c / n) / (Aθ)_c, with A the exact channel, dummies
    included [DLR77].

    Args:
        cells: Reports by cell, shape (cells,).
        channel: The law of a report.
        domain_size: Number of items.
        min_gain: When to stop.

    Returns:
        Shares, at least 0 with sum 1, reached from a uniform start by a likelihood that never
        fell on the way.

    Cost: two transforms of the mechanism a step, some 50 to 150 steps.
    """
    if cells.sum() == 0:
        return np.full(domain_size, 1 / domain_size)
    likelihood = Likelihood(cells, channel)
    shares = np.full(domain_size, 1 / domain_size)
    reached = -np.inf
    for _ in range(_MAX_CYCLES):
        first, value = likelihood.step(shares)
        if value - reached < min_gain:
            break
        reached = value
        second, stepped = likelihood.step(first)
        landed, leapt = likelihood.step(squarem_step(shares, first, second))
        shares = landed if leapt >= stepped else second
    return shares


class Likelihood:
    """The likelihood of the cells, with its EM map [DLR77]."""

    def __init__(self, cells: Counts, channel: Channel) -> None:
        self._cells = cells.astype(np.float64)
        self._channel = channel

    def step(self, shares: Vector) -> tuple[Vector, float]:
        """
        One EM step from `shares`, and the log-likelihood **at** `shares`.

        Without noise and dummies a share of 0 can make impossible what was reported: its likelihood
        is 0, and there is no step from there.
        """
        law = np.maximum(self._channel.forward(shares), _TINY)
        if np.any(self._cells[law <= _TINY]):
            return shares, -np.inf
        moved = np.maximum(shares * self._channel.adjoint(self._cells / law), 0)
        return moved / max(float(moved.sum()), _TINY), float(self._cells @ np.log(law))


UNNOTICED: Final = 1e-4
"""
Stop when what is still to come would change the law of the reports by less than this much χ²: a
hundredth of a standard deviation of the reports' own noise, in any direction.
"""


def smoothed_likelihood(
    cells: Counts, channel: Channel, domain_size: int, *, unnoticed: float = UNNOTICED
) -> Vector:
    """
    Estimate a smooth distribution of ordered items from counts by cell. Run by the analyzer.

    One step is an EM step, then `smooth`. Two steps and a leap along them [VR08] make a cycle; the
    leap stands only if the step from where it lands is no longer than the second step was, so that
    no leap leads further from a fixed point than the plain steps. The steps' lengths also say how
    much is still to come: the last step times the leap's length, as of a geometric series.

    Args:
        cells: Reports by cell, shape (cells,).
        channel: The law of a report.
        domain_size: Number of items.
        unnoticed: When to stop.

    Returns:
        Shares, at least 0 with sum 1.

    Cost: two transforms of the mechanism a step, some 50 to 350 steps; plain steps would take
    up to thousands.
    """
    shares = np.full(domain_size, 1 / domain_size)
    n_reports = int(cells.sum())
    if n_reports == 0:
        return shares
    likelihood = Likelihood(cells, channel)

    def step(start: Vector) -> Vector:
        moved, _ = likelihood.step(start)
        return smooth(moved)

    for _ in range(_MAX_CYCLES):
        first = step(shares)
        second = step(first)
        last = second - first
        bend = last - (first - shares)
        stretch = max(1.0, _length(first - shares) / max(_length(bend), _TINY))
        to_come = channel.forward(stretch * last)
        law = np.maximum(channel.forward(second), _TINY)
        if n_reports * float((to_come / law) @ to_come) < unnoticed:
            return second
        landed = squarem_step(shares, first, second)
        image = step(landed)
        shares = image if _length(image - landed) <= _length(last) else second
    return shares


def smooth(shares: Vector) -> Vector:
    """
    Average each share with its neighbours by (1, 2, 1) / 4, each end with itself reflected.

    The ends count themselves as their missing neighbours, so that nothing is lost: each share is
    given away whole, and a uniform distribution stays uniform.
    """
    beyond = np.concatenate([shares[:1], shares, shares[-1:]])
    smoothed: Vector = (beyond[:-2] + 2 * beyond[1:-1] + beyond[2:]) / 4
    return smoothed


def _length(vector: Vector) -> float:
    return float(np.sqrt(vector @ vector))
