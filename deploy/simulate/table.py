"""A comparison as a table for people, and as CSV."""

import csv
import io
import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from common.guarantee import rounded_up
from deploy.simulate.row import Row


def show(rows: Sequence[Row], console: Console) -> None:
    """Print one line a setting, and why some have none."""
    for row in rows[:1]:
        console.print(
            f"[bold]{row.dataset}[/bold]: {row.n_users:,} users, {row.domain_size:,} values; "
            "errors are of shares, ± one standard error over the repeats."
        )
    table = Table()
    for heading in (
        "protocol",
        "ε",
        "by",
        "parameters",
        "messages",
        "bytes",
        "mse",
        "/ theory",
        "refined",
        "top 50",
        "max error",
        "rel.",
        "central ε",
        "local ε",
        "s",
    ):
        table.add_column(heading, justify="left" if heading in {"protocol", "by"} else "right")
    for row in rows:
        if row.task is not None:
            table.add_row(*_cells(row))
    console.print(table)
    for row in rows:
        setting = row.setting
        name = f"{setting.protocol}, ε = {setting.target_epsilon:g}, {setting.accounting}"
        if setting.refusal:
            console.print(f"{name}: left out: {setting.refusal}.", style="yellow")
        elif setting.note:
            console.print(f"{name}: {setting.note}.", style="dim")


def _cells(row: Row) -> tuple[str, ...]:
    task, mse = row.task, row.errors["mse"]
    if task is None:
        raise ValueError("a refused setting has no cells")
    return (
        row.setting.protocol,
        f"{row.setting.target_epsilon:g}",
        row.setting.accounting,
        _parameters(row),
        f"{row.messages_per_user:.4g}",
        f"{task.envelope_bytes:,}",
        f"{mse.mean:.3g} ± {mse.standard_error:.1g}",
        f"{mse.mean / row.mse_theory:.3f}" if row.mse_theory else "-",
        f"{row.errors['mse_refined'].mean:.3g}",
        f"{row.errors['mse_top50'].mean:.3g}",
        f"{row.errors['max_error'].mean:.2g}",
        f"{row.errors['relative_error'].mean:.2g}",
        rounded_up(task.central_epsilon),
        rounded_up(task.local_epsilon),
        f"{row.seconds:.2f}",
    )


def _parameters(row: Row) -> str:
    task = row.task
    if task is None:
        return ""
    said = []
    if task.mechanism.name == "local-hashing":
        said.append(f"g {task.mechanism.buckets}")
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
