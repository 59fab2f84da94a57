"""Comparisons and experiments as tables for people; comparisons as CSV and as JSON, too."""

import csv
import io
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress as RichProgress
from rich.table import Table

from common.messages.guarantee import rounded_up
from common.task.task import Task
from deploy.planning.value_design import BIASED
from deploy.simulate.baselines import CENTRAL_NAMES
from deploy.simulate.plot import Point
from deploy.simulate.row import SweepRow
from deploy.terminal.escape import escaped
from deploy.terminal.tables import add_columns, fit_table, print_whole

Progress = Callable[[int, int], None]
"""Called with how much of an experiment is done, and of how much."""

_MAX_VALUES: Final = 20
"""Lines of a table by value."""
_FEW_VALUES: Final = 12
"""Up to so many values the table by value is always shown."""
_KEPT: Final = 3
"""Columns of an experiment's or of values' table that never give way."""
_ACCOUNTINGS: Final = {"published": "paper", "tight": "tight"}
_TEXTS: Final = {"protocol", "by", "parameters", "value"}
"""Headings of text; all others are of figures."""
_UNITS: Final = {
    "categorical": "shares",
    "string": "shares of candidates",
    "mean": "a mean",
    "vector": "means",
    "key-value": "shares of owners",
}
_LIMITS_OF_THEORY: Final = {
    "rappor": "For rappor theory is a floor: candidates that share bits, and frequent texts that "
    "are none, add to it.",
    "multi-rphm": "For multi-rphm there is no theory: the loss by its projection follows from the "
    "values.",
}


_COLUMNS: Final = {
    "protocol": ("protocol", ""),
    "ε": ("target_epsilon", "g"),
    "by": ("by", ""),
    "msgs": ("messages_per_user", ".4g"),
    "mse": ("written_mse", ""),
    "theory": ("theory", ""),
    "refined": ("mse_refined", ".3g"),
    "shrunk": ("mse_shrunk", ".3g"),
    "central ε": ("rounded_central_epsilon", ""),
    "local ε": ("rounded_local_epsilon", ""),
    "top 50": ("mse_top50", ".3g"),
    "bytes": ("bytes_per_user", ","),
    "seconds": ("seconds", ".2f"),
    "max error": ("max_error", ".2g"),
    "rel. error": ("relative_error", ".2g"),
    "parameters": ("parameters", ""),
    "regret": ("regret", ".2g"),
}
"""Columns of a comparison: a row's field, or one that `_cells` adds, and its format."""
_ALWAYS: Final = ("protocol", "ε", "by", "mse", "central ε", "local ε")
"""Headings of a comparison that a narrow terminal keeps; others give way from the right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of one experiment."""

    title: str
    """The collection and its people; the beginning of the printed text, and above figures."""
    explanation: str
    tables: Mapping[str, Sequence[Mapping[str, str]]]
    """Rows by the table's heading; cells by column, the same columns in every row."""
    figures: Any
    """For JSON."""
    points: Sequence[Point]


@contextmanager
def progress_bar(console: Console) -> Generator[Callable[[str, int, int], None]]:
    """Yield a function that shows a step, how much of it is done, and of how much."""
    columns = RichProgress.get_default_columns()
    with RichProgress(*columns, console=console, transient=True) as bar:
        shown = bar.add_task("", total=None)
        yield lambda step, done, total: bar.update(
            shown, description=step, completed=done, total=total
        )


def show_report(report: Report, console: Console) -> None:
    """Print the outcome of an experiment."""
    text = f"[bold]{escaped(report.title)}:[/bold] {report.explanation}"
    console.print(text, highlight=False)
    for heading, rows in report.tables.items():
        console.print(f"{heading}.", highlight=False)
        _print(rows, console)


def show(rows: Sequence[SweepRow], console: Console, *, by_value: bool = False) -> None:
    """Print one line a setting, notes on how it came about, and estimates by value."""
    people = rows[0].population
    values = f", {people.domain_size:,} values" * (people.domain_size > 1)
    title = escaped(people.title.rstrip("."))
    console.print(
        f"[bold]{title}:[/bold] {people.n_users:,} users{values}; errors "
        f"are of {_UNITS[people.kind]}, squared, ± one standard error over the repeats."
    )
    both = len({row.accounting for row in rows}) > 1
    lines = [_cells(row, row.task, both=both) for row in rows if row.task is not None]
    _print(lines + _central_cells(rows), console, _ALWAYS)
    if any(row.reference for row in rows):
        console.print(
            "Central: by a collector who is trusted with every value; exact figures, nothing "
            "simulated.",
            style="dim",
        )
    for sentence in remarks(rows):
        console.print(sentence, style="dim", highlight=False)
    if by_value or len(people.value_names) <= _FEW_VALUES:
        _show_by_value(rows, console)


def remarks(rows: Sequence[SweepRow]) -> list[str]:
    """Return sentences: refusals and notes on parameters, each once, and limits of theory."""
    targets: dict[str, list[float]] = {}
    for row in rows:
        if row.task is None:
            by = _ACCOUNTINGS[row.accounting]
            text = f"{row.protocol} ({by}) is left out: {row.refusal}"
        else:
            text = f"{row.protocol}: {row.note}" if row.note else ""
        targets.setdefault(text, []).append(row.target_epsilon)
    names = {row.protocol for row in rows if row.task is not None}
    return [
        f"{text} (ε = {', '.join(f'{target:g}' for target in sorted(found))})."
        for text, found in targets.items()
        if text
    ] + [sentence for name, sentence in _LIMITS_OF_THEORY.items() if name in names]


def _print(rows: Sequence[Mapping[str, str]], console: Console, always: Sequence[str] = ()) -> None:
    """Print as many columns as fit, `always` or the first three among them."""
    headings = list(dict.fromkeys(heading for cells in rows for heading in cells))
    optional = [name for name in headings if name not in (always or headings[:_KEPT])]

    def make(kept: Sequence[str]) -> Table:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        add_columns(table, {name: "left" if name in _TEXTS else "right" for name in kept})
        for cells in rows:
            table.add_row(*(cells.get(heading, "-") for heading in kept))
        return table

    table, left_out = fit_table(make, headings, optional[::-1], console)
    print_whole(table, console)
    if left_out:
        console.print("A wider terminal shows more figures; --json has them all.", style="dim")


def _cells(row: SweepRow, task: Task, *, both: bool) -> dict[str, str]:
    """Return every cell of a line by its heading."""
    fields = row.as_json()
    has_theory = fields["mse_theory"] > 0 and row.protocol not in BIASED
    fields |= {
        "written_mse": row.errors["mse"].written(".3g"),
        "theory": f"×{fields['mse'] / fields['mse_theory']:.2f}" if has_theory else "-",
        "rounded_central_epsilon": rounded_up(task.central_epsilon),
        "rounded_local_epsilon": rounded_up(task.local_epsilon),
    }
    if both:
        fields["by"] = _ACCOUNTINGS[row.accounting]
    if row.population.kind == "categorical":
        fields["parameters"] = _parameters(task)
    return {
        heading: format(fields[name], form)
        for heading, (name, form) in _COLUMNS.items()
        if name in fields
    }


def _central_cells(rows: Sequence[SweepRow]) -> list[dict[str, str]]:
    """Return the cells of the trusted collector's mechanisms at each target."""
    known = {row.target_epsilon: row.reference for row in rows if row.task is not None}
    return [
        {
            "protocol": CENTRAL_NAMES[name],
            "ε": f"{target:g}",
            "regret" if "regret" in name else "mse": f"{error:.3g}",
            "central ε": rounded_up(target),
            "local ε": "inf",
        }
        for target, errors in known.items()
        for name, error in errors.items()
    ]


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
    known = [(row, row.repeats[0].by_value) for row in rows if row.repeats]
    shown = [(row, found) for row, found in known if found is not None]
    if not shown:
        return
    people, truth = rows[0].population, shown[0][1].truth
    largest = np.argsort(-truth, kind="stable")[:_MAX_VALUES]
    true = "true mean" if people.kind in {"mean", "vector"} else "true share"
    lines = [
        {"value": escaped(people.value_names[place]), true: f"{truth[place]:.4g}"}
        for place in largest
    ]
    for row, (_, estimates, errors) in shown:
        heading = f"{row.protocol} ε {row.target_epsilon:g}"
        if people.kind == "categorical":
            heading += f" {_ACCOUNTINGS[row.accounting]}"
        for cells, place in zip(lines, largest, strict=True):
            cells[heading] = f"{estimates[place]:.4g} ± {errors[place]:.2g}"
    size = len(people.value_names)
    which = "" if size <= _MAX_VALUES else f", the {_MAX_VALUES} largest of {size:,}"
    console.print(
        f"By value{which}: the first repeat's estimates, unrefined, ± one standard error.",
        highlight=False,
    )
    _print(lines, console)


def as_csv(rows: Sequence[SweepRow]) -> str:
    """Write every field of every row; refused ones have empty cells."""
    fields = [row.as_json() for row in rows]
    names = list(dict.fromkeys(name for each in fields for name in each))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(fields)
    return text.getvalue()
