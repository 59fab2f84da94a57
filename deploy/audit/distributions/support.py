"""
Reference probabilities that reports support a value, and reference numbers of dummies.

Computed from ε by the papers' formulas, independently of the mechanisms' integer weights.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from common.mechanisms.base import Vector
from common.task.dummy_spec import RATIO_SUM, DummySpec, ShufflerSpec
from common.task.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportDistribution:
    """Probabilities that a value is supported by a report on it, by another report, by a dummy."""

    own: float
    other: float
    dummy: float
    independent: bool = False
    """Whether a report supports values independently; otherwise only one, unless `far_only`."""
    far_only: bool = False
    """Whether `other` applies only between the first and the last item."""


def support_distribution(task: Task) -> SupportDistribution:
    """Return a task's probabilities by [KBR16] (GRR), [LWLWLS20] (square wave) or [WBLJ17]."""
    power = math.exp(task.local_epsilon)
    name, size, buckets = task.mechanism.name, task.domain_size, task.item_mechanism.buckets
    if name in {"grr", "warner"}:
        return _response(power, size, other=None)
    if name in {"local-hashing", "string-hashing"}:
        return _response(power, buckets, other=1 / buckets)
    if name in {"symmetric-unary", "optimized-unary"}:
        own, other = 0.5, 1 / (power + 1)
        if name == "symmetric-unary":
            own, other = 1 / (1 + power**-0.5), 1 / (power**0.5 + 1)
        return SupportDistribution(own=own, other=other, dummy=other, independent=True)
    # Square wave: the `width` places around a value have weight e^ε each.
    places = max(size, buckets)
    width = places - size + 1
    total, shared = width * power + size - 1, max(0, 2 * width - places)
    far = (shared * power + (width - shared)) / total
    return SupportDistribution(
        own=width * power / total, other=far, dummy=width / places, far_only=True
    )


def _response(power: float, answers: int, *, other: float | None) -> SupportDistribution:
    """Return the probabilities of randomized response at e^ε = `power`, which may be infinite."""
    return SupportDistribution(
        own=1 / (1 + (answers - 1) / power),
        other=1 / (power + answers - 1) if other is None else other,
        dummy=1 / answers,
        independent=other is not None,
    )


def extra_dummies(spec: DummySpec) -> Vector:
    """Return the probabilities that a user adds 0, 1, … dummies beyond `per_user`."""
    if spec.law == "fixed":
        return np.ones(1)
    chance, most = spec.extra_weight / 2**32, max(spec.most, spec.trials)
    places = np.arange(most + 1)
    if spec.law == "negative-binomial":
        numbers = stats.nbinom.pmf(places, spec.trials, 1 - chance)
    else:
        numbers = stats.binom.pmf(places, spec.trials, chance)
    kept = (numbers * (places <= spec.most))[: spec.most + 1]
    return np.asarray(kept / kept.sum())


def added_dummies(spec: ShufflerSpec) -> Vector:
    """Return the probabilities that the shuffler adds 0, 1, …, `most` dummies of one item."""
    places = np.arange(spec.most + 1)
    if spec.law == "none":
        return np.ones(1)
    if spec.law == "binomial":
        return np.asarray(stats.binom.pmf(places, spec.trials, 0.5))
    steps = places - spec.peak
    left, right = spec.left_weight / RATIO_SUM, spec.right_weight / RATIO_SUM
    weights = np.where(steps < 0, left ** np.abs(steps), right ** np.abs(steps))
    return np.asarray(weights / weights.sum())
