"""Text of other parties on an operator's terminal: it steers nothing, and is no markup."""

import io

import pytest
from rich.console import Console

from deploy.terminal.console import terminal
from deploy.terminal.escape import escaped, visible
from tests.support.commands import ROOT


def test_no_name_in_colons_becomes_a_picture(capsys: pytest.CaptureFixture[str]) -> None:
    """Two labels would look alike; commands print by no other terminal."""
    terminal().print(escaped(":cat:"))
    elsewhere = [
        path.name
        for path in (ROOT / "deploy").rglob("*.py")
        if "Console(" in path.read_text(encoding="utf-8")
    ]

    assert ":cat:\n" == capsys.readouterr().out
    assert ["console.py"] == elsewhere


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
    console.print(escaped(text))

    assert text == console.file.getvalue().strip()  # type: ignore[attr-defined]  # a StringIO
