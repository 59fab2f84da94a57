"""The page to take part, in a real browser against the real services."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import PHONE, Watched, check_shown, watch
from tests.support.page_parties import PageParties


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageParties]:
    """The parties of this module."""
    started = PageParties(tmp_path_factory.mktemp("parties"))
    yield started
    started.stop()


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Watched]:
    """A visitor at phone width, dark; nothing may be complained of."""
    watched = watch(browser, size=PHONE, scheme="dark")
    yield watched
    watched.close()


def _answer(page: Page, label: str = "car") -> None:
    page.get_by_role("radio", name=label).check()
    page.get_by_role("button", name="Send my answer").click()


def _heading(page: Page, text: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text(text)


def test_a_visitor_takes_part_and_is_counted(parties: PageParties, visitor: Watched) -> None:
    """
    The task's texts and its guarantee are shown first, and the receipt after.

    The invitation stays neither in the address nor in the history.
    """
    signed, page = parties.publish(), visitor.page
    page.goto(parties.invite(signed))
    _heading(page, "Ways to work")
    shown = page.get_by_role("main").inner_text()
    check_shown(visitor, "dark")

    assert parties.page == page.url
    for text in (
        *("How did you come to work today?", "A trial.", "Local epsilon", "Central epsilon"),
        *("2 of 2 independent witnesses", "recomputed both figures", "2 honest people"),
        *("With it goes 1 dummy report", "(issuer.localhost)", "2 of 10"),
    ):
        assert text in shown
    page.get_by_role("button", name="Send my answer").click()
    expect(page.get_by_role("alert")).to_have_text("Choose an answer first.")
    _answer(page)
    _heading(page, "Received")
    parties.run(parties.parties.answer_for_another(signed))
    _heading(page, "Counted")
    expect(page.get_by_role("status")).to_contain_text("Your answer was counted")
    page.get_by_text("Receipt").click()
    expect(page.get_by_role("main")).to_contain_text(signed.digest().hex())
    check_shown(visitor, "dark")
    assert [] == visitor.complaints
