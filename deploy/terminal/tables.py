"""Tables of which no figure is ever cut: `2` for 20 would be another promise."""

from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console, JustifyMethod
from rich.measure import Measurement
from rich.table import Table

_ANY: Final = 10_000
"""Columns of a console on which everything has room."""


def add_columns(table: Table, headings: dict[str, JustifyMethod]) -> None:
    """Add columns: to the right are figures, to the left text, which may be folded; no heading."""
    for heading, side in headings.items():
        longest = max(map(len, heading.split()), default=0)
        table.add_column(heading, justify=side, overflow="fold", min_width=longest)


def full_width(table: Table, console: Console) -> int:
    """Give the columns of a console on which nothing of a table is folded."""
    return Measurement.get(console, console.options.update(max_width=_ANY), table).maximum


def fitting(
    make: Callable[[Sequence[str]], Table],
    headings: Sequence[str],
    dispensable: Sequence[str],
    console: Console,
) -> tuple[Table, bool]:
    """
    Make a table of as many columns as a console has room for.

    Args:
        make: Makes it, of the columns under some headings.
        headings: Of all columns.
        dispensable: Headings that give way, in this order; one that is not there is passed over.
        console: Where it is to have room.

    Returns:
        The table, and whether a column was left out of it.
    """
    kept = list(headings)
    table = make(kept)
    for heading in (heading for heading in dispensable if heading in headings):
        if full_width(table, console) <= console.width:
            break
        kept.remove(heading)
        table = make(kept)
    return table, len(kept) < len(headings)


def print_whole(table: Table, console: Console) -> None:
    """
    Print a table with every figure whole, those of columns that are justified to the right.

    Where they need more than the console has, lines are longer than it, and it folds them.
    """
    for column in table.columns:
        if column.justify == "right":
            widths = (console.measure(cell).maximum for cell in column.cells)
            column.min_width = max([column.min_width or 0, *widths])
    console.print(table, crop=False)
