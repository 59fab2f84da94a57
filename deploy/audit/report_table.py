"""An audit as tables on a terminal: what was claimed, what was found, and what failed."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table

from common.messages.guarantee import rounded_down, rounded_up
from deploy.audit.changes import changes
from deploy.audit.faults.catalogue import fault_named
from deploy.audit.finding import HEADINGS, VERDICTS_IN_WORDS, Finding, Heading
from deploy.audit.report import AuditReport
from deploy.audit.run import Rehearsed
from deploy.audit.weakest import weakest_point
from deploy.terminal.escape import escaped as shown
from deploy.terminal.tables import add_columns, fitting, print_whole

_NONE: Final = "-"
_ELSEWHERE: Final = " (another task)"
"""Behind the title of a row that is not on the audited task."""
_STYLES: Final = {True: "", False: "bold red"}
"""Of a verdict that passes or not, which is said in words beside."""

_TEXTS: Final[dict[str, Callable[[Finding], str]]] = {
    "checked": lambda finding: finding.title + _ELSEWHERE * bool(finding.subject),
    "against": lambda finding: (
        _NONE if finding.coalition == "nobody" else finding.coalition.replace("+", " + ")
    ),
}
_FIGURES: Final[dict[str, tuple[Callable[[Finding], float | None], Callable[[float], str]]]] = {
    "claimed": (lambda finding: finding.claim_epsilon, rounded_up),
    "computed": (lambda finding: finding.exact_epsilon, rounded_down),
    "measured": (lambda finding: finding.empirical_epsilon_lower, rounded_down),
    "ceiling": (lambda finding: finding.ceiling, rounded_down),
    "expected": (lambda finding: finding.expected, lambda figure: f"{figure:.4g}"),
    "found": (lambda finding: finding.measured, lambda figure: f"{figure:.4g}"),
}
_GIVE_WAY: Final = ("expected", "found", "ceiling")
"""Columns that a narrow terminal does without; audit.json and the page have them."""
_THIRD: Final = 3
"""The part of a terminal that titles may take; they are folded by words."""
_WIDER: Final = "Left out for want of room: see audit.json, or a wider terminal."
_READING: Final = (
    "Claimed, computed, measured and ceiling are epsilons: what a theorem promises, what the "
    "attack gains by calculation, what it surely gained when it was played, and the most that so "
    "many trials could show; all of a row at its delta, 0 where none stands there. Claims are "
    "rounded up, the others down."
)
_COUNTING: Final = (
    "Expected and found are shares, chances or numbers, not epsilons: what a formula says, and "
    "what was seen; audit.json has the statistic of each row. Rows of another task show that an "
    "attack works, or how a rule is kept that this task does not come to."
)


def show_report(report: AuditReport, console: Console) -> None:
    """
    Print a table for each heading, what failed, the weakest point, and what came of it all.

    No figure is cut, however narrow the console; verdicts are words, whatever their colour.
    """
    for heading in HEADINGS:
        rows = [finding for finding in report.findings if finding.heading == heading]
        if rows:
            _show_rows(heading, rows, console)
    if any(finding.claim_epsilon is not None for finding in report.findings):
        console.print(_READING, style="dim", highlight=False)
    if any(finding.expected is not None or finding.subject for finding in report.findings):
        console.print(_COUNTING, style="dim", highlight=False)
    console.print()
    _show_failed(report.failed, console)
    _show_weakest(report, console)
    if report.idle:
        idle = ", ".join(report.idle)
        console.print(f"Nothing to play on this task: {idle}.", highlight=False)
    if report.other_kinds:
        others = ", ".join(report.other_kinds)
        console.print(f"Not played for {report.task.kind} data: {others}.", highlight=False)
    _show_verdict(report, console)
    _show_planted(report, console)


def show_rehearsal(rehearsed: Sequence[Rehearsed], console: Console) -> None:
    """Print which planted faults were seen, and by which check."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    add_columns(table, dict.fromkeys(("fault", "what is wrong", "found by", "found"), "left"))
    for each in rehearsed:
        fault = each.fault
        by = f"{fault.scenario}: {fault.check}"
        found = "yes" if each.caught else "NO: fails without it" if each.said_before else "NO"
        table.add_row(fault.name, fault.says, by, found, style=_STYLES[each.caught])
    print_whole(table, console)
    missed = sum(not each.caught for each in rehearsed)
    verdict = f"{missed} NOT FOUND" if missed else "every one found"
    console.print(f"{len(rehearsed)} faults were planted, one at a time: {verdict}.")


def _show_rows(heading: Heading, rows: Sequence[Finding], console: Console) -> None:
    """Print the rows under a heading, with the columns in which one has something."""
    texts = [name for name, of in _TEXTS.items() if any(of(row) != _NONE for row in rows)]
    figures = [name for name, (of, _) in _FIGURES.items() if any(_known(of(row)) for row in rows)]

    def make(kept: Sequence[str]) -> Table:
        table = Table(
            title=f"{heading[:1].upper()}{heading[1:]}",
            title_justify="left",
            box=SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
        )
        sides: dict[str, JustifyMethod] = {
            name: "right" if name in _FIGURES else "left" for name in (*kept, "verdict")
        }
        add_columns(table, sides)
        table.columns[0].max_width = console.width // _THIRD
        table.columns[-1].min_width = max(len(word) for row in rows for word in row.verdict.split())
        for row in sorted(rows, key=lambda finding: not finding.passed):  # what failed comes last
            table.add_row(*_cells(row, kept), style=_STYLES[row.passed])
        return table

    table, left_out = fitting(make, [*texts, *figures], _GIVE_WAY, console)
    print_whole(table, console)
    if left_out:
        console.print(_WIDER, style="dim", highlight=False)
    console.print()


def _cells(row: Finding, columns: Sequence[str]) -> Iterator[str]:
    for name in columns:
        if name in _TEXTS:
            yield shown(_TEXTS[name](row))
            continue
        of, written = _FIGURES[name]
        figure = of(row)
        text = written(figure) if figure is not None and _known(figure) else _NONE
        # All epsilons of a row are at its delta; 0 goes without saying.
        yield f"{text}\nδ {rounded_up(row.delta)}" if name == "claimed" and row.delta else text
    yield row.verdict if row.passed else row.verdict.upper()


def _show_failed(failed: Sequence[Finding], console: Console) -> None:
    if not failed:
        return
    console.print("What failed", style="bold red")
    for row in failed:
        by = "" if row.coalition == "nobody" else f" ({row.coalition})"
        console.print(
            f"* {shown(row.title)}{shown(by)}: {row.verdict.upper()}, "
            f"{VERDICTS_IN_WORDS[row.verdict]}.\n  {shown(row.sentence)}",
            highlight=False,
        )
        if row.advice:
            console.print(f"  What to change: {shown(row.advice)}", highlight=False)
    console.print()


def _show_weakest(report: AuditReport, console: Console) -> None:
    point = weakest_point(report)
    epsilon, delta = point.guarantee.epsilon, point.guarantee.delta
    promised = (
        "nothing is promised against it"
        if math.isinf(epsilon)
        else f"epsilon {rounded_up(epsilon)} at delta {rounded_up(delta)}"
    )
    console.print(f"Weakest point: {shown(point.coalition)}, {promised}.", highlight=False)
    for change in changes(report, point):
        console.print(f"* {shown(change.action)}.", highlight=False)
    console.print()


def _show_verdict(report: AuditReport, console: Console) -> None:
    n_rows, n_failed = len(report.findings), len(report.failed)
    if report.passed:
        verdict = f"Passed: all {n_rows} rows are as they must be."
    elif not n_rows:
        verdict = "NOT PASSED: nothing was checked."
    else:
        verdict = f"NOT PASSED: {n_failed} of {n_rows} rows failed."
    console.print(
        f"[bold]{verdict}[/bold] An honest program fails by chance with probability "
        f"{report.false_alarm:.2g} at most ({report.tests} tests). Seed {report.seed}, "
        f"{report.mode}, {report.seconds:.0f} s.",
        highlight=False,
    )


def _show_planted(report: AuditReport, console: Console) -> None:
    """Say that what was audited is not the code as it is."""
    if not report.planted:
        return
    fault = fault_named(report.planted)
    seen = [row for row in report.failed if fault.check in row.sentence]
    found = (
        f"Found by {seen[0].scenario}."
        if seen
        else f"Not found by what was played: {fault.scenario} has the check that finds it."
    )
    console.print(f"A fault was planted: {fault.says} ({fault.name}). {found}", highlight=False)


def _known(figure: float | None) -> bool:
    return figure is not None and not math.isnan(figure)
