"""Estimates as tables: one look for the terminal and for the page, for every kind of value."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from common.mechanisms.base import Vector
from common.messages.result import Interval, interval_around
from deploy.terminal.escape import escaped
from deploy.terminal.tables import add_columns, print_whole

CONFIDENCE: Final = 0.95
"""Of every interval, each by itself."""
INTERVAL: Final = f"{CONFIDENCE:.0%} interval"
NOISE_ALONE: Final = "± noise alone"
"""Heading of the interval around a figure that is biased by more than noise."""
_MAX_DECIMALS: Final = 8


class EstimateRow(NamedTuple):
    """One figure with its interval, further cells, and in a demo the truth."""

    name: str
    """Untrusted text."""
    value: float
    low: float
    high: float
    more: tuple[str, ...]
    truth: float | None


@dataclass(frozen=True, kw_only=True, eq=False)
class EstimateTable:
    """Figures that are read together."""

    title: str
    name: str
    """Heading of the names: item, number, key."""
    value: str
    """Heading of the figures: share, mean."""
    interval: str = INTERVAL
    names: Sequence[str]
    """Of all figures. Untrusted text."""
    values: Vector
    errors: Vector
    """Standard errors of the values."""
    shown: Sequence[int]
    """Places of the rows: the largest or first figures, or all of them."""
    more: Mapping[str, Sequence[str | float]] = field(default_factory=dict)
    """Further columns by heading; numbers are written as the figures are."""
    truth: Vector | None = None
    """True figures, in a demo."""
    notes: Sequence[str] = ()
    """Sentences that a reader needs."""

    @cached_property
    def ends(self) -> Interval:
        """The ends of each figure's interval."""
        return interval_around(self.values, self.errors, CONFIDENCE)

    def columns(self, prefix: str = "") -> dict[str, Sequence[object]]:
        """Return all figures, with their errors and intervals, by the names that files have."""
        # Around biased figures an interval of noise alone covers no truth with any confidence.
        interval = "noise" if self.interval == NOISE_ALONE else "interval"
        names = ("standard_error", f"{interval}_low", f"{interval}_high")
        figures = zip(names, (self.errors, *self.ends), strict=True)
        return {self.value: self.values.tolist()} | {
            prefix + name: column.tolist() for name, column in figures
        }

    @cached_property
    def rows(self) -> tuple[EstimateRow, ...]:
        """The figures that are shown, in order."""
        low, high = self.ends
        return tuple(
            EstimateRow(
                name=self.names[place],
                value=float(self.values[place]),
                low=float(low[place]),
                high=float(high[place]),
                more=tuple(
                    cell if isinstance(cell := column[place], str) else self.format(cell)
                    for column in self.more.values()
                ),
                truth=None if self.truth is None else float(self.truth[place]),
            )
            for place in self.shown
        )

    @cached_property
    def decimals(self) -> int | None:
        """Decimals that show two digits of the least error; None for four digits of a figure."""
        least = float(self.errors[list(self.shown)].min(initial=math.inf))
        if not 0 < least < math.inf:
            return None
        return min(max(0, 1 - math.floor(math.log10(least))), _MAX_DECIMALS)

    def format(self, number: float) -> str:
        """Write a figure of the table."""
        if self.decimals is None or not math.isfinite(number):
            return f"{number:.4g}"
        return f"{number:z.{self.decimals}f}"  # z: what rounds to 0 has no sign


def print_table(table: EstimateTable, console: Console) -> None:
    """Print a table and its notes; none of its text steers the terminal."""
    printed = Table(title=table.title)
    known = () if table.truth is None else ("truth",)
    figures = (*known, table.value, table.interval, *table.more)
    add_columns(printed, {table.name: "left", **dict.fromkeys(figures, "right")})
    for row in table.rows:
        printed.add_row(
            escaped(row.name),
            *([] if row.truth is None else [table.format(row.truth)]),
            table.format(row.value),
            f"{table.format(row.low)} … {table.format(row.high)}",
            *row.more,
        )
    print_whole(printed, console)
    for note in table.notes:
        console.print(note)
