"""
Expectation maximisation on the exact channel, accelerated, with a stop that needs no truth.

Plain EM takes thousands of steps; SQUAREM [VR08] extrapolates from two steps at a time.
"""

from typing import Final

import numpy as np

from analyzer.estimation.squarem import leap
from common.mechanisms.mechanism import Channel
from common.mechanisms.randomizer import Counts, Vector

MIN_GAIN: Final = 0.5
"""
Stop when a cycle raises the log-likelihood by less than this. Fitting one parameter that is pure
noise raises it by 1/2 on average (Wilks), so a smaller gain is no evidence of signal; going on to
the maximum would fit noise.
"""

_MAX_CYCLES: Final = 2000
_TINY: Final = 1e-300
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
        landed, leapt = likelihood.step(leap(shares, first, second))
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
