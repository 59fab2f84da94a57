"""Text on an operator's terminal steers nothing and is no markup; figures are whole."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from rich.console import Console

from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.messages.batch import TaskState
from shuffledp.common.messages.ledger_entry import verify
from shuffledp.common.messages.result import Result
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.commands.batch import describe_decision
from shuffledp.deploy.commands.person import show_receipt
from shuffledp.deploy.results.estimate_table import ResultView
from shuffledp.deploy.results.ledger import LedgerView
from shuffledp.deploy.results.result_view import print_estimates, print_result, result_view
from shuffledp.deploy.sentinels.planting import report
from shuffledp.deploy.sentinels.sentinel_file import PlantedSentinel, SentinelState
from shuffledp.deploy.tasks import population_budgets, task_view
from shuffledp.deploy.terminal.console import terminal
from shuffledp.deploy.terminal.escape import escaped, visible
from shuffledp.deploy.terminal.tables import print_guarantees
from shuffledp.protos.shuffledp.v1 import user_agent_pb2
from tests.support.command_line import shown
from tests.support.commands import ROOT
from tests.support.example_tasks import listed
from tests.support.kind_results import kind_collected
from tests.support.ledger_entries import decision_entry, first_entry
from tests.support.ledger_entries import population_budgets as spent_budgets
from tests.support.printing import printed
from tests.support.results import guarantee, result
from tests.support.tables import table
from tests.support.tasks import published

_HOSTILE: Final = "\x1b]0;t\x07[/x]\u202e"
_READABLE: Final = "\\x1b]0;t\\x07[/x]\\u202e"
_RESULT: Final = result(TaskDigest(b"\xd1" * 32))
_TASK: Final = published().task
_ENTRY: Final = first_entry(population=_HOSTILE)
_DECISION: Final = decision_entry(
    SigningIdentity(bytes(32)), _ENTRY, reason=_HOSTILE, note=_HOSTILE
)
_SUMMARY: Final = dataclasses.replace(
    listed(TaskState.UNUSABLE), failure=_HOSTILE, protocol=_HOSTILE, population=_HOSTILE
)
_RECEIPT: Final = user_agent_pb2.GetReceiptResponse(state=_HOSTILE, inclusion=_HOSTILE)


def _hostile(found: Result) -> Result:
    """Return a result whose every text is hostile."""
    [guarantee, *_] = found.guarantees
    changes = {"coalition": _HOSTILE, "assumptions": (_HOSTILE,)}
    return dataclasses.replace(
        found,
        protocol=_HOSTILE,
        refused={_HOSTILE: 1},  # type: ignore[dict-item]  # no cause that there is
        published_claim=_HOSTILE,
        guarantees=(dataclasses.replace(guarantee, **changes),),  # type: ignore[arg-type]  # as above
    )


def _labels(console: Console) -> None:
    found = kind_collected("vector", (_HOSTILE, "b", "c", "d", "e"))
    print_estimates(result_view(found.result.estimate, found.task, most=3), console)


_PRINTED: Final[dict[str, tuple[Callable[[Console], None], int]]] = {
    "labels": (_labels, 1),
    "guarantees": (lambda to: print_guarantees(_hostile(_RESULT).guarantees, "title", to), 2),
    "result": (
        lambda to: print_result(
            _hostile(_RESULT), ResultView(columns={}), to, guarantees=True, task=_TASK
        ),
        4,
    ),
    "receipt": (lambda to: show_receipt(_RECEIPT, to), 2),
    "task": (lambda to: task_view.print_state(_SUMMARY.task_digest, _TASK, _SUMMARY, to), 1),
    "list of tasks": (lambda to: task_view.print_list([_SUMMARY], to), 2),
    "ledger": (LedgerView([_ENTRY, _DECISION], verify([_ENTRY, _DECISION])).show, 3),
    "decision": (lambda to: to.print(describe_decision(_DECISION), markup=False), 2),
    "budgets": (lambda to: population_budgets.show([spent_budgets(_HOSTILE)], to), 1),
}
"""How each is printed, and how often the text occurs in it."""


@table("name", _PRINTED)
def test_untrusted_text_steers_no_terminal(name: str) -> None:
    """The text is readable each time, and is no markup."""
    show, times = _PRINTED[name]
    text = printed(show, width=300)

    assert times == text.count(_READABLE)
    assert not set("\x1b\x07\u202e") & set(text)


def test_a_shufflers_reason_for_a_refusal_steers_no_terminal() -> None:
    """The text is the shuffler's own."""
    refused = PlantedSentinel(
        envelope=b"", leaves=b"", state=SentinelState.REFUSED, reason=_HOSTILE
    )
    _, text = report([refused], TaskDigest(bytes(32)), Path("sentinels"))

    assert f"Refused 1 times: {_READABLE}" in text


def test_the_name_of_a_data_file_steers_no_terminal(tmp_path: Path) -> None:
    """Somebody else may have named the file."""
    path = tmp_path / "[x]\x1b.csv"
    path.write_text("value,count\na,2000\nb,1000\n", encoding="utf-8")
    asked = "simulate --protocol sh --central-epsilon 1 --repeat 1 --dataset"

    assert "The file [x]\\x1b.csv: 3,000 users" in shown(asked, str(path))


def test_no_name_in_colons_becomes_an_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    """Two labels would look alike; every command uses this console."""
    terminal().print(escaped(":cat:"))
    elsewhere = [
        path.name
        for room in ("deploy", "lab", "audit")
        for path in (ROOT / room).rglob("*.py")
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
def test_control_characters_are_readable(text: str, written: str) -> None:
    """Letters and emoji stay."""
    assert written == visible(text)


@pytest.mark.parametrize(
    "text", ["[/x]", "[red]a[/red]", "\\[b]", "[link=http://x]y", "a\\", "a\\\\", "[b]\\"]
)
def test_escaped_text_is_no_markup(text: str) -> None:
    """Escaped text is printed unchanged."""
    assert text == printed(lambda console: console.print(escaped(text))).strip()


_POPULATION: Final = "people-of-the-northern-district"
_LONG_ENTRY: Final = first_entry(population=_POPULATION, n_users=1_234_567, n_refused=89_012)
_GUARANTEE: Final = guarantee(
    *("shuffler+analyzer", 20.01, 1.001e-10),
    assumptions=("nobody else is honest, whatever anybody may say of them",),
)
_SPENT: Final = spent_budgets(_POPULATION, spent=0.70001)
_TABLES: Final[dict[str, tuple[Callable[[Console], None], tuple[str, ...]]]] = {
    "ledger": (
        LedgerView([_LONG_ENTRY], verify([_LONG_ENTRY])).show,
        ("1,234,567", "89,012", "d1d1d1d1d1d1"),
    ),
    "budgets": (
        lambda to: population_budgets.show([_SPENT], to),
        ("1.2", "1e-05", "0.7001", "0.4999", "0.5834"),
    ),
    "guarantees": (lambda to: print_guarantees([_GUARANTEE], "title", to), ("20.01", "1.001e-10")),
}


@table("width", [40, 60, 80, 120])
@table("name", _TABLES)
def test_every_figure_is_whole_on_a_narrow_terminal(name: str, width: int) -> None:
    """Text is folded instead, or lines are longer than the terminal: `2` for 20 is wrong."""
    show, figures = _TABLES[name]
    words = printed(show, width).replace("│", " ").split()

    for figure in figures:
        assert figure in words
