"""Tables of estimates with confidence intervals, for the terminal and for pages."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from shuffledp.common.mechanisms.base import Vector
from shuffledp.common.messages import result
from shuffledp.deploy.results.distribution import Distribution
from shuffledp.deploy.terminal.escape import escaped
from shuffledp.deploy.terminal.tables import add_columns, print_whole

_INTERVAL: Final = f"{100 * result.CONFIDENCE:.0f}\N{NO-BREAK SPACE}% interval"
_NOISE_ALONE: Final = "± noise alone"
"""Heading of intervals around biased estimates, which cover the noise but not the bias."""
_MAX_DECIMALS: Final = 8
TOO_FEW_USERS: Final = (
    "Too few users for this much noise: with intervals that hold for all values at once, no share "
    "can be distinguished from 0."
)

Columns = dict[str, Sequence[object]]


class EstimateRow(NamedTuple):
    """A row to print: an estimate, its interval, further cells and, in a demo, the true value."""

    name: str
    """Name of the estimate. Untrusted text."""
    value: float
    low: float
    high: float
    more: tuple[str, ...]
    truth: float | None


@dataclass(frozen=True, kw_only=True, eq=False)
class EstimateTable:
    """A table of estimates with confidence intervals. Only the rows in `shown` are printed."""

    title: str
    name: str
    """Heading of the names, such as item, number or key."""
    value: str
    """Heading of the estimates, such as share or mean. Shares are printed in percent."""
    biased: bool = False
    """Whether errors leave out a bias, so that intervals are of noise alone."""
    names: Sequence[str]
    values: Vector
    errors: Vector
    shown: Sequence[int]
    """Indices of the estimates to print, in order."""
    selection: str = "first {:,}"
    """Which estimates are printed, with their number, if not all are."""
    more: Mapping[str, Sequence[str | float]] = field(default_factory=dict)
    """Further columns by heading; numbers are formatted like the estimates."""
    truth: Vector | None = None
    """True values, in a demo."""
    given_ends: result.Interval | None = None
    """Ends of the intervals; None for those of a normal distribution."""
    logarithmic: bool = False
    """Whether values above 0 are drawn on a logarithmic axis."""
    notes: Sequence[str] = ()
    listed: bool = True
    """Whether pages list its rows; otherwise their script draws all values."""

    @property
    def caption(self) -> str:
        """The title, with the part of the rows that is shown, if not all are."""
        part = f", the {self.selection.format(len(self.shown))}"
        return self.title + part * (len(self.shown) < len(self.names))

    @property
    def interval(self) -> str:
        """Heading of the intervals."""
        return _NOISE_ALONE if self.biased else _INTERVAL

    @cached_property
    def ends(self) -> result.Interval:
        """Lower and upper ends of the confidence intervals, each of shape (values,)."""
        reach = result.interval_half_width(result.CONFIDENCE) * self.errors
        return self.given_ends or result.interval_around(self.values, reach)

    def columns(self, prefix: str = "") -> dict[str, Sequence[object]]:
        """Return file columns by name: estimates and, with `prefix`, errors and interval ends."""
        # An interval of noise alone is not a confidence interval, so its columns are named noise.
        interval = "noise" if self.biased else "interval"
        names = ("standard_error", f"{interval}_low", f"{interval}_high")
        figures = zip(names, (self.errors, *self.ends), strict=True)
        return {self.value: self.values.tolist()} | {
            prefix + name: column.tolist() for name, column in figures
        }

    @cached_property
    def rows(self) -> tuple[EstimateRow, ...]:
        """The rows in `shown`, in order."""
        low, high = self.ends
        return tuple(
            EstimateRow(
                name=self.names[index],
                value=float(self.values[index]),
                low=float(low[index]),
                high=float(high[index]),
                more=tuple(
                    cell if isinstance(cell := column[index], str) else self.format(cell)
                    for column in self.more.values()
                ),
                truth=None if self.truth is None else float(self.truth[index]),
            )
            for index in self.shown
        )

    @cached_property
    def _form(self) -> tuple[int, str, str]:
        """Factor, format and unit of shown numbers, with two digits of the smallest shown error."""
        factor, unit = (100, "\N{NO-BREAK SPACE}%") if self.value == "share" else (1, "")
        least = factor * float(self.errors[list(self.shown)].min(initial=math.inf))
        if not 0 < least < math.inf:
            return factor, ".4g", unit
        decimals = min(max(0, 1 - math.floor(math.log10(least))), _MAX_DECIMALS)
        return factor, f"z,.{decimals}f", unit  # z: no sign if it rounds to 0

    def format(self, number: float) -> str:
        """Format a number with as many decimals as its column, or four digits without errors."""
        factor, form, unit = self._form
        text = format(factor * number, form) + unit
        return text.replace("-", "\N{MINUS SIGN}", 1) if number < 0 else text

    def format_interval(self, row: EstimateRow) -> str:
        """Format the ends of a row's interval, with their unit once."""
        return f"{self.format(row.low).removesuffix(self._form[2])} … {self.format(row.high)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultView:
    """A result's tables for people, and its columns and JSON fields for programs."""

    tables: tuple[EstimateTable, ...] = ()
    columns: Columns = field(default_factory=dict)
    """Columns of CSV and Parquet, in full precision, with a row per estimate."""
    warning: str = ""
    """Reason for missing or uninformative tables; may be empty."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Further JSON fields, beside the estimate's own."""
    groups: Mapping[str, Distribution] = field(default_factory=dict)
    """Distributions of ordered or broken-down values, by group."""

    @property
    def size(self) -> int:
        """Number of estimates in the first table; 0 without tables."""
        return len(self.tables[0].names) if self.tables else 0

    @property
    def truth(self) -> Vector | None:
        """True shares or means of the first table, in a demo only."""
        return self.tables[0].truth if self.tables else None


def largest(figures: Vector, most: int) -> list[int]:
    """Return the indices of the largest figures, the largest first."""
    order: list[int] = np.argsort(-figures, kind="stable").tolist()
    return order[:most]


def mse_of(estimate: Vector, truth: Vector) -> float:
    """Return the mean squared error of an estimate, averaged over values of the same shape."""
    return float(np.mean((estimate - truth) ** 2))


def print_table(table: EstimateTable, console: Console) -> None:
    """Print a table and its notes, with untrusted names, units and attributes escaped."""
    printed = Table(title=escaped(table.caption))
    truth = () if table.truth is None else ("truth",)
    headings = (*truth, table.value, table.interval, *table.more)
    add_columns(printed, {escaped(table.name): "left", **dict.fromkeys(headings, "right")})
    for row in table.rows:
        printed.add_row(
            escaped(row.name),
            *([] if row.truth is None else [table.format(row.truth)]),
            table.format(row.value),
            table.format_interval(row),
            *row.more,
        )
    if table.shown:
        print_whole(printed, console)
    for note in table.notes:
        console.print(note)
