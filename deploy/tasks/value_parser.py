"""Parse values from text with errors that never contain them, and draw random valid values."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from common.errors import UsageError, ValueRangeError
from common.messages.submission import Value, parse_number
from common.protocols import Kind
from common.task.domain_spec import GROUP_SEPARATOR, BreakdownSpec
from common.task.specs import KeyValueSpec, NumberSpec, OpenSpec, RapporSpec, spec_as
from common.task.task import Task


def parse_breakdown(text: str) -> BreakdownSpec:
    """Parse an attribute and its values, such as `country=DE,FR`; raise UsageError if absent."""
    attribute, separator, groups = text.partition("=")
    if not separator:
        raise UsageError("a breakdown is an attribute and its values, such as country=DE,FR")
    return BreakdownSpec(
        attribute=attribute.strip(), groups=tuple(group.strip() for group in groups.split(","))
    )


def parse_range(text: str) -> tuple[float, float]:
    """Parse a range such as 18:65 or 620 to 1,250; raise UsageError if it is none."""
    low, _, high = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text).replace(" to ", ":").partition(":")
    try:
        return parse_number(low, ""), parse_number(high, "")
    except ValueRangeError as error:
        raise UsageError("a range is two numbers, such as 18:65") from error


def value_of(task: Task, item: int) -> Value:
    """Return a value that devices encode as this item: for ordered buckets, the middle of one."""
    if task.edges is None:
        return item
    group, bucket = divmod(item, task.edges.size)
    number = float(task.edges.edges[bucket : bucket + 2].mean())
    if task.breakdown is None:
        return number
    return f"{task.breakdown.groups[group]}{GROUP_SEPARATOR}{number!r}"


def sample_value(task: Task, rng: np.random.Generator) -> Value:
    """Draw a random value that the task accepts, for sentinels and load runs."""
    return _SAMPLES[task.kind](task, rng)


def _item(task: Task, rng: np.random.Generator) -> Value:
    return value_of(task, int(rng.integers(0, task.domain_size)))


def _text(task: Task, rng: np.random.Generator) -> str:
    if task.labels:
        return task.labels[int(rng.integers(0, len(task.labels)))]
    return rng.bytes(4).hex()[: spec_as(task.mechanism, RapporSpec).most_bytes]


def _open_value(task: Task, rng: np.random.Generator) -> str:
    """Draw digits, which are a text and a code."""
    return str(rng.integers(0, 2**32))[: spec_as(task.mechanism, OpenSpec).most_value_bytes]


def _pairs(task: Task, rng: np.random.Generator) -> dict[int, float]:
    pairs = spec_as(task.mechanism, KeyValueSpec)
    owned = np.flatnonzero(rng.integers(0, 2, task.domain_size))
    numbers = rng.uniform(pairs.low, pairs.high, len(owned))
    return dict(zip(owned.tolist(), numbers.tolist(), strict=True))


def _numbers(task: Task, rng: np.random.Generator) -> tuple[float, ...]:
    spec = spec_as(task.mechanism, NumberSpec)
    return tuple(rng.uniform(spec.low, spec.high, task.domain_size).tolist())


_SAMPLES: Final[Mapping[Kind, Callable[[Task, np.random.Generator], Value]]] = {
    "categorical": _item,
    "ordered": _item,
    "string": _text,
    "open": _open_value,
    "mean": lambda task, rng: _numbers(task, rng)[0],
    "vector": _numbers,
    "key-value": _pairs,
}
