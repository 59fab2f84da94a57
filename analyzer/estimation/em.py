"""Expectation maximisation on the exact channel, accelerated by SQUAREM [VR08]."""

from typing import Final

import numpy as np

from common.mechanisms.base import Channel, Counts, Vector

_TINY: Final = 1e-300
"""Replaces a probability of 0 where nothing was reported, so that 0/0 is 0."""
_FLOOR: Final = 0.1
"""Least share of the second image that an extrapolation keeps of each item, before scaling."""
_MAX_CYCLES: Final = 2000


def squarem_step(start: Vector, first: Vector, second: Vector) -> Vector:
    """
    Extrapolate from a distribution and its first and second image, by scheme S3 [VR08].

    The caller must check the result: extrapolation keeps no property of the map, such as monotone
    likelihood.

    Args:
        start: A distribution, shape (domain_size,).
        first: The map's image of `start`.
        second: The map's image of `first`.

    Returns:
        A distribution, shape (domain_size,): shares are at least a tenth of the second image, then
        scaled to sum 1. The bound keeps shares above 0, from where a multiplicative map such as
        EM's could not raise them.
    """
    step, bend = first - start, second - 2 * first + start
    length = min(-1.0, -float(np.sqrt((step @ step) / max(float(bend @ bend), _TINY))))
    leap: Vector = np.maximum(start - 2 * length * step + length**2 * bend, _FLOOR * second)
    leap /= leap.sum()
    return leap


MIN_GAIN: Final = 0.5
"""
Stop when a cycle raises the log-likelihood by less than this. Fitting one parameter that is pure
noise raises it by 1/2 on average (Wilks), so a smaller gain is no evidence of signal; going on to
the maximum would fit noise.
"""


def maximise_likelihood(
    cells: Counts, channel: Channel, domain_size: int, *, min_gain: float = MIN_GAIN
) -> Vector:
    """
    Estimate the distribution of items from counts by cell. Run by the analyzer.

    An extrapolation is accepted only if its likelihood is at least that of one plain step: so a
    cycle gains little only if plain steps gain little too.

    One EM step is θ_v ← θ_v · Σ_c A[c, v]·(n_c / n) / (Aθ)_c, with A the exact channel, dummies
    included [DLR77].

    Args:
        cells: Reports by cell, shape (cells,).
        channel: The distribution of a report given its item.
        domain_size: Number of items.
        min_gain: Stop when a cycle gains less log-likelihood.

    Returns:
        Shares of shape (domain_size,), at least 0 with sum 1, reached from a uniform start by
        steps that never lower the likelihood.

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
        leap, leapt = likelihood.step(squarem_step(shares, first, second))
        shares = leap if leapt >= stepped else second
    return shares


class Likelihood:
    """The likelihood of the cells, and its EM map [DLR77]."""

    def __init__(self, cells: Counts, channel: Channel) -> None:
        self._cells = cells.astype(np.float64)
        self._channel = channel

    def step(self, shares: Vector) -> tuple[Vector, float]:
        """
        Return one EM step from `shares`, and the log-likelihood **at** `shares`.

        Without noise and dummies a share of 0 can make reports impossible: the likelihood is then
        0, and `shares` is returned unchanged.
        """
        law = np.maximum(self._channel.forward(shares), _TINY)
        if np.any(self._cells[law <= _TINY]):
            return shares, -np.inf
        moved = np.maximum(shares * self._channel.adjoint(self._cells / law), 0)
        return moved / max(float(moved.sum()), _TINY), float(self._cells @ np.log(law))


MIN_CHANGE: Final = 1e-4
"""
Stop when the remaining steps would change the reports' distribution by less χ² than this: a
hundredth of a standard deviation of the reports' own noise, in any direction.
"""


def smoothed_likelihood(
    cells: Counts, channel: Channel, domain_size: int, *, min_change: float = MIN_CHANGE
) -> Vector:
    """
    Estimate a smooth distribution of ordered items from counts by cell. Run by the analyzer.

    One step is an EM step, then `smooth`. Two steps and an extrapolation along them [VR08] make a
    cycle; the extrapolation is accepted only if the next step is no longer than the second step
    was, so that it leads no further from a fixed point than plain steps. The steps' lengths also
    estimate the remaining change, as that of a geometric series.

    Args:
        cells: Reports by cell, shape (cells,).
        channel: The distribution of a report given its item.
        domain_size: Number of items.
        min_change: Stop when less change remains, in χ².

    Returns:
        Shares of shape (domain_size,), at least 0 with sum 1.

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
        remaining = channel.forward(stretch * last)
        law = np.maximum(channel.forward(second), _TINY)
        if n_reports * float((remaining / law) @ remaining) < min_change:
            return second
        leap = squarem_step(shares, first, second)
        image = step(leap)
        shares = image if _length(image - leap) <= _length(last) else second
    return shares


def smooth(shares: Vector) -> Vector:
    """
    Average each share with its neighbours by (1, 2, 1) / 4, each end with itself reflected.

    Reflecting the ends keeps the sum, and a uniform distribution stays uniform.

    Args:
        shares: Shape (domain_size,).
    """
    beyond = np.concatenate([shares[:1], shares, shares[-1:]])
    smoothed: Vector = (beyond[:-2] + 2 * beyond[1:-1] + beyond[2:]) / 4
    return smoothed


def _length(vector: Vector) -> float:
    return float(np.sqrt(vector @ vector))
