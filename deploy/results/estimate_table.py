"""Estimates as tables: one look for the terminal and for the page, for every kind of value."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from common.mechanisms.base import Vector
from common.messages.estimate import interval_around
from deploy.results.estimate_columns import CONFIDENCE
from deploy.terminal.escape import escaped
from deploy.terminal.tables import add_columns, print_whole

INTERVAL: Final = f"{CONFIDENCE:.0%} interval"
NOISE_ALONE: Final = "± noise alone"
"""Heading of the interval around a figure that is biased by more than noise."""
_MOST_DECIMALS: Final = 8

Cell = str | bool | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRow:
    """One figure with its interval."""

    name: str
    """Untrusted text."""
    value: float
    low: float
    high: float
    more: tuple[str, ...] = ()
    """Cells of further columns."""
    truth: float | None = None
    """Known in a demo only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateTable:
    """Figures that are read together."""

    title: str
    name: str
    """Heading of the names: item, number, key."""
    value: str
    """Heading of the figures: share, mean."""
    interval: str = INTERVAL
    more: tuple[str, ...] = ()
    """Headings of further columns."""
    rows: tuple[EstimateRow, ...]
    """The largest or first figures, or all of them."""
    notes: tuple[str, ...] = ()
    """Sentences that a reader needs."""
    decimals: int | None = None
    """Of figures and intervals, so that noise shows in two digits; None for four digits of each."""

    def format(self, number: float) -> str:
        """Write a figure of the table."""
        return format_figure(number, self.decimals)


def estimate_table(
    names: Sequence[str],
    values: Vector,
    errors: Vector,
    order: Sequence[int],
    *,
    title: str,
    which: str,
    name: str,
    value: str,
    interval: str = INTERVAL,
    more: Mapping[str, Sequence[Cell]] | None = None,
    truth: Vector | None = None,
    notes: Sequence[str] = (),
) -> EstimateTable:
    """
    Build a table of estimates.

    Args:
        names: Of all figures; untrusted text.
        values: The figures, one a name.
        errors: Their standard errors.
        order: Places of the rows to show.
        title: Of the table.
        which: Which of the figures the rows are, if not all: "first", "largest".
        name: Heading of the names.
        value: Heading of the figures.
        interval: Heading of the intervals.
        more: Further columns by heading; numbers with a fraction are written as the figures are.
        truth: True figures, in a demo.
        notes: Sentences below it.
    """
    decimals = decimals_of(errors[list(order)])
    low, high = interval_around(values, errors, CONFIDENCE)
    columns = more or {}
    left_out = f", the {len(order):,} {which}" if len(order) < len(values) else ""
    return EstimateTable(
        title=f"{title}{left_out}",
        name=name,
        value=value,
        interval=interval,
        more=tuple(columns),
        rows=tuple(
            EstimateRow(
                name=names[place],
                value=float(values[place]),
                low=float(low[place]),
                high=float(high[place]),
                more=tuple(_cell(column[place], decimals) for column in columns.values()),
                truth=None if truth is None else float(truth[place]),
            )
            for place in order
        ),
        notes=tuple(notes),
        decimals=decimals,
    )


def _cell(value: Cell, decimals: int | None) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else format_figure(value, decimals)


def format_figure(number: float, decimals: int | None) -> str:
    """Write a number with so many decimals; None for four digits."""
    if decimals is None or not math.isfinite(number):
        return f"{number:.4g}"
    return f"{number:z.{decimals}f}"  # z: what rounds to 0 has no sign


def decimals_of(errors: Vector) -> int | None:
    """Return the decimals that show two digits of the least of these standard errors."""
    least = float(errors.min(initial=math.inf))
    if not 0 < least < math.inf:
        return None
    return min(max(0, 1 - math.floor(math.log10(least))), _MOST_DECIMALS)


def print_table(table: EstimateTable, console: Console) -> None:
    """Print a table and its notes; none of its text steers the terminal."""
    printed = Table(title=table.title)
    known = any(row.truth is not None for row in table.rows)
    figures = (*(("truth",) if known else ()), table.value, table.interval, *table.more)
    add_columns(printed, {table.name: "left", **dict.fromkeys(figures, "right")})
    for row in table.rows:
        printed.add_row(
            escaped(row.name),
            *([table.format(row.truth)] if row.truth is not None else []),
            table.format(row.value),
            f"{table.format(row.low)} … {table.format(row.high)}",
            *row.more,
        )
    print_whole(printed, console)
    for note in table.notes:
        console.print(note)
