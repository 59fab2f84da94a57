"""
Expectation maximisation with smoothing, for items in an order [SJWN90], [LWLWLS20].

Smoothing after every step makes it another map than EM: it climbs no likelihood, and what it is
after is its fixed point. So neither EM's safeguard nor EM's stop is sound here; both are stated in
terms of the fixed point instead. Smoothing is what keeps the fixed point from fitting noise:
nothing is gained by stopping early.
"""

from typing import Final

import numpy as np

from analyzer.estimation.em import Likelihood
from analyzer.estimation.squarem import leap
from common.mechanisms.mechanism import Channel
from common.mechanisms.randomizer import Counts, Vector

UNNOTICED: Final = 1e-4
"""
Stop when what is still to come would change the law of the reports by less than this much χ²: a
hundredth of a standard deviation of the reports' own noise, in any direction.
"""

_MAX_CYCLES: Final = 2000
_TINY: Final = 1e-300


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
        landed = leap(shares, first, second)
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
