import io
import json

from rich.console import Console

from common.messages.ledger_entry import verify
from deploy.results import ledger
from deploy.terminal.json_output import dumps
from tests.support.budgets import population_budgets
from tests.support.ledger_entries import first_entry

_ENTRY = first_entry(population="[staff]")


def test_a_table_shows_each_entry_and_the_head() -> None:
    """Figures rounded up, what is left down; a population's name is text, whatever it holds."""
    console = Console(file=io.StringIO(), width=160)
    ledger.show([_ENTRY], verify([_ENTRY]), [population_budgets("[staff]")], console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO

    for text in (
        "d1d1d1d1d1d1",
        "[staff]",
        "inf",
        "0.5124",
        "0.7001",
        "0.4999",
        _ENTRY.entry_hash.hex(),
    ):
        assert text in shown


def test_json_holds_all_that_is_hashed() -> None:
    """An auditor can compute the chain from it."""
    written = json.loads(dumps(ledger.as_json([_ENTRY], verify([_ENTRY]), [population_budgets()])))

    [entry] = written["entries"]
    assert _ENTRY.fields() == {name: entry[name] for name in _ENTRY.fields()}
    assert {"entry": 1, "entry_hash": entry["entry_hash"]} == written["head"]
    assert "00" * 32 == entry["previous_hash"]
    assert ["staff"] == [one["population"] for one in written["populations"]]


def test_a_narrow_screen_cuts_nothing_off() -> None:
    """Long names and headings are folded; one entry is not `1 entries`."""
    console = Console(file=io.StringIO(), width=80)
    entry = first_entry(population="%" * 40)
    ledger.show([entry], verify([entry]), [population_budgets("%" * 40)], console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO

    assert "…" not in shown
    assert 80 == shown.count("%")
    assert "The chain of 1 entry holds" in shown
