"""Rich tables that fold text but never truncate numbers: `2` for 20 would be another promise."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rich.console import Console, JustifyMethod
from rich.measure import Measurement
from rich.table import Table

_MAX_WIDTH: Final = 10_000
"""Columns of a console in which nothing is folded."""


def add_columns(table: Table, headings: Mapping[str, JustifyMethod]) -> None:
    """Add columns: figures right-justified, text left; text may fold, headings may not."""
    for heading, side in headings.items():
        longest = max(map(len, heading.split()), default=0)
        table.add_column(heading, justify=side, overflow="fold", min_width=longest)


def fitting(
    make: Callable[[Sequence[str]], Table],
    headings: Sequence[str],
    dispensable: Sequence[str],
    console: Console,
) -> tuple[Table, bool]:
    """
    Make a table of the headings that a console has room for.

    Columns are left out in the order of `dispensable`; unknown ones are ignored. Returns the table,
    and whether a column was left out.
    """
    unfolded = console.options.update(max_width=_MAX_WIDTH)
    kept, spare = list(headings), [heading for heading in dispensable if heading in headings]
    table = make(kept)
    while spare and Measurement.get(console, unfolded, table).maximum > console.width:
        kept.remove(spare.pop(0))
        table = make(kept)
    return table, len(kept) < len(headings)


def print_whole(table: Table, console: Console) -> None:
    """
    Print a table with every right-justified figure whole.

    Where figures need more room than the console has, it folds the lines.
    """
    for column in table.columns:
        if column.justify == "right":
            widths = (console.measure(cell).maximum for cell in column.cells)
            column.min_width = max([column.min_width or 0, *widths])
    console.print(table, crop=False)
