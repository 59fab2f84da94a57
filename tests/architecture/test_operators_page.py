"""The operators' pages agree with the table of calls."""

import re
from pathlib import Path
from typing import Final

import pytest

from common.runtime.access import CALLS, Call, Caller

_ROOT: Final = Path(__file__).parents[2]
_PAGES: Final = {"Certificates": "keys.md", "Limits": "running.md"}
"""Of each section, its page."""
_CERTIFICATE: Final = {
    Caller.ANYONE: "none",
    Caller.SHUFFLER: "`shuffler`",
    Caller.OPERATOR: "`operator`",
    Caller.TOKEN_HOLDER: "none",
}
_ASKS_FOR_TOKEN: Final = {Caller.OPERATOR, Caller.TOKEN_HOLDER}
_HEALTH: Final = "/grpc.health.v1.Health/Check"


def _rows(section: str) -> list[list[str]]:
    """The rows of the table of a section, without its head, as lists of their cells."""
    page = (_ROOT / "docs" / "operators" / _PAGES[section]).read_text(encoding="utf-8")
    _, _, behind = page.partition(f"\n## {section}\n")
    text = behind.partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def _row(section: str, method: str) -> list[str]:
    """The one row of a section's table that names a method, or health checks."""
    names = {row[0]: re.findall(r"`(?:\w+\.)?(\w+)`", row[0]) for row in _rows(section)}
    called = method.rpartition("/")[2]
    [found] = [
        row
        for row in _rows(section)
        if (row[0] == "health checks" if method == _HEALTH else called in names[row[0]])
    ]
    return found


def _whole(cell: str) -> int:
    return 0 if cell == "–" else int(cell)


def _seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"s": 1, "min": 60}[unit]


@pytest.mark.parametrize(("method", "call"), CALLS.items())
def test_callers_and_limits_of_a_call_are_on_the_page(method: str, call: Call) -> None:
    """Its certificate and token; how many there may be, of one connection, and for how long."""
    _, certificate, operators = _row("Certificates", method)
    _, places, share, turns, turns_share, read, answered = _row("Limits", method)
    limits = call.kind.value

    assert (operators != "no") == (call.caller in _ASKS_FOR_TOKEN)
    if method != _HEALTH:
        assert certificate.partition(":")[0] == _CERTIFICATE[call.caller]
    assert (f"{limits.places:,}", f"{limits.share:,}") == (places, share)
    assert (limits.turns, limits.turns_share) == (_whole(turns), _whole(turns_share))
    assert (limits.read_seconds, limits.seconds) == (_seconds(read), _seconds(answered))


@pytest.mark.parametrize("section", _PAGES)
def test_the_page_names_no_unknown_call(section: str) -> None:
    """As many names as calls; each call is found above."""
    named = [name for row in _rows(section) for name in re.findall(r"`(?:\w+\.)?(\w+)`", row[0])]

    assert sorted(named) == sorted(m.rpartition("/")[2] for m in CALLS if m != _HEALTH)
