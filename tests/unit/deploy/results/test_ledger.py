import json

import pytest
from syrupy.assertion import SnapshotAssertion

from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.messages.ledger_entry import verify
from shuffledp.deploy.results.ledger import LedgerView
from shuffledp.deploy.terminal.json_output import dumps
from tests.support.ledger_entries import decision_entry, first_entry, population_budgets
from tests.support.printing import printed

_ENTRY = first_entry(population="[staff]")
_DECISION = decision_entry(SigningIdentity(bytes(32)), _ENTRY, note="[junk] from one network")


@pytest.mark.parametrize("width", [80, 160])
def test_a_table_shows_each_entry_and_the_head(width: int, snapshot: SnapshotAssertion) -> None:
    """Spent figures are rounded up, remaining ones down; names are folded and escaped."""
    budgets = [population_budgets("[staff]")]

    assert snapshot == printed(LedgerView([_ENTRY], verify([_ENTRY]), budgets).show, width)


def test_json_has_all_hashed_fields() -> None:
    """An auditor can recompute the hash chain from it."""
    written = json.loads(
        dumps(LedgerView([_ENTRY], verify([_ENTRY]), [population_budgets()]).as_json())
    )

    [entry] = written["entries"]
    assert _ENTRY.fields() == {name: entry[name] for name in _ENTRY.fields()}
    assert {"entry": 1, "entry_hash": entry["entry_hash"]} == written["head"]
    assert "00" * 32 == entry["previous_hash"]
    assert ["staff"] == [one["population"] for one in written["populations"]]


@pytest.mark.parametrize("width", [80, 160])
def test_decisions_have_a_table_of_their_own(width: int, snapshot: SnapshotAssertion) -> None:
    """With the reason and the note, folded and escaped; JSON lists all entries in order."""
    entries = [_ENTRY, _DECISION]

    assert snapshot == printed(LedgerView(entries, verify(entries)).show, width)
    written = json.loads(dumps(LedgerView(entries, verify(entries)).as_json()))["entries"]
    assert [1, 2] == [entry["entry"] for entry in written]
    assert _DECISION.fields() == {name: written[1][name] for name in _DECISION.fields()}
