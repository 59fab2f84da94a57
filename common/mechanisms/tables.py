"""
Tables of one or two attributes: the protocols `tables` and `geo-tables`.

A user reports the true cell of every table; dummies of each table, from users or from shufflers,
hide the cells. The tables are separate histograms, whose privacy losses compose. The estimate is
the least-squares one that agrees with all of them and with the number of users. With the variance v
of a table's counts, that of an average margin V, and Q = 1 - 1/r for r values, for attributes a, b

    Var margin a = V_a·Q_a,    Var cell = V_a·Q_a/r_b² + V_b·Q_b/r_a² + v·Q_a·Q_b

From no paper; docs/theory/estimation.md derives them, and tests compare them with a projection that
knows no form of the tables.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import combinations
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import TaskError
from shuffledp.common.mechanisms.arguments import checked_array
from shuffledp.common.mechanisms.base import Counts, Vector, check_report_bytes, check_value
from shuffledp.common.mechanisms.count_law import interval_table
from shuffledp.common.mechanisms.views import View, ViewMechanism
from shuffledp.common.messages.result import MISSES, IntervalTable, ShareTable, ShareTables
from shuffledp.common.task.draft import TableDraft
from shuffledp.common.task.spec_forms import spec_as
from shuffledp.common.task.task import Task
from shuffledp.common.task.view_specs import TableSpec


@dataclass(frozen=True)
class Tables(ViewMechanism):
    """True cells of each table: the views are the tables, in the task's order."""

    attribute_sizes: tuple[int, ...]
    """Number of values of each attribute."""
    tables: tuple[tuple[int, ...], ...]
    """The attributes of each table by number, ascending: one or two."""

    @classmethod
    def specify(cls, form: TableDraft) -> TableSpec:
        """Return the tables that a draft asks for; raise TaskError for a name of no attribute."""
        numbers = {each.name: number for number, each in enumerate(form.attributes)}
        if unknown := {name for names in form.tables for name in names} - numbers.keys():
            known = ", ".join(numbers)
            raise TaskError(f"a table is of {min(unknown)}; the attributes are {known}")
        wanted = [tuple(sorted(numbers[name] for name in names)) for names in form.tables]
        wanted = wanted or [*combinations(range(len(numbers)), 2)]
        wanted += [(number,) for number in numbers.values() if form.margins]
        return TableSpec(
            name="tables",
            attributes=form.attributes,
            tables=tuple(dict.fromkeys(wanted)),
            report_bytes=cls.report_dtype.itemsize,
        )

    @classmethod
    def of(cls, task: Task) -> Self:
        """Build the mechanism of a task; raise TaskError if the spec is wrong."""
        spec = spec_as(task.mechanism, TableSpec)
        check_report_bytes(spec, cls.report_dtype)
        sizes = tuple(each.size for each in spec.attributes)
        return cls(views=View.of_task(task), attribute_sizes=sizes, tables=spec.tables)

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The number of values of each attribute of every table."""
        return tuple(tuple(self.attribute_sizes[each] for each in table) for table in self.tables)

    def encode(self, values: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """
        Return the cell of every table, (n, tables), from values of all attributes, (n, attributes).

        Run by the user agent. Raises ValueRangeError if a value is out of range.
        """
        numbers = checked_array(values, "iu", "whole numbers").astype(np.int64, copy=False)
        for column, size in zip(numbers.T, self.attribute_sizes, strict=True):
            for end in (column.min(initial=0), column.max(initial=0)):
                check_value(int(end), size)
        cells = [
            np.ravel_multi_index(tuple(numbers[:, table].T), shape)
            for table, shape in zip(self.tables, self.shapes, strict=True)
        ]
        return np.stack(cells, axis=1)

    # --- estimation: run by the analyzer ----------------------------------------------------------

    @cached_property
    def _places(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The tables of each attribute, and its axis in them."""
        return tuple(
            tuple((place, each.index(a)) for place, each in enumerate(self.tables) if a in each)
            for a in range(len(self.attribute_sizes))
        )

    @cached_property
    def _weights(self) -> tuple[Vector, ...]:
        """
        By attribute, the weights of its tables in the average margin; by expected dummies.

        Numbers that arrived would let crafted reports move weights.
        """
        expected = [1 / (view.size * view.item_variance(1.0)) for view in self.views]
        each = (np.array([expected[place] for place, _ in places]) for places in self._places)
        return tuple(precisions / precisions.sum() for precisions in each)

    def variances(self, n_users: float | Sequence[float]) -> tuple[list[float], list[float]]:
        """
        Return the variance of a cell of each table, and of a value of each attribute: counts.

        `n_users` are the users whose expected dummies are in the tables, of each or in all.
        """
        left = [1 - 1 / size for size in self.attribute_sizes]
        users = np.broadcast_to(n_users, len(self.views)).tolist()
        v = [view.item_variance(each) for view, each in zip(self.views, users, strict=True)]
        margins = [
            (size - 1) / size**2 * float(weights**2 @ [self.sizes[k] * v[k] for k, _ in places])
            for size, weights, places in zip(
                self.attribute_sizes, self._weights, self._places, strict=True
            )
        ]
        cells = []
        for table, view, noise in zip(self.tables, self.views, v, strict=True):
            others = [view.size // self.attribute_sizes[each] for each in table]
            own = math.prod(left[each] for each in table) if len(table) > 1 else 0.0
            effects = (margins[a] / n**2 for a, n in zip(table, others, strict=True))
            cells.append(own * noise + sum(effects))
        return cells, margins

    def estimate(self, cells: Counts, n_users: float) -> ShareTables:
        """
        Estimate all tables and margins by least squares. Cost: two passes over all cells.

        Errors and intervals are those of the users' dummies that arrived.

        Intervals follow the exact distribution of a count of the table alone, and for an attribute
        of the table that measures its margin best. An estimate combines several counts and is
        nearer to normal, so intervals are a little wide.
        """
        arrived = self.by_view(cells)
        counts = [
            (each - (each.sum() - n_users) / each.size).reshape(shape)
            for each, shape in zip(arrived, self.shapes, strict=True)
        ]
        adding = [
            view.adding(float(each.sum()), n_users)
            for view, each in zip(self.views, arrived, strict=True)
        ]
        of_cells, of_margins = self.variances(adding)
        law = lru_cache(partial(_intervals, n_users))
        attributes = []
        for a, (size, places) in enumerate(zip(self.attribute_sizes, self._places, strict=True)):
            moved = [np.moveaxis(counts[place], axis, -1) for place, axis in places]
            measured = np.array([each.reshape(-1, size).sum(axis=0) for each in moved])
            margin = self._weights[a] @ measured
            for table, own in zip(moved, measured, strict=True):
                np.add(table, (margin - own) * size / table.size, out=table)  # part of counts
            best, _ = places[int(np.argmax(self._weights[a]))]
            intervals = law(self.views[best], adding[best], self.sizes[best] // size)
            attributes.append(_shares(margin, of_margins[a], n_users, intervals))
        return ShareTables(
            tables=tuple(
                _shares(each.ravel(), variance, n_users, law(view, users, 1))
                for each, variance, view, users in zip(
                    counts, of_cells, self.views, adding, strict=True
                )
            ),
            attributes=tuple(attributes),
            mse_theory=float(np.average(of_cells, weights=self.sizes)) / n_users**2,
        )


def _shares(counts: Vector, variance: float, n_users: float, table: IntervalTable) -> ShareTable:
    error = math.sqrt(variance) / n_users
    return ShareTable(shares=counts / n_users, standard_error=error, table=table)


def _intervals(n_users: float, view: View, adding: float, cells: int) -> IntervalTable:
    """
    Return the intervals of an estimate with the distribution of the sum of so many cells of a view.

    Both sides reach as far as the wider: an estimate subtracts other counts, whose tails are the
    other way round.
    """
    table = interval_table(n_users, 1.0, 0.0, view.count_law(adding, cells))
    return IntervalTable.alike(np.maximum(table.below, table.above)[: len(MISSES)])
