"""What an experiment came to: tables, sentences, figures for programs, and panels to draw."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from deploy.simulate.plot import Panel
from deploy.terminal.escape import escaped
from deploy.terminal.tables import add_columns, fitting, print_whole

Progress = Callable[[int, int], None]
"""Called with how much of an experiment is done, and of how much."""


def unreported(done: int, total: int) -> None:
    """Report no progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """A table with its sentences."""

    rows: Sequence[Mapping[str, str]]
    """Cells by heading; the same headings in every row."""
    heading: str = ""
    dispensable: Sequence[str] = ()
    """Columns that give way, in this order, where the terminal is too narrow for all."""
    column_notes: Mapping[str, str] = field(default_factory=dict)
    """Explanations by column; those of columns that gave way are left out."""
    remarks: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of one experiment."""

    title: str
    """What was collected from whom; the beginning of the printed text, and above pictures."""
    explanation: str
    tables: Sequence[ReportTable]
    figures: Any
    """For JSON."""
    panels: Sequence[Panel]
    remarks: Sequence[str] = ()


def show(report: Report, console: Console) -> None:
    """Print a report."""
    text = f"[bold]{escaped(report.title)}:[/bold] {report.explanation}"
    console.print(text, highlight=False)
    for table in report.tables:
        if table.heading:
            console.print(f"{table.heading}.", highlight=False)
        headings = list(table.rows[0])
        made, left_out = fitting(partial(_made, table), headings, table.dispensable, console)
        print_whole(made, console)
        kept = {str(column.header) for column in made.columns}
        notes = [note for column, note in table.column_notes.items() if column in kept]
        wider = ["A wider terminal shows more figures."] * left_out
        for sentence in [*[" ".join(notes)] * bool(notes), *table.remarks, *wider]:
            console.print(sentence, style="dim", highlight=False)
    for sentence in report.remarks:
        console.print(sentence, style="dim", highlight=False)


def _made(table: ReportTable, headings: Sequence[str]) -> Table:
    made = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    add_columns(made, dict.fromkeys(headings, "right"))
    for cells in table.rows:
        made.add_row(*(cells[heading] for heading in headings))
    return made
