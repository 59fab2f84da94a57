"""The page of releases in a real browser."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, expect

from common.ledger_entry import verify
from deploy.pages.releases_page import releases_page
from tests.support.browser import PHONE, show
from tests.support.ledger_entries import first_entry


def test_releases_fit_and_ask_for_nothing(browser: Browser, tmp_path: Path) -> None:
    """A population of 64 letters without a blank fits on a phone."""
    entry = first_entry(population="w" * 64, n_users=123_456_789)
    watched = show(
        browser, releases_page([entry], verify([entry]), version="1"), tmp_path, size=PHONE
    )
    expect(watched.page.locator(".releases")).to_contain_text("123,456,789")
    wide: Any = watched.page.evaluate("document.scrollingElement.scrollWidth - innerWidth")
    watched.close()

    assert wide <= 0
    assert [] == watched.complaints
    assert 1 == len(watched.requests)
