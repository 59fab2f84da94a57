"""Print comparisons and experiments as tables, and write comparisons as CSV."""

import csv
import io
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.progress import Progress as RichProgress

from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.common.task.kinds import KINDS
from shuffledp.common.task.task import Task
from shuffledp.deploy.results.export import columns_of
from shuffledp.deploy.terminal.escape import escaped
from shuffledp.deploy.terminal.tables import CLAIM_ROOM_NOTE, print_rows
from shuffledp.lab.planning.central_mechanisms import CENTRAL_NAMES
from shuffledp.lab.planning.question import default_local_cap
from shuffledp.lab.simulate.accuracy import LEAST_REPEATS, TOP
from shuffledp.lab.simulate.plot import Point
from shuffledp.lab.simulate.populations import SIMULATED_KINDS
from shuffledp.lab.simulate.sweep import SweepRow

Progress = Callable[[int, int], None]
"""Function that receives an experiment's completed work and its total."""

_MAX_VALUES: Final = 20
_ALWAYS_SHOWN: Final = 12
"""Maximum number of values for which --by-value is the default."""
_ACCOUNTINGS: Final = {"published": "paper", "tight": "tight"}
_TEXT_HEADINGS: Final = {"protocol", "by", "parameters", "value"}
"""Headings of text columns, which are aligned left; numbers are aligned right."""
_LIMITS_OF_THEORY: Final = {
    "rappor": "For rappor, theory is a lower bound: candidates that share bits, and frequent texts "
    "that are not candidates, increase the error.",
    "multi-rphm": "For multi-rphm, there is no theory: the bias of its projection depends on the "
    "values.",
}

_COLUMNS: Final = {
    "protocol": ("protocol", ""),
    "ε": ("target_epsilon", "g"),
    "by": ("by", ""),
    "msgs": ("messages_per_user", ".4g"),
    "mse": ("written_mse", ""),
    "theory": ("theory", ""),
    "central ε": ("rounded_central_epsilon", ""),
    "local ε": ("rounded_local_epsilon", ""),
    "coalition ε": ("rounded_coalition_epsilon", ""),
    "refined": ("mse_refined", ".3g"),
    "shrunk": ("mse_shrunk", ".3g"),
    "raw": ("mse_raw", ".3g"),
    "raw theory": ("raw_theory", ""),
    "margins": ("mse_margins", ".3g"),
    "margins theory": ("margins_theory", ""),
    "sure from": ("sure_share", ".2%"),
    "found": ("found", ".1%"),
    "false": ("false", ".3g"),
    "top 50": ("mse_top50", ".3g"),
    "bytes": ("bytes_per_user", ","),
    "seconds": ("seconds", ".2f"),
    "max error": ("max_error", ".2g"),
    "rel. error": ("relative_error", ".2g"),
    "parameters": ("parameters", ""),
    "regret": ("regret", ".2g"),
}
"""Columns of a comparison by heading: a field of the row or of `_cells`, and its format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of one experiment."""

    title: str
    explanation: str
    tables: Mapping[str, Sequence[Mapping[str, str]]]
    """Rows by title of the table; a row maps every column's heading to its cell."""
    figures: Any
    points: Sequence[Point]


@contextmanager
def progress_bar(console: Console) -> Generator[Callable[[str, int, int], None]]:
    """Yield a function that shows a step's name, the work done and the total."""
    columns = RichProgress.get_default_columns()
    with RichProgress(*columns, console=console, transient=True) as bar:
        shown = bar.add_task("", total=None)
        yield lambda step, done, total: bar.update(
            shown, description=step, completed=done, total=total
        )


def show_report(report: Report, console: Console) -> None:
    """Print an experiment's explanation and tables."""
    text = f"[bold]{escaped(report.title)}:[/bold] {report.explanation}"
    console.print(text, highlight=False)
    for heading, rows in report.tables.items():
        console.print(f"{heading}.", highlight=False)
        print_rows(rows, console, _TEXT_HEADINGS, fixed=3)


def show(rows: Sequence[SweepRow], console: Console, *, by_value: bool = False) -> None:
    """Print a comparison: a row per setting, notes on its parameters, and estimates by value."""
    people = rows[0].population
    kind = SIMULATED_KINDS[people.kind]
    sizes = f", {people.domain_size:,} {kind.sized}" * (people.domain_size > 1)
    title = escaped(people.title.rstrip("."))
    repeats = max(len(row.repeats) for row in rows)
    over = f"{repeats} repeat{'s' * (repeats != 1)}"
    interval = f", over {over}; at least {LEAST_REPEATS} would give intervals"
    if repeats >= LEAST_REPEATS:
        interval = f", ± half of a 95 % interval (Student's t) over {over}"
    errors = f"; mean squared errors of {kind.units}{interval}" * (repeats > 0)
    console.print(f"[bold]{title}:[/bold] {people.n_users:,} users{sizes}{errors}.")
    both = len({row.accounting for row in rows}) > 1
    lines = [_cells(row, row.task, both=both) for row in rows if row.task is not None]
    central = _central_cells(rows)
    print_rows(lines + central, console, _TEXT_HEADINGS, fixed=2 + both)
    notes = [
        "Theory: ×1 is expected. docs/researchers/simulation.md explains all columns.",
        f"Central ε is what a task claims. {CLAIM_ROOM_NOTE}",
    ] * bool(lines)
    if central:
        notes.append(
            "Central mechanisms are run by a curator who sees every value; their errors are exact, "
            "not simulated."
        )
    for sentence in notes + remarks(rows):
        console.print(sentence, style="dim", highlight=False)
    if by_value or len(people.value_names) <= _ALWAYS_SHOWN:
        _show_by_value(rows, console)


def remarks(rows: Sequence[SweepRow]) -> list[str]:
    """Return sentences on the data, skipped settings, parameters, and the limits of theory."""
    targets: dict[str, list[float]] = {}
    for row in rows:
        text = f"{row.protocol}: {row.note}" * bool(row.note)
        if row.task is None:
            text = f"{row.protocol} ({_ACCOUNTINGS[row.accounting]}) is skipped: {row.refusal}"
        targets.setdefault(text, []).append(row.target_epsilon)
    names = {row.protocol for row in rows if row.task is not None}
    limits = [escaped(sentence) for sentence in rows[0].population.remarks]
    limits += [sentence for name, sentence in _LIMITS_OF_THEORY.items() if name in names]
    cap = default_local_cap(rounds=1)
    tasks = [row.task for row in rows if row.task is not None]
    if any(task.local_epsilon > cap and not task.relay for task in tasks):
        limits.append(
            f"Local epsilon above {cap:g}: devices with default settings refuse it; compare with "
            f"--local-cap {cap:g}."
        )
    return [
        f"{text} (ε = {', '.join(f'{target:g}' for target in sorted(epsilons))})."
        for text, epsilons in targets.items()
        if text
    ] + limits


def _cells(row: SweepRow, task: Task, *, both: bool) -> dict[str, str]:
    fields = row.as_json()
    has_theory = fields["mse_theory"] > 0 and not task.protocol_row.biased
    fields |= {
        "written_mse": row.errors["mse"].format(".3g"),
        "theory": f"×{fields['mse'] / fields['mse_theory']:.2f}" if has_theory else "-",
        "rounded_central_epsilon": rounded_up(task.central_epsilon),
        "rounded_local_epsilon": rounded_up(task.local_epsilon),
    }
    for part in ("raw", "margins"):
        if f"theory_{part}" in fields:
            fields[f"{part}_theory"] = f"×{fields[f'mse_{part}'] / fields[f'theory_{part}']:.2f}"
    if task.relay:
        fields["rounded_coalition_epsilon"] = rounded_up(task.coalition_epsilon)
    if both:
        fields["by"] = _ACCOUNTINGS[row.accounting]
    if KINDS[row.population.kind].histogram:
        fields["parameters"] = _parameters(task)
    return {
        heading: format(fields[name], form)
        for heading, (name, form) in _COLUMNS.items()
        if name in fields and (name != "mse_top50" or row.population.domain_size > TOP)
    }


def _central_cells(rows: Sequence[SweepRow]) -> list[dict[str, str]]:
    """Return the cells of the central mechanisms, a row per target and mechanism."""
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
    hashed = task.mechanism.hash_buckets
    parts = [f"g {hashed}" if hashed else "plain"]
    if task.mechanism.fan_out:
        parts = [f"{len(task.views)} levels, fan-out {task.mechanism.fan_out}"]
    if math.isfinite(task.local_epsilon):
        parts.append(f"ε0 {task.local_epsilon:.3g}")
    if task.shuffler.keep_probability < 1:
        parts.append(f"keeps {task.shuffler.keep_probability:.3g}")
    if task.shuffler.most_dummies:
        means = [task.hop(number).noises[-1].moments()[0] for number in range(len(task.shufflers))]
        by = ", two shufflers" * (task.relay is not None)
        parts.append(f"{' + '.join(f'{mean:.4g}' for mean in means)} per item{by}")
    return ", ".join(parts)


def _show_by_value(rows: Sequence[SweepRow], console: Console) -> None:
    """Print the largest true figures beside the first repeat's estimates of them."""
    shown = [(row, known) for row in rows if row.repeats and (known := row.repeats[0].by_value)]
    if not shown:
        return
    people, truth = rows[0].population, shown[0][1].truth
    largest = np.argsort(-truth, kind="stable")[:_MAX_VALUES]
    largest = np.sort(largest) if "edges" in people.question else largest
    true = SIMULATED_KINDS[people.kind].true_figure
    lines = [
        {"value": escaped(people.value_names[index]), true: f"{truth[index]:.4g}"}
        for index in largest
    ]
    for row, (_, estimates, errors) in shown:
        heading = f"{row.protocol} ε {row.target_epsilon:g}"
        if KINDS[people.kind].histogram:
            heading += f" {_ACCOUNTINGS[row.accounting]}"
        for cells, index in zip(lines, largest, strict=True):
            cells[heading] = f"{estimates[index]:.4g} ± {errors[index]:.2g}"
    size = len(people.value_names)
    part = "" if size <= _MAX_VALUES else f", the {_MAX_VALUES} largest of {size:,}"
    text = f"By value{part}: the first repeat's unrefined estimates, ± one standard error."
    console.print(text, highlight=False)
    print_rows(lines, console, _TEXT_HEADINGS, fixed=2)


def as_csv(rows: Sequence[SweepRow]) -> str:
    """Return the comparison as CSV text, a column per JSON field; skipped rows have empty cells."""
    columns, text = columns_of([row.as_json() for row in rows]), io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([[*columns], *zip(*columns.values(), strict=True)])
    return text.getvalue()
