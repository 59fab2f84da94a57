"""How many dummies users and the shuffler add: each law written from its name."""

import numpy as np
from scipy import stats

from common.mechanisms.base import Vector
from common.task.dummy_spec import DummySpec
from common.task.shuffler_spec import RATIO_SUM, ShufflerSpec


def law_of_extra(spec: DummySpec) -> Vector:
    """Give the probabilities of 0, 1, … dummies beyond `per_user`, as far as there may be any."""
    if spec.law == "fixed":
        return np.ones(1)
    chance, most = spec.extra_weight / 2**32, max(spec.most, spec.trials)
    places = np.arange(most + 1)
    if spec.law == "negative-binomial":
        law = stats.nbinom.pmf(places, spec.trials, 1 - chance)
    else:
        law = stats.binom.pmf(places, spec.trials, chance)
    kept = (law * (places <= spec.most))[: spec.most + 1]
    conditioned: Vector = kept / kept.sum()
    return conditioned


def law_of_added(spec: ShufflerSpec) -> Vector:
    """Give the probabilities of 0, 1, …, `most` dummies of one item by the shuffler."""
    places = np.arange(spec.most + 1)
    if spec.law == "none":
        return np.ones(1)
    if spec.law == "binomial":
        heads: Vector = stats.binom.pmf(places, spec.trials, 0.5)
        return heads
    steps = places - spec.peak
    left, right = spec.left_weight / RATIO_SUM, spec.right_weight / RATIO_SUM
    weights = np.where(steps < 0, left ** np.abs(steps), right ** np.abs(steps))
    flanks: Vector = weights / weights.sum()
    return flanks
