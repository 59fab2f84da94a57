"""
Checks of refinements that share no code with them.

Projections are recomputed by bisection, loops or a fine grid. EM and EMS have no closed form: one
plain step from their result must change nothing that matters.
"""

from collections.abc import Callable, Mapping
from statistics import NormalDist
from types import MappingProxyType
from typing import Final

import numpy as np
from scipy import optimize

from shuffledp.analyzer.estimation.histogram import DebiasedShares
from shuffledp.common.mechanisms.base import Channel, Counts, Vector
from shuffledp.common.protocols import Refinement

_CLOSE: Final = 1e-6
_HALVINGS: Final = 100
_SIGNIFICANCE: Final = 0.05
"""Significance level of Base-Cut, as in its paper."""
_NODES: Final = 20_000
_LEFT: Final = 0.5
"""Maximum gain of log-likelihood by one more plain step: EM stops where a cycle gains less."""
_BELOW: Final = 25.0
"""Maximum log-likelihood by which EM may end below the projection, since it stops before it fits
noise: three times the shortfall at two million users; a uniform answer's is a hundred thousand."""
_MOVED: Final = 1e-3
"""Maximum change of the reports' distribution by one more smoothed step, in χ²."""


def is_right(refinement: Refinement, evidence: DebiasedShares, refined: Vector) -> bool:
    """
    Return whether refined shares satisfy the refinement's rule.

    Args:
        refinement: Its name.
        evidence: The refinement's input, with a channel for "em" and "ems".
        refined: Shape (domain_size,).
    """
    if (refined < 0).any() or abs(float(refined.sum()) - 1) >= _CLOSE:
        return False
    if refinement in _PROJECTIONS:
        expected = _PROJECTIONS[refinement](evidence)
        return bool(np.allclose(refined, expected, rtol=0, atol=_CLOSE))
    assert evidence.channel is not None
    converged = _em_converged if refinement == "em" else _ems_converged
    return converged(evidence, evidence.channel, refined)


def _norm_sub(shares: Vector) -> Vector:
    """Subtract from every share the constant, found by bisection, that leaves 1 above 0."""
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


def _norm_mul(shares: Vector) -> Vector:
    """Scale the positive shares to sum 1; project if there are none."""
    positive = np.maximum(shares, 0)
    if not positive.any():
        return _norm_sub(shares)
    scaled: Vector = positive / positive.sum()
    return scaled


def _norm_cut(shares: Vector) -> Vector:
    """Take the largest shares until they reach 1."""
    reached = 0.0
    for share in sorted(shares.tolist(), reverse=True):
        reached += max(share, 0.0)
        if reached >= 1:
            return _norm_mul(np.where(shares >= share, shares, 0.0))
    return _norm_mul(shares)


def _base_cut(shares: Vector, absent_errors: Vector) -> Vector:
    """Keep significant shares, and spread the rest of 1 evenly over the others."""
    reach = NormalDist().inv_cdf(1 - _SIGNIFICANCE / len(shares))
    kept = shares >= reach * absent_errors
    left = 1 - float(shares[kept].sum())
    if kept.all() or left < 0:
        return _norm_sub(np.where(kept, shares, -np.inf))
    return np.where(kept, shares, left / int((~kept).sum()))


def _power_ns(evidence: DebiasedShares) -> Vector:
    """Project the posterior means under a power law, computed on one fine grid for all."""
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
    return _norm_sub((weights @ nodes) / weights.sum(axis=1))


_PROJECTIONS: Final[Mapping[Refinement, Callable[[DebiasedShares], Vector]]] = MappingProxyType(
    {
        "norm-sub": lambda evidence: _norm_sub(evidence.shares),
        "norm-mul": lambda evidence: _norm_mul(evidence.shares),
        "norm-cut": lambda evidence: _norm_cut(evidence.shares),
        "base-cut": lambda evidence: _base_cut(evidence.shares, evidence.absent_errors),
        "power-ns": _power_ns,
    }
)


def _plain_step(cells: Counts, channel: Channel, shares: Vector) -> Vector:
    """Return one EM step, without extrapolation."""
    distribution = channel.forward(shares)
    ratio = np.divide(cells, distribution, out=np.zeros(len(distribution)), where=cells > 0)
    moved = shares * channel.adjoint(ratio)
    step: Vector = moved / moved.sum()
    return step


def _em_converged(evidence: DebiasedShares, channel: Channel, refined: Vector) -> bool:
    """Return whether EM stopped near the maximum likelihood, and not before it fits the data."""
    cells = evidence.cells

    def likelihood(shares: Vector) -> float:
        return float(cells @ np.log(channel.forward(shares)))

    there, flat = likelihood(refined), likelihood(np.full(len(refined), 1 / len(refined)))
    further = likelihood(_plain_step(cells, channel, refined))
    closest = likelihood(_norm_sub(evidence.shares))
    return further - there < _LEFT and there >= max(flat - _CLOSE, closest - _BELOW)


def _ems_converged(evidence: DebiasedShares, channel: Channel, refined: Vector) -> bool:
    """Return whether one more EM step and smoothing hardly change the reports' distribution."""
    moved = _plain_step(evidence.cells, channel, refined)
    wide = np.pad(moved, 1, mode="edge")
    smoothed = (wide[:-2] + 2 * wide[1:-1] + wide[2:]) / 4
    change, distribution = channel.forward(smoothed - refined), channel.forward(refined)
    return float(evidence.cells.sum()) * float((change**2 / distribution).sum()) < _MOVED
