"""The outcome of an experiment: tables, sentences, figures for programs, and panels to draw."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from deploy.simulate.plot import Panel
from deploy.simulate.table import WIDER, print_fitting
from deploy.terminal.escape import escaped

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
    """The collection and its people; the beginning of the printed text, and above pictures."""
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
        left_out = print_fitting(table.rows, list(table.rows[0]), table.dispensable, console)
        notes = " ".join(note for name, note in table.column_notes.items() if name not in left_out)
        wider = f"{WIDER}." if left_out else ""
        for sentence in filter(None, (notes, *table.remarks, wider)):
            console.print(sentence, style="dim", highlight=False)
    for sentence in report.remarks:
        console.print(sentence, style="dim", highlight=False)
