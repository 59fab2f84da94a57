import dataclasses
import io
import math
import re

import pytest
from rich.console import Console

from deploy.audit.report.audit_report import AuditReport
from deploy.audit.report.report_table import show_report
from tests.support.audit_reports import (
    demo_report,
    demo_task,
    failed_report,
    finding,
    noiseless_report,
    report_of,
)


def _at(width: int, report: AuditReport) -> str:
    written = io.StringIO()
    show_report(report, Console(file=written, width=width, emoji=False))
    return written.getvalue()


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_figure_is_cut(width: int) -> None:
    """Nor a verdict's word; and no line is longer than the terminal."""
    text = _at(width, demo_report())

    ceilings = ("11.98",) if width == 200 else ()
    for figure in ("0.1082", "0.1079", "0.0612", "0.3611", "0.0112", *ceilings):
        assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.])", text), figure
    assert "contradicted" in text
    assert max(map(len, text.splitlines())) <= width


def test_failures_are_in_capitals_and_repeated_at_the_end() -> None:
    """A word marks them, whatever the colour."""
    text = _at(80, failed_report())
    table, _, behind = text.partition("FAILED")
    behind = " ".join(behind.split())

    assert table.index("A batch") < table.index("CONTRADICTED") < table.index("Correctness")
    for part in ("told two values apart", "Find out why", "NOT PASSED: 1 of 9 checks failed."):
        assert part in behind, part
    demo = _at(80, demo_report())
    assert "FAILED" not in demo
    assert "Weakest point: shuffler+analyzer, epsilon 4 at delta 0." in demo
    assert "nothing is promised against it" in _at(80, noiseless_report())


def test_idle_scenarios_and_empty_runs_are_marked() -> None:
    """A scenario without rows was not forgotten."""
    text = _at(80, dataclasses.replace(report_of(demo_task(), ()), idle=("skippers", "partition")))

    assert "NOT PASSED: nothing was checked." in text
    assert "Anonymity" not in text
    assert "Nothing to run on this task: skippers, partition." in text


def test_foreign_text_steers_no_terminal() -> None:
    """Titles and sentences may hold a task's labels."""
    row = finding(
        title="[red]\x1b[2J",
        sentence="[bold]\u202eevil",
        advice="[/]",
        verdict="broken",
        coalition="[x]+\x07",
        subject="pureDUMP",
        expected=math.nan,
    )
    text = _at(200, report_of(demo_task(), (row,)))

    assert not {"\x1b", "\u202e", "\x07"} & set(text)
    assert "[red]" in text
    assert "(another task)" in text
    assert "[bold]" in text
