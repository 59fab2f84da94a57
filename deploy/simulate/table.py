"""A comparison as a table for people, by protocol and by value; as CSV and as JSON."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from common.messages.guarantee import rounded_up
from common.task.task import Task
from deploy.planning.value_design import BIASED
from deploy.simulate.baselines import CENTRAL_NAMES
from deploy.simulate.remarks import remarks
from deploy.simulate.row import SweepRow
from deploy.terminal.escape import escaped
from deploy.terminal.tables import add_columns, fitting, print_whole

MAX_VALUES: Final = 20
"""Lines of a table by value."""
_FEW_VALUES: Final = 12
"""Up to so many values the table by value is always shown."""
_BY: Final = {"published": "paper", "tight": "tight"}
_TEXTS: Final = {"protocol", "by", "parameters", "value"}
"""Headings of text; all others are of figures."""
_NAMES: Final = {"protocol", "by", "ε", "central ε", "local ε"}
"""Headings of what a line is about; a line without any other cell is not printed."""
_HEADINGS: Final = (
    *("protocol", "ε", "by", "msgs", "mse", "theory", "refined", "shrunk", "central ε", "local ε"),
    *("parameters", "bytes", "top 50", "max error", "rel. error", "regret", "seconds"),
)
_DISPENSABLE: Final = (
    *("regret", "parameters", "rel. error", "max error", "seconds", "bytes", "top 50", "theory"),
    *("refined", "msgs"),
)
"""Columns that give way, in this order, where the terminal is too narrow for all."""
_ERRORS: Final = {
    "refined": ("mse_refined", ".3g"),
    "shrunk": ("mse_shrunk", ".3g"),
    "top 50": ("mse_top50", ".3g"),
    "max error": ("max_error", ".2g"),
    "regret": ("regret", ".2g"),
    "rel. error": ("relative_error", ".2g"),
}
_UNITS: Final = {
    "categorical": "shares",
    "string": "shares of candidates",
    "mean": "a mean",
    "vector": "means",
    "key-value": "shares of owners",
}
_CENTRAL: Final = (
    "Central: by a collector who is trusted with every value; exact figures, nothing simulated."
)
WIDER: Final = "A wider terminal shows more figures"


def print_fitting(
    rows: Sequence[Mapping[str, str]],
    headings: Sequence[str],
    dispensable: Sequence[str],
    console: Console,
) -> set[str]:
    """
    Print a table of as many columns as a console has room for.

    Args:
        rows: Cells by heading; a dash stands for a cell that is not there.
        headings: Of all columns.
        dispensable: Columns to leave out, in this order.
        console: Where to print.

    Returns:
        The headings that were left out.
    """

    def make(kept: Sequence[str]) -> Table:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        add_columns(table, {name: "left" if name in _TEXTS else "right" for name in kept})
        for cells in rows:
            if not cells.keys() & set(kept) <= _NAMES:
                table.add_row(*(cells.get(heading, "-") for heading in kept))
        return table

    table, _ = fitting(make, headings, dispensable, console)
    print_whole(table, console)
    return set(headings) - {str(column.header) for column in table.columns}


def show(rows: Sequence[SweepRow], console: Console, *, by_value: bool = False) -> None:
    """Print one line a setting, notes on how it came about, and estimates by value."""
    people = rows[0].population
    values = f", {people.domain_size:,} values" * (people.domain_size > 1)
    title = escaped(people.title.rstrip("."))
    console.print(
        f"[bold]{title}:[/bold] {people.n_users:,} users{values}; errors "
        f"are of {_UNITS[people.kind]}, squared, ± one standard error over the repeats."
    )
    lines = _lines(rows)
    headings = [name for name in _HEADINGS if any(name in cells for cells in lines)]
    left_out = print_fitting(lines, headings, _DISPENSABLE, console)
    if any(row.reference for row in rows):
        console.print(_CENTRAL, style="dim")
    for sentence in remarks(rows):
        console.print(sentence, style="dim", highlight=False)
    _mention_wider(left_out, console)
    if by_value or len(people.value_names) <= _FEW_VALUES:
        _show_by_value(rows, console)


def _mention_wider(left_out: set[str], console: Console) -> None:
    if left_out:
        console.print(f"{WIDER}; --csv and --json have them all.", style="dim")


def _lines(rows: Sequence[SweepRow]) -> list[dict[str, str]]:
    """Return cells by heading for each setting and for the trusted collector at each target."""
    both = len({row.setting.accounting for row in rows}) > 1
    lines = [_cells(row, row.task, both=both) for row in rows if row.task is not None]
    central = {row.setting.target_epsilon: row.reference for row in rows if row.task is not None}
    for target, errors in central.items():
        for name, error in errors.items():
            figure = {"regret": f"{error:.2g}"} if "regret" in name else {"mse": f"{error:.3g}"}
            promised = {"ε": f"{target:g}", "central ε": rounded_up(target), "local ε": "inf"}
            lines.append({"protocol": CENTRAL_NAMES[name]} | figure | promised)
    return lines


def _cells(row: SweepRow, task: Task, *, both: bool) -> dict[str, str]:
    """Return every cell of a line by its heading."""
    mse = row.errors["mse"]
    theory = row.mse_theory > 0 and row.setting.protocol not in BIASED
    cells = {
        "protocol": row.setting.protocol,
        "ε": f"{row.setting.target_epsilon:g}",
        "mse": mse.written(".3g"),
        "theory": f"×{mse.mean / row.mse_theory:.2f}" if theory else "-",
        "central ε": rounded_up(task.central_epsilon),
        "local ε": rounded_up(task.local_epsilon),
        "bytes": f"{task.envelope_bytes:,}",
        "seconds": f"{row.seconds:.2f}",
    }
    if both:
        cells["by"] = _BY[row.setting.accounting]
    if row.population.kind == "categorical":
        cells |= {"msgs": f"{row.messages_per_user:.4g}", "parameters": _parameters(task)}
    return cells | {
        heading: f"{row.errors[name].mean:{form}}"
        for heading, (name, form) in _ERRORS.items()
        if name in row.errors
    }


def _parameters(task: Task) -> str:
    hashes = task.mechanism.name in {"local-hashing", "string-hashing"}
    parts = [f"g {task.item_mechanism.buckets}" if hashes else "plain"]
    if math.isfinite(task.local_epsilon):
        parts.append(f"ε0 {task.local_epsilon:.3g}")
    if task.shuffler.kept < 1:
        parts.append(f"keeps {task.shuffler.kept:.3g}")
    if task.shuffler.law != "none":
        parts.append(f"{task.shuffler.moments()[0]:.4g} an item")
    return ", ".join(parts)


def _show_by_value(rows: Sequence[SweepRow], console: Console) -> None:
    """Print the true figure of the largest values, and the estimates of the first repeat."""
    known = [(row, row.by_value) for row in rows if row.by_value is not None]
    if not known:
        return
    people, truth = rows[0].population, known[0][1].truth
    largest = np.argsort(-truth, kind="stable")[:MAX_VALUES]
    true = "true mean" if people.kind in {"mean", "vector"} else "true share"
    lines = [
        {"value": escaped(people.value_names[place]), true: f"{truth[place]:.4g}"}
        for place in largest
    ]
    targets, accountings = (
        {getattr(row.setting, name) for row, _ in known}
        for name in ("target_epsilon", "accounting")
    )
    for row, (_, estimates, errors) in known:
        heading = row.setting.protocol
        heading += f" ε {row.setting.target_epsilon:g}" * (len(targets) > 1)
        heading += f" {_BY[row.setting.accounting]}" * (len(accountings) > 1)
        for cells, place in zip(lines, largest, strict=True):
            cells[heading] = f"{estimates[place]:.4g} ± {errors[place]:.2g}"
    size, headings = len(people.value_names), list(lines[0])
    which = "" if size <= MAX_VALUES else f", the {MAX_VALUES} largest of {size:,}"
    console.print(
        f"By value{which}: the first repeat's estimates, unrefined, ± one standard error.",
        highlight=False,
    )
    _mention_wider(print_fitting(lines, headings, headings[:2:-1], console), console)


def as_json(rows: Sequence[SweepRow], *, by_value: bool = False) -> list[dict[str, Any]]:
    """Return every field of every row; on request also the estimates by value."""
    fields = [row.as_json() for row in rows]
    for row, each in zip(rows, fields, strict=True):
        if by_value and row.by_value is not None:
            columns = (row.population.value_names, *(column.tolist() for column in row.by_value))
            keys = ("value", "truth", "estimate", "standard_error")
            each["by_value"] = [
                dict(zip(keys, line, strict=True)) for line in zip(*columns, strict=True)
            ]
    return fields


def as_csv(rows: Sequence[SweepRow]) -> str:
    """Write every field of every row; refused ones have empty cells."""
    fields = [row.as_json() for row in rows]
    names = list(dict.fromkeys(name for each in fields for name in each))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(fields)
    return text.getvalue()
