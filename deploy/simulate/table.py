"""A comparison as a table for people, by protocol and by value; as CSV and as JSON."""

import csv
import io
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table

from common.messages.guarantee import rounded_up
from common.task.task import Task
from deploy.planning.value_design import BIASED
from deploy.simulate.populations import Population
from deploy.simulate.remarks import remarks
from deploy.simulate.row import SweepRow
from deploy.terminal.escape import escaped
from deploy.terminal.tables import add_columns, fitting, print_whole

MAX_VALUES: Final = 20
"""Lines of a table by value."""
_FEW_VALUES: Final = 12
"""Up to so many values the table by value is always shown."""
_BY: Final = {"published": "paper", "tight": "tight"}
_HEADINGS: Final[dict[str, JustifyMethod]] = {
    "protocol": "left",
    "ε": "right",
    "by": "left",
    "msgs": "right",
    "mse": "right",
    "theory": "right",
    "refined": "right",
    "shrunk": "right",
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
_WIDER: Final = "A wider terminal shows more figures; --csv and --json have them all."


def show(
    rows: Sequence[SweepRow], people: Population, console: Console, *, by_value: bool = False
) -> None:
    """Print one line a setting, notes on how it came about, and estimates by value."""
    values = f", {people.domain_size:,} values" * (people.domain_size > 1)
    title = escaped(people.title.rstrip("."))
    console.print(
        f"[bold]{title}:[/bold] {people.n_users:,} users{values}; errors "
        f"are of {_UNITS[people.kind]}, squared, ± one standard error over the repeats."
    )
    lines = _lines(rows)
    headings = [name for name in _HEADINGS if any(name in cells for _, cells in lines)]
    table, left_out = fitting(partial(_table, lines), headings, _DISPENSABLE, console)
    print_whole(table, console)
    if any(row.reference for row in rows):
        console.print(_CENTRAL, style="dim")
    for sentence in remarks(rows):
        console.print(sentence, style="dim", highlight=False)
    if left_out:
        console.print(_WIDER, style="dim")
    if by_value or len(people.value_names) <= _FEW_VALUES:
        show_by_value(rows, people, console)


def _lines(rows: Sequence[SweepRow]) -> list[tuple[str, dict[str, str]]]:
    """Return cells by heading for each line, and the column without which it would be empty."""
    both = len({row.setting.accounting for row in rows}) > 1
    lines = [("mse", _cells(row, row.task, both=both)) for row in rows if row.task is not None]
    central = {
        row.setting.target_epsilon: row.reference
        for row in rows
        if row.reference is not None and row.task is not None
    }
    for target, reference in central.items():
        promised = {"ε": f"{target:g}", "central ε": rounded_up(target), "local ε": "inf"}
        for name, mse in reference.lines().items():
            lines.append(("mse", {"protocol": name, "mse": f"{mse:.3g}"} | promised))
        for name, regret in reference.regrets().items():
            lines.append(("regret", {"protocol": name, "regret": f"{regret:.2g}"} | promised))
    return lines


def _table(lines: Sequence[tuple[str, dict[str, str]]], headings: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    add_columns(table, {heading: _HEADINGS[heading] for heading in headings})
    for needed, cells in lines:
        if needed in headings:
            table.add_row(*(cells.get(heading, "-") for heading in headings))
    return table


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
    if row.kind == "categorical":
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


def show_by_value(rows: Sequence[SweepRow], people: Population, console: Console) -> None:
    """Print the true figure of the largest values, and the estimates of the first repeat."""
    known = [row for row in rows if row.by_value is not None]
    if not known:
        return
    names = people.value_names
    truth = known[0].by_value.truth if known[0].by_value else np.zeros(0)
    largest = np.argsort(-truth, kind="stable")[:MAX_VALUES]
    of_means = people.kind in {"mean", "vector"}
    columns = {"value": [escaped(names[place]) for place in largest]}
    columns["true mean" if of_means else "true share"] = [
        f"{truth[place]:.4g}" for place in largest
    ]
    several = {
        "ε": len({row.setting.target_epsilon for row in known}) > 1,
        "by": len({row.setting.accounting for row in known}) > 1,
    }
    for row in known:
        heading = row.setting.protocol
        heading += f" ε {row.setting.target_epsilon:g}" * several["ε"]
        heading += f" {_BY[row.setting.accounting]}" * several["by"]
        _, estimates, errors = row.by_value or (truth, truth, truth)
        columns[heading] = [f"{estimates[at]:.4g} ± {errors[at]:.2g}" for at in largest]

    def make(headings: Sequence[str]) -> Table:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        add_columns(table, {name: "left" if name == "value" else "right" for name in headings})
        for cells in zip(*(columns[name] for name in headings), strict=True):
            table.add_row(*cells)
        return table

    headings = list(columns)
    table, left_out = fitting(make, headings, headings[:2:-1], console)
    which = "" if len(names) <= MAX_VALUES else f", the {MAX_VALUES} largest of {len(names):,}"
    console.print(
        f"By value{which}: the first repeat's estimates, unrefined, ± one standard error.",
        highlight=False,
    )
    print_whole(table, console)
    if left_out:
        console.print(_WIDER, style="dim")


def as_json(
    rows: Sequence[SweepRow], people: Population, *, by_value: bool = False
) -> list[dict[str, Any]]:
    """Return every field of every row; on request also the estimates by value."""
    fields = [row.as_json() for row in rows]
    for row, each in zip(rows, fields, strict=True):
        if by_value and row.by_value is not None:
            columns = (people.value_names, *(column.tolist() for column in row.by_value))
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
