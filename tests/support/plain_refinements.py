"""
What refinements must give, worked out plainly and apart from the code that is judged.

Projections are computed once more, by bisection, loops or a fine grid. Where a likelihood is
climbed there is no closed form: one plain step from where it ended must change nothing, and of a
few reports it must reach what many plain steps reach.
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
_SMALL: Final = 64
"""Items and cells up to which a likelihood is climbed once more, step by step."""
_FEW_REPORTS: Final = 50_000
_PLAIN_STEPS: Final = 2000
_MOVED: Final = 1e-3
"""χ² by which one more smoothed step may change the law of the reports."""


def is_right(refinement: Refinement, evidence: DebiasedShares, refined: Vector) -> bool:
    """
    Say whether refined shares are what the refinement's rule gives.

    Args:
        refinement: By name.
        evidence: What was refined, with a channel for "em" and "ems".
        refined: Shape (domain_size,).

    Cost: a few passes, two transforms for a likelihood.
    """
    if not _is_distribution(refined):
        return False
    if refinement in PROJECTIONS:
        expected = PROJECTIONS[refinement](evidence)
        return bool(np.allclose(refined, expected, rtol=0, atol=_CLOSE))
    if evidence.channel is None:
        return False
    if refinement == "em":
        return _climbed(evidence, evidence.channel, refined)
    return _at_rest(evidence.cells, evidence.channel, refined)


def _is_distribution(shares: Vector) -> bool:
    return bool((shares >= 0).all()) and abs(float(shares.sum()) - 1) < _CLOSE


def projected(shares: Vector) -> Vector:
    """Take the same off every share, and cut at 0, such that 1 is left; found by bisection."""
    low, high = float(shares.min()) - 1, float(shares.max())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if np.maximum(shares - middle, 0).sum() > 1:
            low = middle
        else:
            high = middle
    closest: Vector = np.maximum(shares - high, 0)
    return closest


def multiplied(shares: Vector) -> Vector:
    """Leave negative shares out, and multiply the others."""
    positive = np.maximum(shares, 0)
    if not positive.any():
        return projected(shares)
    scaled: Vector = positive / positive.sum()
    return scaled


def largest(shares: Vector) -> Vector:
    """Take the largest shares until they reach 1."""
    reached = 0.0
    for share in sorted(shares.tolist(), reverse=True):
        reached += max(share, 0.0)
        if reached >= 1:
            return multiplied(np.where(shares >= share, shares, 0.0))
    return multiplied(shares)


def outstanding(shares: Vector, absent_errors: Vector) -> Vector:
    """Keep what stands out from noise, and spread what is left evenly over the others."""
    reach = NormalDist().inv_cdf(1 - _FALSE_ALARM / len(shares))
    kept = shares >= reach * absent_errors
    left = 1 - float(shares[kept].sum())
    refined = np.zeros(len(shares))
    if kept.all() or left < 0:
        refined[kept] = projected(shares[kept])
    else:
        refined[kept], refined[~kept] = shares[kept], left / int((~kept).sum())
    return refined


def under_power_law(shares: Vector, errors: Vector, n_users: float) -> Vector:
    """Give the posterior means under a power law, on one fine grid for all, and project them."""
    size = len(shares)
    least = min(1 / n_users, 1 / (2 * size))
    nodes = np.geomspace(least, 1, _NODES)
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
    return projected((weights @ nodes) / weights.sum(axis=1))


PROJECTIONS: Final[Mapping[Refinement, Callable[[DebiasedShares], Vector]]] = MappingProxyType(
    {
        "norm-sub": lambda evidence: projected(evidence.shares),
        "norm-mul": lambda evidence: multiplied(evidence.shares),
        "norm-cut": lambda evidence: largest(evidence.shares),
        "base-cut": lambda evidence: outstanding(evidence.shares, evidence.absent_errors),
        "power-ns": lambda evidence: under_power_law(
            evidence.shares, evidence.standard_errors, evidence.n_users
        ),
    }
)
"""All that has a plain formula; cost of the last: a grid of 20,000 nodes for each share."""


def _plain_step(cells: Counts, channel: Channel, shares: Vector) -> Vector:
    """One step of expectation maximisation, without any leap."""
    law = channel.forward(shares)
    ratio = np.divide(cells, law, out=np.zeros(len(law)), where=cells > 0)
    moved = shares * channel.adjoint(ratio)
    step: Vector = moved / moved.sum()
    return step


def _likelihood(cells: Counts, channel: Channel, shares: Vector) -> float:
    seen = cells > 0
    with np.errstate(divide="ignore"):  # what cannot be has the likelihood 0
        return float(cells[seen] @ np.log(np.maximum(channel.forward(shares)[seen], 0)))


def _climbed(evidence: DebiasedShares, channel: Channel, refined: Vector) -> bool:
    """Say whether a likelihood was climbed as far as it goes."""
    cells, size = evidence.cells, len(refined)
    there = _likelihood(cells, channel, refined)
    if not np.isfinite(there):
        return False
    further = _likelihood(cells, channel, _plain_step(cells, channel, refined))
    flat = _likelihood(cells, channel, np.full(size, 1 / size))
    closest = _likelihood(cells, channel, projected(evidence.shares))
    rests = further - there < _LEFT and there >= flat - _CLOSE and there >= closest - _BELOW
    if size > _SMALL or len(cells) > _SMALL or cells.sum() > _FEW_REPORTS:
        return rests
    # The truth itself lies (size - 1)/2 below the top on average, by Wilks' theorem.
    return rests and there >= _plain_top(cells, channel, size) - (size - 1) / 2


def _plain_top(cells: Counts, channel: Channel, size: int) -> float:
    """Give the log-likelihood that many plain steps reach, from even shares."""
    shares = np.full(size, 1 / size)
    for _ in range(_PLAIN_STEPS):
        shares = _plain_step(cells, channel, shares)
    return _likelihood(cells, channel, shares)


def _at_rest(cells: Counts, channel: Channel, refined: Vector) -> bool:
    """Say whether a step and a smoothing, one after the other, change nothing that matters."""
    moved = _plain_step(cells, channel, refined)
    wide = np.pad(moved, 1, mode="edge")
    smoothed = (wide[:-2] + 2 * wide[1:-1] + wide[2:]) / 4
    change, law = channel.forward(smoothed - refined), channel.forward(refined)
    return float(cells.sum()) * float((change[law > 0] ** 2 / law[law > 0]).sum()) < _MOVED
