"""A comparison as a table for people, and as CSV."""

import csv
import io
import math
from collections.abc import Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from common.guarantee import rounded_up
from common.task import Task
from deploy.foreign_text import shown
from deploy.simulate.errors import Summary
from deploy.simulate.remarks import remarks
from deploy.simulate.row import Row

_WIDE: Final = 140
"""Columns of a terminal from which every figure is shown."""
_BY: Final = {"published": "paper", "tight": "tight"}
_HEADINGS: Final = {
    "protocol": "left",
    "ε": "right",
    "by": "left",
    "msgs": "right",
    "mse": "right",
    "theory": "right",
    "refined": "right",
    "central ε": "right",
    "local ε": "right",
}
_BY_PLACE: Final = list(_HEADINGS).index("by")
_MORE: Final = {
    "parameters": "left",
    "bytes": "right",
    "top 50": "right",
    "max error": "right",
    "rel. error": "right",
    "seconds": "right",
}


def show(rows: Sequence[Row], title: str, console: Console) -> None:
    """Print one line a setting, and what a reader must know of how it came about."""
    for row in rows[:1]:
        console.print(
            f"[bold]{shown(title)}[/bold]: {row.n_users:,} users, {row.domain_size:,} values; "
            "errors are of shares, ± one standard error over the repeats."
        )
    wide = console.width >= _WIDE
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    lines = [
        (*_cells(row, row.task), *(_more(row, row.task) if wide else ()))
        for row in rows
        if row.task is not None
    ]
    both = len({row.setting.accounting for row in rows}) > 1
    for place, (heading, side) in enumerate((_HEADINGS | (_MORE if wide else {})).items()):
        widest = max((len(line[place]) for line in lines), default=0)
        if heading == "by" and not both:
            continue
        table.add_column(
            heading,
            justify="left" if side == "left" else "right",
            min_width=0 if heading == "protocol" else max(widest, len(heading)),
            overflow="fold",
        )
    for line in lines:
        table.add_row(*(line if both else line[:_BY_PLACE] + line[_BY_PLACE + 1 :]))
    console.print(table)
    for sentence in remarks(rows):
        console.print(sentence, style="dim", highlight=False)
    if not wide:
        console.print(
            f"A terminal of {_WIDE} columns shows more figures; --csv and --json have them all.",
            style="dim",
        )


def _cells(row: Row, task: Task) -> tuple[str, ...]:
    mse = row.errors["mse"]
    return (
        row.setting.protocol,
        f"{row.setting.target_epsilon:g}",
        _BY[row.setting.accounting],
        f"{row.messages_per_user:.4g}",
        _with_error(mse),
        f"×{mse.mean / row.mse_theory:.2f}" if row.mse_theory else "-",
        f"{row.errors['mse_refined'].mean:.2e}",
        rounded_up(task.central_epsilon),
        rounded_up(task.local_epsilon),
    )


def _with_error(value: Summary) -> str:
    """Show a mean and its relative standard error, which a single repeat does not have."""
    if not (value.standard_error and value.mean):
        return f"{value.mean:.2e}"
    return f"{value.mean:.2e} ±{value.standard_error / value.mean:.0%}"


def _more(row: Row, task: Task) -> tuple[str, ...]:
    return (
        _parameters(task),
        f"{task.envelope_bytes:,}",
        f"{row.errors['mse_top50'].mean:.3g}",
        f"{row.errors['max_error'].mean:.2g}",
        f"{row.errors['relative_error'].mean:.2g}",
        f"{row.seconds:.2f}",
    )


def _parameters(task: Task) -> str:
    said = []
    hashes = task.mechanism.name in {"local-hashing", "string-hashing"}
    said.append(f"g {task.mechanism.buckets}" if hashes else "plain")
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
