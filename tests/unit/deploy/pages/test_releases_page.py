from syrupy.assertion import SnapshotAssertion

from common.messages.ledger_entry import ChainHead, LedgerEntry, verify
from deploy.pages.releases_page import releases_page
from tests.support.budgets import population_budgets
from tests.support.ledger_entries import first_entry
from tests.support.page_text import page_text


def test_a_page_shows_every_release_and_the_head(snapshot: SnapshotAssertion) -> None:
    """Privacy figures rounded up, what is left down; a name is text."""
    first = first_entry(population="<staff>")
    changes = {
        "entry": 2,
        "task_digest": first.task_digest,
        "batch_id": first.batch_id,
        "epsilon": 0.123_456,
        "composed_epsilon": 0.700_01,
    }
    second = LedgerEntry.chained(first.entry_hash, **first.fields() | changes)
    entries = [first, second]
    page = releases_page(entries, verify(entries), [population_budgets("<staff>")], version="1")

    assert snapshot == page_text(page)
    assert second.entry_hash.hex() in page
    assert "<staff>" not in page


def test_an_empty_ledger_has_a_page() -> None:
    """It says so."""
    assert "Nothing has been released yet" in releases_page([], ChainHead(), [], version="1")
