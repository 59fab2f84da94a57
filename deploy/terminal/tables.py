"""Rich tables that fold text but never truncate numbers."""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table

from shuffledp.common.messages.guarantee import Guarantee, rounded_up
from shuffledp.deploy.terminal.escape import escaped

_MAX_WIDTH: Final = 10_000
"""Width of a console in which no text folds."""
_MOST_SPARE: Final = 8
CLAIM_ROOM_NOTE: Final = (
    "The claim is rounded up, so that every device that recomputes ε finds it within the claim."
)


def add_columns(table: Table, headings: Mapping[str, JustifyMethod]) -> None:
    """Add columns with their justification; text may fold, but not inside a word of a heading."""
    for heading, side in headings.items():
        longest = max(map(len, heading.split()), default=0)
        table.add_column(heading, justify=side, overflow="fold", min_width=longest)


def print_rows(
    rows: Sequence[Mapping[str, str]],
    console: Console,
    texts: Collection[str],
    *,
    fixed: int = 1,
    order: Sequence[str] = (),
) -> None:
    """
    Print cells by heading; those under `texts` are aligned left, figures right.

    Columns are in `order`, which names all, or else in that of their first cells. Those that do not
    fit follow in further tables, which begin with the first `fixed` columns again, and leave out
    rows without other cells.
    """
    found = dict.fromkeys(chain.from_iterable(rows))
    headings = [name for name in order or found if name in found]
    first, rest = headings[:fixed], headings[fixed:]
    unfolded = console.options.update(max_width=_MAX_WIDTH)
    while rest:
        for n_shown in range(len(rest), 0, -1):
            shown = rest[:n_shown]
            table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
            names = [*first, *shown]
            add_columns(table, {name: "left" if name in texts else "right" for name in names})
            for cells in rows:
                if cells.keys() & {*shown}:
                    table.add_row(*(cells.get(name, "-") for name in names))
            if Measurement.get(console, unfolded, table).maximum <= console.width:
                break
        print_whole(table, console)
        rest = rest[n_shown:]


def print_whole(table: Table, console: Console) -> None:
    """Print a table without folding or truncating right-justified figures; long lines wrap."""
    for column in table.columns:
        if column.justify == "right":
            widths = (console.measure(cell).maximum for cell in column.cells)
            column.min_width = max([column.min_width or 0, *widths])
    # Rich may cut a column below its least width and then widen it again, beyond the console.
    for width in range(console.width, console.width - _MOST_SPARE, -1):
        lines = Segment.split_lines(console.render(table, console.options.update(max_width=width)))
        if max(map(Segment.get_line_length, lines)) <= console.width:
            break
    console.print(table, width=width, crop=False)


def guarantee_summary(central: Guarantee, rows: Sequence[Guarantee], local: str) -> str:
    """State the guarantee that a release is charged for, and the coalition's or local ε."""
    first, second, against = "", "", "shuffler+analyzer"
    for row in rows:
        if row.coalition == "either-shuffler":  # as weak as the weaker one with the analyzer
            local, against = rounded_up(row.epsilon), "the analyzer with either shuffler"
            first, second = "central ", "coalition "
    return (
        f"{first}epsilon {rounded_up(central.epsilon)} at delta {rounded_up(central.delta)} "
        f"against {central.coalition}, and {second}epsilon {local} against {against}. --guarantees "
        "lists every coalition with its assumptions."
    )


def print_guarantees(guarantees: Sequence[Guarantee], title: str, console: Console) -> None:
    """Print a row per guarantee, with epsilon and delta rounded up."""
    table = Table(title=title, show_lines=True)
    add_columns(table, {"against": "left", "epsilon": "right", "delta": "right", "if": "left"})
    for guarantee in guarantees:
        table.add_row(
            escaped(guarantee.coalition),
            rounded_up(guarantee.epsilon),
            rounded_up(guarantee.delta),
            escaped("; ".join(guarantee.assumptions)),
        )
    print_whole(table, console)
