"""Print an audit as terminal tables: claims, measurements and failures."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from audit.finding import VERDICT_DESCRIPTIONS, Finding, Heading, failed
from audit.report.audit_report import AuditReport, SelfTestResult, changes
from common.messages.guarantee import rounded_down, rounded_up
from deploy.terminal.escape import escaped
from deploy.terminal.tables import add_columns, fit_table, print_whole

_NONE: Final = "-"
_STYLES: Final = {True: "", False: "bold red"}

_FIGURES: Final[dict[str, tuple[str, Callable[[float], str]]]] = {
    "claimed": ("claim_epsilon", rounded_up),
    "computed": ("exact_epsilon", rounded_down),
    "measured": ("empirical_epsilon_lower", rounded_down),
    "ceiling": ("ceiling", rounded_down),
    "measured δ": ("empirical_delta_lower", rounded_down),
    "expected": ("expected", "{:.4g}".format),
    "found": ("measured", "{:.4g}".format),
}
_DISPENSABLE: Final = ("expected", "found", "measured δ", "ceiling")
"""Columns dropped on a narrow terminal; audit.json and the page contain them."""
_TITLE_FRACTION: Final = 3
"""Titles use at most the terminal's width divided by this."""
_LEGEND: Final[Mapping[str, str]] = {
    "(…)": "the attacked design, if it is not this task",
    "claimed": "a theorem's upper bound on epsilon, at the delta below it or at 0",
    "computed": "epsilon that the attack reaches, calculated",
    "measured": "epsilon that the attack reached in this run: a lower bound",
    "ceiling": "largest epsilon that this number of trials could show",
    "measured δ": "delta that the attack reached at the claimed epsilon: a lower bound",
    "expected": "share, probability or number given by a formula",
    "found": "share, probability or number in this run",
    **VERDICT_DESCRIPTIONS,
}
"""Explanations of columns and verdicts; those that occur in the tables are printed."""


def show_report(report: AuditReport, console: Console) -> None:
    """Print tables of whole figures, a legend, the failures, the weakest point and the verdict."""
    show_line = partial(console.print, highlight=False)
    _show_tables(report, console)
    for row in report.failed:
        show_line(
            f"FAILED: {escaped(row.title)}: {row.verdict.upper()}, "
            f"{VERDICT_DESCRIPTIONS[row.verdict]}.\n  {escaped(row.sentence)} "
            f"{escaped(row.advice)}",
            style="bold red",
        )
    weakest = report.weakest
    claim = "nothing is promised against it"
    if math.isfinite(epsilon := weakest.epsilon):
        claim = f"epsilon {rounded_up(epsilon)} at delta {rounded_up(weakest.delta)}"
    show_line(f"Weakest point: {escaped(weakest.coalition)}, {claim}.")
    for change in changes(report):
        show_line(f"* {escaped(change.action)}.")
    show_line()
    if report.idle:
        show_line(f"Nothing to run on this task: {', '.join(report.idle)}.")
    if report.other_kinds:
        show_line(f"Not run for {report.task.kind} data: {', '.join(report.other_kinds)}.")
    if report.other_shufflers:
        show_line(f"Not run with {report.shufflers}: {', '.join(report.other_shufflers)}.")
    verdict = "" if report.passed else "NOT PASSED: "
    show_line(
        f"[bold]{verdict}{report.headline}.[/bold] Correct code fails by chance with probability "
        f"at most {report.false_alarm:.2g} ({report.tests} tests). Seed {report.seed}, "
        f"{report.mode}, {report.seconds:.0f} s."
    )


def _show_tables(report: AuditReport, console: Console) -> None:
    """Print a table per heading, failures last, and a legend of columns and verdicts."""
    shown, narrow = set[object](), False
    for heading, rows in report.by_heading.items():
        if rows:
            table, dropped = _table(heading, sorted(rows, key=lambda row: not row.passed), console)
            print_whole(table, console)
            console.print()
            shown |= {column.header for column in table.columns} | {row.verdict for row in rows}
            shown |= {"(…)" for row in rows if row.subject}
            narrow |= dropped
    legend = Table.grid("shown", "meaning", padding=(0, 2, 0, 0))
    for name in filter(shown.__contains__, _LEGEND):
        legend.add_row(name, f"{_LEGEND[name]}.")
    console.print(legend, style="dim")
    if narrow:
        console.print("A wider terminal shows more columns; the JSON has them all.", style="dim")
    console.print()


def _table(heading: Heading, rows: Sequence[Finding], console: Console) -> tuple[Table, bool]:
    """Return the table of a heading's findings, and whether nonempty columns were dropped."""
    cells = {
        "checked": [escaped(row.title + f" ({row.subject})" * bool(row.subject)) for row in rows],
        "against": [
            _NONE if row.coalition == "nobody" else escaped(row.coalition.replace("+", " + "))
            for row in rows
        ],
        **{name: [_figure(name, row) for row in rows] for name in _FIGURES},
        "verdict": [row.verdict if row.passed else row.verdict.upper() for row in rows],
    }

    def make(columns: Sequence[str]) -> Table:
        table = Table(
            title=heading.capitalize(),
            title_justify="left",
            box=SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
        )
        add_columns(table, {name: "right" if name in _FIGURES else "left" for name in columns})
        table.columns[0].max_width = console.width // _TITLE_FRACTION
        table.columns[-1].min_width = max(len(word) for row in rows for word in row.verdict.split())
        for row, *texts in zip(rows, *(cells[name] for name in columns), strict=True):
            table.add_row(*texts, style=_STYLES[row.passed])
        return table

    filled = [name for name, texts in cells.items() if set(texts) != {_NONE}]
    return fit_table(make, filled, _DISPENSABLE, console)


def _figure(column: str, row: Finding) -> str:
    name, format_figure = _FIGURES[column]
    figure: float | None = getattr(row, name)
    text = _NONE if figure is None or math.isnan(figure) else format_figure(figure)
    return f"{text}\nδ {rounded_up(row.delta)}" if column == "claimed" and row.delta else text


def show_self_tests(results: Sequence[SelfTestResult], console: Console) -> None:
    """Print each scenario's self-test result, its weakness and its first failed finding."""
    for result in results:
        show_line = partial(console.print, highlight=False)
        show_line(f"{result.scenario.name}: {result.outcome}", style=_STYLES[result.passed])
        show_line(f"  weakness: {result.scenario.weakness.sentence}")
        for row in (failed(result.honest) or failed(result.weakened))[:1]:
            show_line(f"  {row.verdict.upper()}: {escaped(row.sentence)}")
    n_failed = sum(not result.passed for result in results)
    verdict = f"{n_failed} FAILED THE SELF-TEST" if n_failed else "every weakness was detected"
    console.print(f"Scenarios run with a weakness: {len(results)}; {verdict}.")
