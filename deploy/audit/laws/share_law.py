"""How far an estimated share may be off, from the law of single reports."""

import math
from dataclasses import dataclass

import numpy as np

from common.mechanisms.base import Mixture, Vector
from common.mechanisms.registry import mechanism_of
from common.task.task import Task
from deploy.audit.laws.support_law import support_law


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLaw:
    """Of one item's estimated share: a sum of independent parts, one a report."""

    deviation: float
    """Standard deviation of the sum."""
    step: float
    """The most by which one part is off its mean."""


def law_of_share(task: Task, item: int, truth: Vector, mixture: Mixture) -> ShareLaw:
    """
    Give the law.

    [n·f·κp(1-κp) + n(1-f)·κq(1-κq) + M·r(1-r) + Var z] / (nκ(p-q))² [WBLJ17]: f is the share of
    users who hold the item; p, q and r the chances that a report supports the item it holds,
    another and, as a dummy, any; κ that it is kept, and z what is added of the item by name. Shares
    of a square wave are sums over many places, and their deviation is the mechanism's own.

    Args:
        task: Under which users answered.
        item: Whose share.
        truth: Share of the users who hold each item.
        mixture: n users, M dummies, and what was added by name.
    """
    law = support_law(task)
    if law.far_only:
        return _of_places(task, item, truth, mixture)
    share = float(truth[item])
    own, other = mixture.kept * law.own, mixture.kept * law.other
    users, signal = mixture.n_real, mixture.n_real * mixture.kept * (law.own - law.other)
    variance = (
        users * share * own * (1 - own)
        + users * (1 - share) * other * (1 - other)
        + mixture.n_dummies * law.dummy * (1 - law.dummy)
        + mixture.item_variance
    )
    return ShareLaw(deviation=math.sqrt(variance) / signal, step=1 / signal)


def _of_places(task: Task, item: int, truth: Vector, mixture: Mixture) -> ShareLaw:
    mechanism, places = mechanism_of(task), task.item_mechanism.buckets
    steps = [float(mechanism.debias(row, mixture)[item]) for row in np.eye(places, dtype=np.int64)]
    deviation = float(np.sqrt(mechanism.variance(truth, mixture)[item]))
    return ShareLaw(deviation=deviation, step=max(steps) - min(steps))
