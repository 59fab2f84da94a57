"""
What refinements must give, worked out plainly and apart from the code that is judged.

Projections are computed once more, by bisection, loops or a fine grid. Where a likelihood is
climbed there is no closed form: one plain step from where it ended must change nothing.
"""

from collections.abc import Callable, Mapping
from statistics import NormalDist
from types import MappingProxyType
from typing import Final

import numpy as np
from scipy import optimize

from analyzer.estimation.histogram import DebiasedShares
from common.mechanisms.base import Channel, Counts, Vector
from common.protocols import Refinement

_CLOSE: Final = 1e-6
_HALVINGS: Final = 100
_FALSE_ALARM: Final = 0.05
"""Of Base-Cut, as its paper has it."""
_NODES: Final = 20_000
_LEFT: Final = 0.5
"""Log-likelihood that one more plain step may gain: EM stops where a whole cycle gains less."""
_BELOW: Final = 25.0
"""Log-likelihood by which EM may end below the projection: it stops before it fits noise. Three
times what it is below at two million users, where a uniform answer is a hundred thousand below."""
_MOVED: Final = 1e-3
"""χ² by which one more smoothed step may change the distribution of the reports."""


def is_right(refinement: Refinement, evidence: DebiasedShares, refined: Vector) -> bool:
    """
    Return whether refined shares are what the refinement's rule gives.

    Args:
        refinement: By name.
        evidence: What was refined, with a channel for "em" and "ems".
        refined: Shape (domain_size,).
    """
    if (refined < 0).any() or abs(float(refined.sum()) - 1) >= _CLOSE:
        return False
    if refinement in _PROJECTIONS:
        expected = _PROJECTIONS[refinement](evidence)
        return bool(np.allclose(refined, expected, rtol=0, atol=_CLOSE))
    assert evidence.channel is not None
    rests = _climbed if refinement == "em" else _at_rest
    return rests(evidence, evidence.channel, refined)


def _projected(shares: Vector) -> Vector:
    """Take the same off every share, and cut at 0, such that 1 is left; found by bisection."""
    high = float(shares.max())
    low = high - 1
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if np.maximum(shares - middle, 0).sum() > 1:
            low = middle
        else:
            high = middle
    closest: Vector = np.maximum(shares - high, 0)
    return closest


def _multiplied(shares: Vector) -> Vector:
    """Leave negative shares out, and multiply the others; project if there are none."""
    positive = np.maximum(shares, 0)
    if not positive.any():
        return _projected(shares)
    scaled: Vector = positive / positive.sum()
    return scaled


def _largest(shares: Vector) -> Vector:
    """Take the largest shares until they reach 1."""
    reached = 0.0
    for share in sorted(shares.tolist(), reverse=True):
        reached += max(share, 0.0)
        if reached >= 1:
            return _multiplied(np.where(shares >= share, shares, 0.0))
    return _multiplied(shares)


def _outstanding(shares: Vector, absent_errors: Vector) -> Vector:
    """Keep what stands out from noise, and spread what is left evenly over the others."""
    reach = NormalDist().inv_cdf(1 - _FALSE_ALARM / len(shares))
    kept = shares >= reach * absent_errors
    left = 1 - float(shares[kept].sum())
    if kept.all() or left < 0:
        return _projected(np.where(kept, shares, -np.inf))
    return np.where(kept, shares, left / int((~kept).sum()))


def _under_power_law(evidence: DebiasedShares) -> Vector:
    """Give the posterior means under a power law, on one fine grid for all, and project them."""
    shares, errors, size = evidence.shares, evidence.standard_errors, len(evidence.shares)
    nodes = np.geomspace(min(1 / evidence.n_users, 1 / (2 * size)), 1, _NODES)
    ends = np.ones(_NODES)
    ends[[0, -1]] = 0.5

    def mean(steepness: float) -> float:
        weights = ends * nodes ** (1 - steepness)  # a density times x, by its logarithm
        return float((weights * nodes).sum() / weights.sum())

    steepness = 0.0
    if mean(0.0) > 1 / size:
        steepness = optimize.brentq(lambda at: mean(at) - 1 / size, 0.0, 3.0)
    prior = (1 - steepness) * np.log(nodes)
    logs = prior - ((nodes - shares[:, None]) / errors[:, None]) ** 2 / 2
    weights = ends * np.exp(logs - logs.max(axis=1, keepdims=True))
    return _projected((weights @ nodes) / weights.sum(axis=1))


_PROJECTIONS: Final[Mapping[Refinement, Callable[[DebiasedShares], Vector]]] = MappingProxyType(
    {
        "norm-sub": lambda evidence: _projected(evidence.shares),
        "norm-mul": lambda evidence: _multiplied(evidence.shares),
        "norm-cut": lambda evidence: _largest(evidence.shares),
        "base-cut": lambda evidence: _outstanding(evidence.shares, evidence.absent_errors),
        "power-ns": _under_power_law,
    }
)


def _plain_step(cells: Counts, channel: Channel, shares: Vector) -> Vector:
    """One step of expectation maximisation, without any leap."""
    distribution = channel.forward(shares)
    ratio = np.divide(cells, distribution, out=np.zeros(len(distribution)), where=cells > 0)
    moved = shares * channel.adjoint(ratio)
    step: Vector = moved / moved.sum()
    return step


def _climbed(evidence: DebiasedShares, channel: Channel, refined: Vector) -> bool:
    """Return whether a likelihood was climbed as far as it goes."""
    cells = evidence.cells

    def likelihood(shares: Vector) -> float:
        return float(cells @ np.log(channel.forward(shares)))

    there, flat = likelihood(refined), likelihood(np.full(len(refined), 1 / len(refined)))
    further = likelihood(_plain_step(cells, channel, refined))
    closest = likelihood(_projected(evidence.shares))
    return further - there < _LEFT and there >= max(flat - _CLOSE, closest - _BELOW)


def _at_rest(evidence: DebiasedShares, channel: Channel, refined: Vector) -> bool:
    """Return whether a step and a smoothing, one after the other, change nothing that matters."""
    moved = _plain_step(evidence.cells, channel, refined)
    wide = np.pad(moved, 1, mode="edge")
    smoothed = (wide[:-2] + 2 * wide[1:-1] + wide[2:]) / 4
    change, distribution = channel.forward(smoothed - refined), channel.forward(refined)
    return float(evidence.cells.sum()) * float((change**2 / distribution).sum()) < _MOVED
