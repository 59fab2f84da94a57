"""Names of values are anybody's text: none is run, and none breaks the page."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import PHONE, Watched, show
from tests.support.result_pages import Collected, collected, page_of

_HOSTILE: Final = (
    "</script><script>alert(1)</script>",
    "<img src=https://evil.example/x onerror=alert(2)>",
    "<!--<script>",
    "{{ 7 * 7 }}{% include 'page.css' %}",
    "\u202egnirts desrever\u202c",
    "שלום עולם",
    "👩‍👩‍👧‍👦🏳️‍🌈" * 10,
    "=HYPERLINK(1)",
    'quo"te',
    "line\nbreak\u2028",
    "Z̸̧̛͖" * 20,
    "",
    "__proto__",
    "w" * 256,
)


@pytest.fixture(scope="module")
def planted() -> Collected:
    """A result whose values have these names."""
    return collected(size=len(_HOSTILE), labels=_HOSTILE)


@pytest.fixture(scope="module")
def shown(
    browser: Browser,
    planted: Collected,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Watched]:
    """Its page, on a phone."""
    html = page_of(planted)
    watched = show(browser, html, tmp_path_factory.mktemp("page"), size=PHONE)
    yield watched
    watched.close()


def test_names_are_shown_as_they_are_fit_and_run_nothing(shown: Watched) -> None:
    """No dialog, no request, no complaint; the text is there letter by letter."""
    shown.page.locator("#rows tr").first.hover()
    names = shown.page.locator("#rows .name").evaluate_all("all => all.map(x => x.textContent)")

    assert set(_HOSTILE) >= set(names)
    assert len(_HOSTILE) == len(names)
    assert [] == shown.complaints
    assert 1 == len(shown.requests)
    assert shown.overflow() <= 0


def test_a_script_that_was_not_there_when_the_page_was_made_does_not_run(
    browser: Browser, planted: Collected, tmp_path: Path
) -> None:
    """Even if escaping failed, the page's policy would stand in the way."""
    html = page_of(planted)
    evil = "<script>document.title = 'evil'</script><img src=x onerror=\"document.title='evil'\">"
    watched = show(browser, html.replace("</body>", f"{evil}</body>"), tmp_path)
    expect(watched.page.locator("#rows tr").first).to_be_visible()
    title = watched.page.title()
    watched.close()

    assert "evil" not in title
    assert any("Content Security Policy" in complaint for complaint in watched.complaints)


def test_a_spreadsheet_runs_no_name_of_the_csv(shown: Watched, tmp_path: Path) -> None:
    """What begins like a formula has an apostrophe before it; quotes are doubled."""
    with shown.page.expect_download() as download:
        shown.page.get_by_role("button", name="Download CSV").click()
    download.value.save_as(tmp_path / "histogram.csv")
    text = (tmp_path / "histogram.csv").read_text(encoding="utf-8")

    assert '"\'=HYPERLINK(1)"' in text
    assert '"quo""te"' in text
