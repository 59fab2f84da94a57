"""Text of other parties on an operator's terminal: it steers nothing, and is no markup."""

import dataclasses
import io
from collections.abc import Callable
from typing import Final

import pytest
from rich.console import Console

from common.ledger_entry import verify
from common.task_summary import TaskState
from deploy import ledger, population_budgets, task_view
from deploy.foreign_text import shown, visible
from deploy.screen import terminal
from tests.support import budgets
from tests.support.commands import ROOT
from tests.support.ledger_entries import first_entry
from tests.support.tasks import published
from tests.support.wire_parsers import _summary

_HOSTILE: Final = "\x1b[2Jx[/y]"
_READABLE: Final = "\\x1b[2Jx[/y]"
_TASK: Final = published().task
_ENTRY: Final = first_entry(population=_HOSTILE)
_SUMMARY: Final = dataclasses.replace(
    _summary(TaskState.UNUSABLE), failure=_HOSTILE, protocol=_HOSTILE, population=_HOSTILE
)


def test_no_name_in_colons_becomes_a_picture(capsys: pytest.CaptureFixture[str]) -> None:
    """Two labels would look alike; commands print by no other terminal."""
    terminal().print(shown(":cat:"))
    elsewhere = [
        path.name
        for path in (ROOT / "deploy").rglob("*.py")
        if "Console(" in path.read_text(encoding="utf-8")
    ]

    assert ":cat:\n" == capsys.readouterr().out
    assert ["screen.py"] == elsewhere


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("São Paulo, 東京 🙂", "São Paulo, 東京 🙂"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("a\nb\rc\td", "a\\nb\\rc\\td"),
        ("abc\u202edef", "abc\\u202edef"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_would_steer_a_terminal_can_be_read_instead(text: str, written: str) -> None:
    """Letters and pictures stay as they are."""
    assert written == visible(text)


@pytest.mark.parametrize(
    "text", ["[/x]", "[red]a[/red]", "\\[b]", "[link=http://x]y", "a\\", "a\\\\", "[b]\\"]
)
def test_nothing_in_it_is_markup(text: str) -> None:
    """It is printed as it is written, and ends no command."""
    console = Console(file=io.StringIO(), width=80)
    console.print(shown(text))

    assert text == console.file.getvalue().strip()  # type: ignore[attr-defined]  # a StringIO


@pytest.mark.parametrize(
    ("printed", "times"),
    [
        (lambda to: task_view.show(_SUMMARY.task_digest, _TASK, _SUMMARY, to), 1),
        (lambda to: task_view.show_list([_SUMMARY], to), 2),
        (lambda to: ledger.show([_ENTRY], verify([_ENTRY]), [], to), 1),
        (lambda to: population_budgets.show([budgets.population_budgets(_HOSTILE)], to), 1),
    ],
)
def test_no_table_passes_on_what_another_party_made_up(
    printed: Callable[[Console], None], times: int
) -> None:
    """A failure, a protocol, a population: readable, and inert."""
    console = Console(file=io.StringIO(), width=300)
    printed(console)
    text = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO

    assert times == text.count(_READABLE)
    assert "\x1b" not in text
