"""Reports that name a person's cell in each table of attributes, without noise."""

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from audit.families.family import Families, Family, ReportPart
from common.mechanisms.base import Reports, Vector
from common.mechanisms.tables import Tables
from common.messages.submission import Value
from common.task.spec_forms import spec_as
from common.task.view_specs import TableSpec
from deploy.tasks.value_parser import value_of_attributes
from user_agent.contribution import encoder_for

_UNUSED: Final = np.random.default_rng(0)
"""Encoding a value of attributes draws nothing."""


class CellPerTable(Family[Tables]):
    """True cells of each table, hidden by dummies alone."""

    def _value(self, numbers: Sequence[int]) -> str:
        return value_of_attributes(spec_as(self.task.mechanism, TableSpec).attributes, numbers)

    @property
    def worst_values(self) -> tuple[tuple[Value, Value], ...]:
        """The first and the last value of every attribute: no cell is the same."""
        sizes = self.mechanism.attribute_sizes
        return ((self._value([0] * len(sizes)), self._value([size - 1 for size in sizes])),)

    @property
    def usual_value(self) -> Value:
        """A value in the middle of every attribute."""
        return self._value([size // 2 for size in self.mechanism.attribute_sizes])

    @property
    def dummy_places(self) -> Vector:
        """All cells of one table are equally likely, by its share of all dummies."""
        views = self.mechanism.views
        each = [view.dummies.expected_per_user / view.size for view in views]
        return np.repeat(each, self.mechanism.sizes)

    def report_parts(self, value: Value, reports: Reports) -> Iterator[ReportPart]:
        """Yield each table's cell, relative to all of the table, in the order of a submission."""
        own = self.mechanism.encode(encoder_for(self.task, None)(value, _UNUSED), _UNUSED)[0]
        items = reports["item"].astype(np.int64).reshape(-1, len(own)) - self.mechanism.offsets[:-1]
        for cells, right, size in zip(items.T, own.tolist(), self.mechanism.sizes, strict=True):
            named = np.where((cells >= 0) & (cells < size), cells, size)  # at the end: none of it
            chances = (np.arange(size + 1) == right)[np.newaxis].astype(np.float64)
            yield ReportPart(name="cells", cells=named, chances=chances)

    def gain(self, table: int, n_users: int) -> float:
        """
        Return the users by which one more report on a cell of a table raises the cell's estimate.

        With Q = 1 - 1/r: the report's share Q·Q of what no margin explains, and of each margin the
        table's weight among all tables that have the attribute, by inverse variances.
        """
        mechanism = self.mechanism
        names, cells = mechanism.tables[table], mechanism.sizes[table]
        sizes = [mechanism.attribute_sizes[each] for each in names]
        gain = math.prod(1 - 1 / size for size in sizes) if len(names) > 1 else 0.0
        for name, size in zip(names, sizes, strict=True):
            precisions = {
                place: 1 / (view.size * view.item_variance(n_users))
                for place, view in enumerate(mechanism.views)
                if name in mechanism.tables[place]
            }
            weight = precisions[table] / math.fsum(precisions.values())
            gain += weight * (1 - 1 / size) * size / cells
        return gain


FAMILIES: Final[Families] = {Tables: CellPerTable}
