"""Values to test a task with: usual ones, and pairs that are most easily told apart."""

import itertools
from typing import Final

import numpy as np

from common.mechanisms.numeric.multi_rphm import projection
from common.messages.value import Value
from common.task.specs import KeyValueSpec, NumberSpec, RapporSpec, spec_as
from common.task.task import Task
from deploy.audit.laws.value_reports import set_bits

USUAL: Final = (-0.73, 0.31)
"""Numbers in -1 .. 1 that lie on no grid, unlike the ends and the middle."""
_CANDIDATES: Final = 24
"""Texts of which two are chosen that share the fewest bits."""


def usual_values(task: Task) -> tuple[Value, Value]:
    """Return valid values of two users."""
    if task.kind == "string":
        one, other = worst_values(task)[0]
        return one, other
    if task.kind == "key-value":
        low, high = _range(task)
        some = {0: _at(USUAL[1], low, high), task.domain_size - 1: _at(USUAL[0], low, high)}
        return some, {0: _at(USUAL[0], low, high)}
    low, high = _range(task)
    one, other = (
        tuple(_at(USUAL[(turn + place) % 2], low, high) for place in range(task.domain_size))
        for turn in (0, 1)
    )
    return (one[0], other[0]) if task.kind == "mean" else (one, other)


def worst_values(task: Task) -> tuple[tuple[Value, Value], ...]:
    """Return pairs of values that no other pair is more easily told apart than."""
    if task.kind == "categorical":
        return ((0, task.domain_size - 1),)
    if task.kind == "string":
        return (_far_texts(task),)
    low, high = _range(task)
    if task.kind == "mean":
        return ((high, low),)
    if task.kind == "key-value":
        keys = range(task.domain_size)
        everything, least = dict.fromkeys(keys, high), dict.fromkeys(keys, low)
        return ((everything, {}), (everything, least), (least, {}))
    up = np.ones(task.domain_size, dtype=bool)
    spec = spec_as(task.mechanism, NumberSpec)
    if spec.projected:
        up = projection(task.nonce, task.domain_size, spec.projected)[:, 0] > 0
    return ((tuple(np.where(up, high, low).tolist()), tuple(np.where(up, low, high).tolist())),)


def _range(task: Task) -> tuple[float, float]:
    if task.kind == "key-value":
        pairs = spec_as(task.mechanism, KeyValueSpec)
        return pairs.low, pairs.high
    numbers = spec_as(task.mechanism, NumberSpec)
    return numbers.low, numbers.high


def _at(number: float, low: float, high: float) -> float:
    return low + (number + 1) / 2 * (high - low)


def _far_texts(task: Task) -> tuple[str, str]:
    """Choose two texts, labels or made up, that share the fewest bits in all cohorts."""
    spec = spec_as(task.mechanism, RapporSpec)
    texts = task.labels[:_CANDIDATES] or tuple(f"t{number}" for number in range(_CANDIDATES))
    bits = {text: set_bits(spec, task.labels, text) for text in texts}
    pairs = itertools.combinations(texts, 2)
    return max(pairs, key=lambda pair: int((bits[pair[0]] != bits[pair[1]]).sum()))
