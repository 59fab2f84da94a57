import dataclasses
import io
import math
import re
from collections.abc import Callable

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

    ceilings = () if "Left out for want of room" in text else ("11.98",)
    for figure in ("0.1082", "0.1079", "0.0612", "0.3611", "0.0112", *ceilings):
        assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.])", text), figure
    assert "contradicted" in text
    assert max(map(len, text.splitlines())) <= width


def test_claims_are_rounded_up_and_attacks_down() -> None:
    """So that neither side looks better than it is."""
    row = finding(
        heading="anonymity",
        coalition="analyzer",
        claim_epsilon=0.123_41,
        exact_epsilon=0.123_49,
        empirical_epsilon_lower=0.098_769,
        ceiling=11.989,
    )
    text = _at(80, report_of(demo_task(), (row,)))

    for figure in ("0.1235", "0.1234", "0.09876", "11.98"):
        assert figure in text


def test_what_failed_is_last_in_capitals_and_said_again() -> None:
    """A word tells it, whatever the colour."""
    text = _at(80, failed_report())
    table, _, behind = text.partition("What failed")

    assert table.index("A batch") < table.index("CONTRADICTED") < table.index("Correctness")
    assert "told two values apart far better" in behind
    assert "What to change: Find out why" in behind
    assert "NOT PASSED: 1 of 10 checks failed." in behind
    assert "What failed" not in _at(80, demo_report())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (demo_report, "Weakest point: shuffler+analyzer, epsilon 4 at delta 0."),
        (noiseless_report, "Weakest point: shuffler+analyzer, nothing is promised against it."),
    ],
    ids=["demo", "noiseless"],
)
def test_the_weakest_point_is_named(make: Callable[[], AuditReport], words: str) -> None:
    """With what to change."""
    text = _at(80, make())

    assert words in text
    assert "different organisations" in text


def test_nothing_checked_is_not_passed() -> None:
    """Nor is an empty table printed."""
    text = _at(80, report_of(demo_task(), ()))

    assert "NOT PASSED: nothing was checked." in text
    assert "Anonymity" not in text


def test_what_had_nothing_to_play_is_named() -> None:
    """A scenario whose rows are missing was not forgotten."""
    report = dataclasses.replace(report_of(demo_task(), ()), idle=("skippers", "partition"))

    assert "Nothing to run on this task: skippers, partition." in _at(80, report)


def test_a_row_of_another_task_is_marked() -> None:
    """Its figures are not those of the audited task."""
    row = finding(title="Read by both", subject="pureDUMP, 3 dummies")

    text = " ".join(_at(200, report_of(demo_task(), (row,))).split())

    assert "Read by both (another task)" in text


def test_foreign_text_steers_no_terminal() -> None:
    """Titles and sentences may hold a task's labels."""
    row = finding(
        title="[red]\x1b[2J",
        sentence="[bold]\u202eevil",
        advice="[/]",
        verdict="broken",
        expected=math.nan,
    )
    text = _at(200, report_of(demo_task(), (dataclasses.replace(row, coalition="[x]+\x07"),)))

    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\x07" not in text
    assert "[red]" in text
    assert "[bold]" in text
