"""Random valid values, for sentinels and load runs."""

import numpy as np

from common.messages.value import Value
from common.task.specs import KeyValueSpec, NumberSpec, RapporSpec, spec_as
from common.task.task import Task

_TEXT_BYTES = 4
"""Random bytes of a text, two hexadecimal digits each."""


def sample_value(task: Task, rng: np.random.Generator) -> Value:
    """Draw a value that the task accepts: an item, a text, or numbers in its range."""
    if task.kind == "categorical":
        return int(rng.integers(0, task.domain_size))
    if task.kind == "string":
        if task.labels:
            return task.labels[int(rng.integers(0, len(task.labels)))]
        return rng.bytes(_TEXT_BYTES).hex()[: spec_as(task.mechanism, RapporSpec).most_bytes]
    if task.kind == "key-value":
        pairs = spec_as(task.mechanism, KeyValueSpec)
        owned = np.flatnonzero(rng.integers(0, 2, task.domain_size))
        numbers = rng.uniform(pairs.low, pairs.high, len(owned))
        return dict(zip(owned.tolist(), numbers.tolist(), strict=True))
    spec = spec_as(task.mechanism, NumberSpec)
    drawn = tuple(rng.uniform(spec.low, spec.high, task.domain_size).tolist())
    return drawn if task.kind == "vector" else drawn[0]
