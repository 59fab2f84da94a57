"""The pages of a live batch, of releases, series and audits in a real browser."""

import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, ViewportSize, expect

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.audit.report.report_views import audit_page
from shuffledp.common.messages.batch import BatchState
from shuffledp.common.messages.ledger_entry import verify
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.pages.live_feed import LiveFeed, live_page
from shuffledp.deploy.pages.live_server import live_pages, page_server
from shuffledp.deploy.pages.result_page import releases_page
from shuffledp.deploy.pages.series_page import series_page
from shuffledp.deploy.results.ledger import LedgerView
from tests.support.audit_reports import demo_report, failed_report
from tests.support.batch_progress import progress
from tests.support.browser import PHONE, SCREENS, Scheme, Watched, check_page, watch
from tests.support.ledger_entries import first_entry, population_budgets
from tests.support.loop_thread import LoopThread
from tests.support.series import month

_POLL_SECONDS: Final = 7


@pytest.fixture
def shown(browser: Browser) -> Iterator[tuple[Watched, LiveFeed]]:
    """The page of a batch that two users per second join, at phone width and dark; and its feed."""
    clock = ManualClock()
    feed = LiveFeed(clock, progress(100))
    for moment in range(2, 101, 2):
        clock.seconds += 2
        feed.take(progress(100 + 2 * moment))
    clock.seconds += 2
    html = live_page(TaskDigest(bytes(32)), poll_seconds=_POLL_SECONDS).encode()
    thread = LoopThread()
    with thread.within(page_server(live_pages(html, feed), "s3cret")) as address:
        watched = watch(browser, size=PHONE, scheme="dark")
        # The page polls when the test advances its clock.
        watched.page.clock.install()
        watched.page.goto(address)
        expect(watched.page.locator("#users")).to_have_text("300")
        yield watched, feed
        watched.close()
    thread.stop()


def test_a_batch_is_shown_as_it_grows(shown: tuple[Watched, LiveFeed]) -> None:
    """It shows users, forecast and refusals, polled at the server's interval, without an error."""
    watched, feed = shown
    page = watched.page

    assert watched.overflow() <= 0
    expect(page.get_by_role("heading", level=1)).to_have_text("Collecting")
    expect(page.locator("#forecast")).to_contain_text("n_min, 1,000 users, is reached in")
    expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "15")
    expect(page.locator("#refused tr", has_text="Token used")).to_contain_text("12")
    feed.take(progress(1500))
    asked = len(watched.requests)
    page.clock.run_for(1000 * (_POLL_SECONDS - 1))
    assert asked == len(watched.requests)
    page.clock.run_for(1000 * _POLL_SECONDS)
    expect(page.locator("#users")).to_have_text("1,500")
    assert "1,500 users" in page.title()
    base = urllib.parse.urlsplit(page.url).path
    asked_for = {urllib.parse.urlsplit(url).path for url in watched.requests}
    assert {base, base + "progress.json"} == asked_for
    assert [] == watched.complaints


def test_the_page_shows_the_end_of_a_batch_and_stops_polling(
    shown: tuple[Watched, LiveFeed],
) -> None:
    """An expired batch released nothing."""
    watched, feed = shown
    page = watched.page
    feed.take(progress(300, state=BatchState.EXPIRED))
    page.clock.run_for(1000 * _POLL_SECONDS)
    expect(page.get_by_role("heading", level=1)).to_have_text("Expired: nothing was released")
    asked = len(watched.requests)
    page.clock.run_for(60_000)

    assert asked == len(watched.requests)


def test_the_page_says_that_its_server_does_not_answer(shown: tuple[Watched, LiveFeed]) -> None:
    """The last figures stay."""
    page = shown[0].page
    page.route("**/progress.json", lambda route: route.abort())
    page.clock.run_for(1000 * _POLL_SECONDS)

    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    expect(page.locator("#users")).to_have_text("300")


def test_the_page_of_releases_is_self_contained_and_fits(browser: Browser, tmp_path: Path) -> None:
    """A population of 64 letters without a blank fits on a phone."""
    entry = first_entry(population="w" * 64, n_users=123_456_789)
    populations = [population_budgets("w" * 64)]
    page = releases_page(LedgerView([entry], verify([entry]), populations))
    check_page(browser, page, tmp_path, size=PHONE, scheme="light")


_PAGES: Final[dict[str, Callable[[Path], str]]] = {
    "series": lambda folder: series_page(*month(folder, first_name="w" * 64)),
    "audit": lambda _: audit_page(demo_report()),
    "failed audit": lambda _: audit_page(failed_report()),
}


@pytest.mark.parametrize(("size", "scheme"), SCREENS)
@pytest.mark.parametrize("name", _PAGES)
def test_a_page_is_self_contained_fits_and_is_accessible(
    browser: Browser, tmp_path: Path, name: str, size: ViewportSize, scheme: Scheme
) -> None:
    """
    At every width and colour, with all details open.

    The series has charts, a round that was missed and one without a result.
    """
    check_page(browser, _PAGES[name](tmp_path), tmp_path, size=size, scheme=scheme)
