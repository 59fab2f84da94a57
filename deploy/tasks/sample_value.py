"""A value that somebody might give to a task: for test submissions, which nobody counts."""

import numpy as np

from common.messages.value import Value
from common.task.specs import KeyValueSpec, NumberSpec, RapporSpec, spec_as
from common.task.task import Task

_TEXT_BYTES = 8
_OWNED = 0.5
"""Chance that a key is owned."""


def any_value(task: Task, rng: np.random.Generator) -> Value:
    """
    Draw a value that the task takes: an item, a label or a text, or numbers of its range.

    Args:
        task: Of any kind.
        rng: Chooses it.
    """
    if task.kind == "categorical":
        return int(rng.integers(0, task.domain_size))
    if task.kind == "string":
        if task.labels:
            return task.labels[int(rng.integers(0, len(task.labels)))]
        most = spec_as(task.mechanism, RapporSpec).most_bytes
        return rng.bytes(_TEXT_BYTES // 2).hex()[:most]
    if task.kind == "key-value":
        pairs = spec_as(task.mechanism, KeyValueSpec)
        owned = np.flatnonzero(rng.random(task.domain_size) < _OWNED)
        numbers = rng.uniform(pairs.low, pairs.high, len(owned))
        return dict(zip(owned.tolist(), numbers.tolist(), strict=True))
    spec = spec_as(task.mechanism, NumberSpec)
    drawn = tuple(rng.uniform(spec.low, spec.high, task.domain_size).tolist())
    return drawn if task.kind == "vector" else drawn[0]
