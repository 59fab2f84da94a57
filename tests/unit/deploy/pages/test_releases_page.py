from common.messages.ledger_entry import ChainHead, LedgerEntry, verify
from deploy.pages.releases_page import releases_page
from tests.support.budgets import population_budgets
from tests.support.ledger_entries import first_entry


def _chain() -> list[LedgerEntry]:
    first = first_entry(population="<staff>")
    second = LedgerEntry.chained(
        first.entry_hash,
        **first.fields()
        | {
            "entry": 2,
            "task_digest": first.task_digest,
            "batch_id": first.batch_id,
            "epsilon": 0.123_456,
            "composed_epsilon": 0.700_01,
        },
    )
    return [first, second]


def test_a_page_shows_every_release_and_the_head() -> None:
    """Privacy figures rounded up, what is left down; a name is text."""
    entries = _chain()
    page = releases_page(entries, verify(entries), [population_budgets("<staff>")], version="1")

    for text in (
        "2 releases",
        "&lt;staff&gt;",
        "0.1235",
        "0.7001",
        "0.4999",
        entries[1].entry_hash.hex(),
    ):
        assert text in page
    assert "no guarantee" in page
    assert "<staff>" not in page


def test_an_empty_ledger_has_a_page() -> None:
    """It says so."""
    assert "Nothing has been released yet" in releases_page([], ChainHead(), [], version="1")
