"""
Tables of one or two attributes: the protocols `tables` and `geo-tables`.

A user reports the true cell of every table; dummies of each table, from users or from shufflers,
hide the cells. The tables are separate histograms, whose privacy losses compose. Tables with an
attribute in common are two measurements of its margin, and the estimate is the least-squares one
that agrees with all of them and with the number of users.

It has a closed form. The errors of a table's counts with a known total are those of independent
cells of one variance v, less their mean. So their parts in orthogonal spaces are uncorrelated: the
main effect of each attribute, and the interaction that neither margin explains. A table with s
cells for each value of an attribute measures the margin with variance s·v. Margins are averaged
over tables with inverse variances; only its own table measures an interaction. With Q = 1 - 1/r for
r values, final variances V_a of margins and s = s_b cells of the other attribute:

    Var margin a = V_a·Q_a,    Var cell = V_a·Q_a/s_b² + V_b·Q_b/s_a² + v·Q_a·Q_b

Checked against a projection that knows no form of the tables.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from common.mechanisms.arguments import checked_array
from common.mechanisms.base import Counts, Vector, check_report_bytes, check_value
from common.mechanisms.views import View, Views
from common.task.spec_forms import spec_as
from common.task.task import Task
from common.task.view_specs import TableSpec


class Table(NamedTuple):
    """Estimated counts of one table, and the variance of each."""

    counts: Vector
    """Shape: the number of values of each of its attributes."""
    variance: float


@dataclass(frozen=True)
class Tables(Views):
    """True cells of each table: the views are the tables, in the task's order."""

    attribute_sizes: tuple[int, ...]
    """Number of values of each attribute."""
    tables: tuple[tuple[int, ...], ...]
    """The attributes of each table by number, ascending."""

    @classmethod
    def of(cls, task: Task) -> Self:
        """Build the mechanism of a task; raise TaskError if the spec is wrong."""
        spec = spec_as(task.mechanism, TableSpec)
        check_report_bytes(spec, cls.report_dtype)
        sizes = tuple(each.size for each in spec.attributes)
        return cls(views=View.of_task(task), attribute_sizes=sizes, tables=spec.views)

    def encode(self, values: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the cell of every table, (n, tables), from each attribute's value, (n, k)."""
        del rng
        numbers = checked_array(values, "iu", "whole numbers").astype(np.int64, copy=False)
        for column, size in zip(numbers.T, self.attribute_sizes, strict=True):
            for end in (column.min(initial=0), column.max(initial=0)):
                check_value(int(end), size)
        shapes = (tuple(self.attribute_sizes[each] for each in table) for table in self.tables)
        cells = (
            np.ravel_multi_index(tuple(numbers[:, table].T), shape)
            for table, shape in zip(self.tables, shapes, strict=True)
        )
        return np.stack(list(cells), axis=1)

    def estimate(self, cells: Counts, n_users: float) -> tuple[list[Table], list[Table]]:
        """Return the tables of all views, and of all attributes. Run by the analyzer."""
        raise NotImplementedError
