"""Values of several attributes: people with them, and the true counts of their tables."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from shuffledp.common.mechanisms.base import Counts
from shuffledp.common.task.domain_spec import GROUP_SEPARATOR, AttributeSpec
from shuffledp.common.task.view_specs import TableSpec
from shuffledp.deploy.datasets.files import value_order

Numbers = NDArray[np.int64]
"""The number of the value of every attribute, for each of several people; (people, attributes)."""
_COMMON: Final = 0.6
"""Correlation of the number behind an attribute with the one behind all of a person's."""
_FLAT: Final = 4.0
"""Value i of an attribute has a share proportional to 1 / (i + _FLAT)."""


def draw_numbers(sizes: Sequence[int], n_users: int, rng: np.random.Generator) -> Numbers:
    """Draw people whose attributes, of these numbers of values, depend on a common normal one."""
    common, spread = rng.standard_normal(n_users), (1 - _COMMON**2) ** 0.5
    columns = []
    for size in sizes:
        behind = _COMMON * common + spread * rng.standard_normal(n_users)
        below = np.cumsum(1 / (np.arange(size) + _FLAT))
        columns.append(np.searchsorted(special.ndtri(below[:-1] / below[-1]), behind))
    return np.stack(columns, axis=1)


def cell_counts(numbers: Numbers, spec: TableSpec, people: Counts | None = None) -> Counts:
    """Count people, as many of each kind as `people` says or one, by cell, table by table."""
    counts = [
        np.bincount(np.ravel_multi_index(tuple(numbers[:, table].T), shape), people, minlength=size)
        for table, shape, size in zip(spec.tables, spec.shapes, spec.view_sizes(), strict=True)
    ]
    return np.concatenate(counts).astype(np.int64)


def attributes_of(
    values: Sequence[str], names: Sequence[str]
) -> tuple[tuple[AttributeSpec, ...], Numbers]:
    """Return attributes with all values that occur, and the numbers of each value's parts."""
    columns = [*zip(*(value.split(GROUP_SEPARATOR) for value in values), strict=True)]
    attributes = tuple(
        AttributeSpec(name=name, labels=tuple(sorted({*column}, key=value_order)))
        for name, column in zip(names, columns, strict=True)
    )
    places = [{label: at for at, label in enumerate(each.labels)} for each in attributes]
    numbers = [[at[part] for part in column] for at, column in zip(places, columns, strict=True)]
    return attributes, np.array(numbers, dtype=np.int64).T
