"""A comparison of protocols for texts, numbers or pairs as a table for people, and as CSV."""

import csv
import io
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from common.messages.guarantee import rounded_up
from common.protocols import Kind
from deploy.datasets.sample_people import SamplePeople
from deploy.simulate.kinds import KindRow
from deploy.terminal.tables import add_columns, print_whole

_OF: dict[Kind, str] = {
    "string": "shares of candidates",
    "mean": "a mean",
    "vector": "means",
    "key-value": "shares of owners",
}


def show(rows: Sequence[KindRow], people: SamplePeople, console: Console) -> None:
    """Print a line a protocol and target, and what a trusted party would err by."""
    console.print(people.title)
    console.print(
        f"{len(people.values):,} users; errors are of {_OF[people.kind]}, squared, ± one standard "
        "error over the repeats."
    )
    shrinks = any(row.mse_shrunk is not None for row in rows)
    headings = ("ε", "mse", "theory", *(("shrunk",) if shrinks else ()), "central ε", "local ε")
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    add_columns(table, {"protocol": "left", **dict.fromkeys(headings, "right")})
    for row in rows:
        if row.design is None or row.mse is None:
            continue
        table.add_row(
            row.protocol,
            f"{row.target_epsilon:g}",
            row.mse.written(".3g"),
            "-" if row.design.biased else f"×{row.mse.mean / row.mse_theory:.2f}",
            *((f"{row.mse_shrunk.mean:.3g}",) if row.mse_shrunk is not None else ()),
            rounded_up(row.design.task.central_epsilon),
            rounded_up(row.design.task.local_epsilon),
        )
    for target, central in {row.target_epsilon: row.mse_central or {} for row in rows}.items():
        for name, error in central.items():
            blank = ("",) if shrinks else ()
            table.add_row(
                f"[dim]{name}[/dim]", f"{target:g}", f"{error:.3g}", "", *blank, f"{target:g}", ""
            )
    print_whole(table, console)
    for row in rows:
        if row.refusal:
            console.print(f"{row.protocol} at {row.target_epsilon:g} is left out: {row.refusal}.")
    if people.kind == "string":
        console.print(
            "For rappor theory is a floor: candidates that share bits, and frequent texts that are "
            "none, add to it.",
            style="dim",
        )
    if any(row.design is not None and row.design.biased for row in rows):
        console.print(
            "For multi-rphm there is no theory: what its projection leaves out follows from the "
            "values.",
            style="dim",
        )


def as_csv(rows: Sequence[KindRow]) -> str:
    """Write every field of every row; refused ones have empty cells."""
    fields = [row.as_json() for row in rows]
    names = list(dict.fromkeys(name for each in fields for name in each))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(fields)
    return text.getvalue()
