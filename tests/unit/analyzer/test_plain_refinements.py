"""The analyzer's refinements against plain formulas; a slightly wrong share does not pass."""

from statistics import NormalDist
from typing import Final, get_args

import numpy as np
import pytest
from scipy import optimize

from analyzer.estimation.histogram import DebiasedShares, gather, refine
from analyzer.finalize import mixture_of
from common.mechanisms.base import Channel, Counts, Vector
from common.mechanisms.registry import mechanism_of
from common.protocols import Refinement
from deploy.audit.harness.tasks import sample_task
from deploy.simulate.collection import count

_CLOSE: Final = 1e-6
_HALVINGS: Final = 100
_FALSE_ALARM: Final = 0.05
"""Of Base-Cut, as its paper has it."""
_NODES: Final = 20_000
_MAX_GAIN: Final = 0.5
"""Log-likelihood that one more plain step may gain: EM stops where a whole cycle gains less."""
_MAX_BELOW: Final = 25.0
"""Log-likelihood by which EM may end below the projection: it stops before it fits noise."""
_MAX_CHANGE: Final = 1e-3
"""χ² by which one more smoothed step may change the distribution of the reports."""


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


def plainly(way: Refinement, evidence: DebiasedShares) -> Vector:
    """Refine by a plain formula."""
    if way == "norm-sub":
        return projected(evidence.shares)
    if way == "norm-mul":
        return multiplied(evidence.shares)
    if way == "norm-cut":
        return largest(evidence.shares)
    if way == "base-cut":
        return outstanding(evidence.shares, evidence.absent_errors)
    return under_power_law(evidence.shares, evidence.standard_errors, evidence.n_users)


def _plain_step(cells: Counts, channel: Channel, shares: Vector) -> Vector:
    """One step of expectation maximisation, without any leap."""
    law = channel.forward(shares)
    ratio = np.divide(cells, law, out=np.zeros(len(law)), where=cells > 0)
    moved = shares * channel.adjoint(ratio)
    step: Vector = moved / moved.sum()
    return step


def _likelihood(cells: Counts, channel: Channel, shares: Vector) -> float:
    return float(cells @ np.log(channel.forward(shares)))


def at_rest(cells: Counts, channel: Channel, refined: Vector) -> bool:
    """Check that a step and a smoothing change nothing that matters."""
    moved = _plain_step(cells, channel, refined)
    wide = np.pad(moved, 1, mode="edge")
    smoothed = (wide[:-2] + 2 * wide[1:-1] + wide[2:]) / 4
    change, law = channel.forward(smoothed - refined), channel.forward(refined)
    return float(cells.sum()) * float((change[law > 0] ** 2 / law[law > 0]).sum()) < _MAX_CHANGE


def is_right(way: Refinement, evidence: DebiasedShares, refined: Vector) -> bool:
    """
    Check refined shares by the refinement's rule.

    A likelihood has no closed form: one plain step from where it ended must gain next to nothing,
    and it must be about as likely as the projection.
    """
    channel, cells = evidence.channel, evidence.cells
    assert channel is not None
    if way == "ems":
        return at_rest(cells, channel, refined)
    if way != "em":
        return bool(np.allclose(refined, plainly(way, evidence), rtol=0, atol=_CLOSE))
    reached = _likelihood(cells, channel, refined)
    gain = _likelihood(cells, channel, _plain_step(cells, channel, refined)) - reached
    closest = _likelihood(cells, channel, projected(evidence.shares))
    return gain < _MAX_GAIN and reached >= closest - _MAX_BELOW


@pytest.mark.slow
@pytest.mark.parametrize("way", get_args(Refinement))
def test_a_refinement_is_right_and_one_that_is_three_percent_uniform_is_not(
    way: Refinement,
) -> None:
    """Of a million users, most of whom hold one value."""
    task = sample_task(protocol="murs", domain_size=12, local_epsilon=1.5, buckets=5)
    mechanism, rng = mechanism_of(task), np.random.default_rng(1)
    users = np.array([700_000, *[0] * 10, 300_000])
    counted = count(task, mechanism, users, rng, one_by_one=False)
    mixture = mixture_of(task, 1_000_000, counted=counted.n_reports)
    evidence = gather(mechanism, counted.cells, mixture)
    refined = refine(evidence, way)

    assert is_right(way, evidence, refined)
    assert not is_right(way, evidence, 0.97 * refined + 0.03 / 12)
    assert not is_right(way, evidence, np.full(12, 1 / 12))
