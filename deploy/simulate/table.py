"""A comparison as a table for people, and as CSV."""

import csv
import io
import math
from collections.abc import Sequence
from functools import partial
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table

from common.messages.guarantee import rounded_up
from common.task.task import Task
from deploy.simulate.baselines.central_error import CHOICE
from deploy.simulate.remarks import remarks
from deploy.simulate.row import Row
from deploy.terminal.escape import escaped
from deploy.terminal.tables import add_columns, fitting, print_whole

_BY: Final = {"published": "paper", "tight": "tight"}
_HEADINGS: Final[dict[str, JustifyMethod]] = {
    "protocol": "left",
    "ε": "right",
    "by": "left",
    "msgs": "right",
    "mse": "right",
    "theory": "right",
    "refined": "right",
    "central ε": "right",
    "local ε": "right",
    "parameters": "left",
    "bytes": "right",
    "top 50": "right",
    "max error": "right",
    "rel. error": "right",
    "regret": "right",
    "seconds": "right",
}
_CENTRAL: Final = (
    "Central: by a collector who is trusted with every value; exact figures, nothing simulated."
)
_DISPENSABLE: Final = (
    "regret",
    "parameters",
    "rel. error",
    "max error",
    "seconds",
    "bytes",
    "top 50",
    "theory",
    "refined",
    "msgs",
)
"""Headings that give way, in this order, where the terminal is too narrow for all."""


def show(rows: Sequence[Row], title: str, console: Console) -> None:
    """Print one line a setting, and what a reader must know of how it came about."""
    for row in rows[:1]:
        console.print(
            f"[bold]{escaped(title)}:[/bold] {row.n_users:,} users, {row.domain_size:,} values; "
            "errors are of shares, ± one standard error over the repeats."
        )
    both = len({row.setting.accounting for row in rows}) > 1
    headings = [heading for heading in _HEADINGS if both or heading != "by"]
    table, left_out = fitting(partial(_table, rows), headings, _DISPENSABLE, console)
    print_whole(table, console)
    if _reference_cells(rows):
        console.print(_CENTRAL, style="dim")
    for sentence in remarks(rows):
        console.print(sentence, style="dim", highlight=False)
    if left_out:
        console.print(
            "A wider terminal shows more figures; --csv and --json have them all.", style="dim"
        )


def _table(rows: Sequence[Row], headings: Sequence[str]) -> Table:
    """Make the table of these columns; refused settings have no line."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    add_columns(table, {heading: _HEADINGS[heading] for heading in headings})
    for row in rows:
        if row.task is not None:
            cells = _cells(row, row.task)
            table.add_row(*(cells[heading] for heading in headings))
    for heading, cells in _reference_cells(rows):
        if heading in headings:
            table.add_row(*(cells.get(each, "-") for each in headings))
    return table


def _reference_cells(rows: Sequence[Row]) -> list[tuple[str, dict[str, str]]]:
    """Give the lines of central mechanisms at every target, each after the heading it is for."""
    found = {
        row.setting.target_epsilon: row.reference
        for row in rows
        if row.reference is not None and row.task is not None
    }
    lines = []
    for target, reference in found.items():
        figures = [(name, "mse", f"{mse:.2e}") for name, mse in reference.lines().items()]
        figures.append((CHOICE, "regret", f"{reference.regret:.2g}"))
        for name, heading, figure in figures:
            promised = {"central ε": rounded_up(target), "local ε": rounded_up(math.inf)}
            cells = {"protocol": name, "ε": f"{target:g}", heading: figure} | promised
            lines.append((heading, cells))
    return lines


def _cells(row: Row, task: Task) -> dict[str, str]:
    """Give every cell of a line by its heading."""
    mse = row.errors["mse"]
    return {
        "protocol": row.setting.protocol,
        "ε": f"{row.setting.target_epsilon:g}",
        "by": _BY[row.setting.accounting],
        "msgs": f"{row.messages_per_user:.4g}",
        "mse": mse.written(".2e"),
        "theory": f"×{mse.mean / row.mse_theory:.2f}" if row.mse_theory else "-",
        "refined": f"{row.errors['mse_refined'].mean:.2e}",
        "central ε": rounded_up(task.central_epsilon),
        "local ε": rounded_up(task.local_epsilon),
        "parameters": _parameters(task),
        "bytes": f"{task.envelope_bytes:,}",
        "top 50": f"{row.errors['mse_top50'].mean:.3g}",
        "max error": f"{row.errors['max_error'].mean:.2g}",
        "regret": f"{row.errors['regret'].mean:.2g}",
        "rel. error": f"{row.errors['relative_error'].mean:.2g}",
        "seconds": f"{row.seconds:.2f}",
    }


def _parameters(task: Task) -> str:
    said = []
    hashes = task.mechanism.name in {"local-hashing", "string-hashing"}
    said.append(f"g {task.item_mechanism.buckets}" if hashes else "plain")
    if math.isfinite(task.local_epsilon):
        said.append(f"ε0 {task.local_epsilon:.3g}")
    if task.shuffler.kept < 1:
        said.append(f"keeps {task.shuffler.kept:.3g}")
    if task.shuffler.law != "none":
        said.append(f"{task.shuffler.moments()[0]:.4g} an item")
    return ", ".join(said)


def as_csv(rows: Sequence[Row]) -> str:
    """Write every field of every row; refused ones have empty cells."""
    fields = [row.as_json() for row in rows]
    names = list(dict.fromkeys(name for each in fields for name in each))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(fields)
    return text.getvalue()
