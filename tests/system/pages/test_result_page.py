"""The page of a result in a real browser, at desktop and phone width, light and dark."""

import csv
import dataclasses
import re
import time
import unicodedata
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from playwright.sync_api import Browser, ViewportSize, expect

from shuffledp.common.messages.result import simultaneous_confidence
from shuffledp.deploy.results.export import write_csv
from shuffledp.deploy.results.result_view import result_view
from tests.support.browser import DESKTOP, PHONE, SCREENS, Scheme, Watched, check_page, show
from tests.support.result_pages import N_USERS, collected, page_of

_LABELS: Final = tuple(f"city {1000 + 2 * item}" for item in range(915))
_collected: Final = cache(partial(collected, labels=_LABELS))


@cache
def _html() -> str:
    return page_of(_collected(), known=True)


@pytest.fixture(scope="module")
def shown(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """The page at desktop width; the fixture `page` reloads it for each test."""
    watched = show(browser, _html(), tmp_path_factory.mktemp("page"))
    yield watched
    watched.close()


@pytest.fixture
def page(shown: Watched) -> Watched:
    """The page, reloaded."""
    shown.page.reload()
    return shown


def _names(watched: Watched) -> list[str]:
    return watched.page.locator("#rows .name").all_inner_texts()


@pytest.mark.parametrize(("size", "scheme"), SCREENS)
def test_the_page_is_self_contained_fits_and_is_accessible(
    browser: Browser, tmp_path: Path, size: ViewportSize, scheme: Scheme
) -> None:
    """The check passes at each size and colour scheme."""
    check_page(browser, _html(), tmp_path, size=size, scheme=scheme)


def test_paper_is_white(browser: Browser, tmp_path: Path) -> None:
    """Print is black on white even in a dark scheme; the charts are redrawn for it."""
    watched = show(browser, _html(), tmp_path, scheme="dark")
    overview = watched.page.locator("#overview")
    expect(overview).to_have_attribute("data-drawn", "915")
    dark: Any = overview.evaluate("x => x.toDataURL()")
    watched.page.emulate_media(media="print")

    expect(watched.page.locator("body")).to_have_css("background-color", "rgb(255, 255, 255)")
    drawn = "dark => document.querySelector('#overview').toDataURL() !== dark"
    watched.page.wait_for_function(drawn, arg=dark)
    watched.close()


def test_the_largest_values_come_first_with_their_figures(page: Watched) -> None:
    """The first row has share, interval and users; simultaneous intervals are wider."""
    first = page.page.locator("#rows tr").first
    histogram = _collected().result.histogram
    low, high = (ends[0] for ends in histogram.interval(0.95))

    assert "city 1000" == _names(page)[0]
    assert 15 == len(_names(page))
    for text in (
        f"{100 * histogram.frequencies[0]:.2f}",
        f"{100 * low:.2f} to {100 * high:.2f}",
        f"{histogram.frequencies[0] * N_USERS:,.0f}",
        f"{100 * histogram.refined[0]:.2f}",
        f"{100 * _collected().truth[0]:.2f}",
    ):
        expect(first).to_contain_text(text)
    first.hover()
    tooltip = page.page.get_by_role("tooltip")
    expect(tooltip).to_contain_text(f"{low * N_USERS:,.0f} to {high * N_USERS:,.0f}")
    page.page.get_by_label("Simultaneous intervals").check()
    low = histogram.frequencies[0] - 4.0352 * histogram.standard_errors[0]  # Bonferroni
    expect(first).to_contain_text(f"{100 * low:.2f} to")
    expect(page.page.locator("#interval-head")).to_contain_text("for all")


def test_values_are_found_and_sorted(page: Watched) -> None:
    """Part of a name in any case, or a number, finds them; the menu or a heading sorts them."""
    search = page.page.get_by_label("Find a value")
    refined = np.argsort(_collected().result.histogram.refined)[::-1]

    search.fill(" ITY 282 ")
    assert set(_LABELS[-5:]) == set(_names(page))
    expect(page.page.locator("#found")).to_have_text("5 values match.")
    search.fill("77")
    assert "city 1154" in _names(page)
    search.fill("nowhere")
    expect(page.page.locator("#rows")).to_contain_text("No value matches.")
    search.fill("")
    page.page.get_by_label("Sort by").select_option("refined")
    assert [_LABELS[item] for item in refined[:15]] == _names(page)
    page.page.get_by_role("button", name="Value").click()
    assert list(_LABELS[:15]) == _names(page)
    page.page.get_by_role("button", name="Reverse the order").click()
    assert list(_LABELS[:-16:-1]) == _names(page)
    expect(page.page.locator("th.value-head")).to_have_attribute("aria-sort", "descending")


def test_all_values_can_be_read_with_the_keyboard(page: Watched) -> None:
    """Arrow keys move along rows and the overview, and screen readers get the values."""
    page.page.locator("#rows tr").first.focus()
    page.page.keyboard.press("ArrowDown")
    expect(page.page.get_by_role("tooltip")).to_contain_text("city 1002")
    overview = page.page.get_by_role("slider")
    overview.focus()
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("ArrowRight")
    expect(overview).to_have_attribute("aria-valuenow", "3")
    expect(overview).to_have_attribute("aria-valuetext", re.compile("city 1004: Share"))


def test_a_click_on_the_overview_leads_to_the_row(page: Watched) -> None:
    """The smallest value is on the last page of rows."""
    overview = page.page.locator("#overview")
    overview.focus()
    page.page.keyboard.press("End")
    page.page.keyboard.press("Enter")

    expect(page.page.locator("#place")).to_have_text("901–915 of 915")
    expect(page.page.locator("#rows tr.chosen")).to_have_count(1)
    expect(page.page.get_by_role("button", name="Next")).to_be_disabled()
    page.page.get_by_label("Rows").select_option("200")
    for _ in range(4):
        page.page.get_by_role("button", name="Next").click()
    assert 115 == len(_names(page))
    expect(page.page.locator("#place")).to_have_text("801–915 of 915")


def test_values_not_distinct_from_zero_are_marked_and_can_be_hidden(page: Watched) -> None:
    """A value is marked if its simultaneous interval includes 0."""
    low, _ = _collected().result.histogram.interval(simultaneous_confidence(0.95, 915))
    distinct = int((low > 0).sum())

    expect(page.page.locator("#found")).to_contain_text(f"{distinct} of 915 shares differ")
    page.page.get_by_label("Show").select_option("distinct")
    expect(page.page.locator("#place")).to_contain_text(f"of {distinct}")
    expect(page.page.locator("#rows tr.unsure")).to_have_count(0)
    page.page.get_by_label("Show").select_option("any")
    page.page.get_by_role("button", name="Reverse the order").click()
    expect(page.page.locator("#rows tr").first).to_contain_text("does not differ clearly from 0")


@pytest.mark.parametrize("labels", [(), ("=1+1", "b", "c"), ("x;=1", "@=1", 'x";"-1')])
def test_the_pages_csv_equals_the_commands(
    browser: Browser, tmp_path: Path, labels: tuple[str, ...]
) -> None:
    """Labels and intervals are the same, even while the page shows simultaneous intervals."""
    found = collected(size=3, labels=labels)
    watched = show(browser, page_of(found), tmp_path)
    watched.page.get_by_label("Simultaneous intervals").check()
    with watched.page.expect_download() as download:
        watched.page.get_by_role("button", name="Download CSV").click()
    download.value.save_as(tmp_path / "page.csv")
    watched.close()
    view = result_view(found.result.estimate, found.task, most=1)
    write_csv(tmp_path / "command.csv", view.columns)
    (heads, *rows), (expected_heads, *expected) = (
        list(csv.reader((tmp_path / name).read_text(encoding="utf-8").splitlines()))
        for name in ("page.csv", "command.csv")
    )

    assert expected_heads == heads
    assert [row[:2] for row in expected] == [row[:2] for row in rows]
    np.testing.assert_allclose(
        np.array([row[2:] for row in rows], dtype=float),
        np.array([row[2:] for row in expected], dtype=float),
        rtol=1e-5,
        atol=1e-7,
    )


@pytest.mark.parametrize(
    ("shares", "error", "size", "least"),
    [
        pytest.param([0.01999, 0.012, 0.006, 0.001], 1e-5, DESKTOP, 4, id="1.5 % is not called 2"),
        pytest.param([1.36, 0.62, -0.14, -0.48, -1.35], 1.2, PHONE, 2, id="a round step is far"),
    ],
)
def test_a_scale_has_distinct_tick_labels(  # noqa: PLR0917  # a row's
    browser: Browser,
    tmp_path: Path,
    shares: list[float],
    error: float,
    size: ViewportSize,
    least: int,
) -> None:
    """Fine and coarse scales have distinct labels, and at least two on a phone."""
    found, figures = collected(size=len(shares)), np.array(shares)
    errors = np.full(len(shares), error)
    histogram = dataclasses.replace(
        found.result.histogram, frequencies=figures, refined=figures, standard_errors=errors
    )
    result = dataclasses.replace(found.result, estimate=histogram)
    html = page_of(dataclasses.replace(found, result=result))
    watched = show(browser, html, tmp_path, size=size)
    ticks = watched.page.locator("#axis text").all_text_contents()
    watched.close()

    assert least <= len(ticks) == len(set(ticks))


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
    unicodedata.normalize("NFC", "Z̸̧̛͖") * 20,
    "__proto__",
    "w" * 256,
)


def test_hostile_labels_are_shown_unchanged_and_run_nothing(
    browser: Browser, tmp_path: Path
) -> None:
    """No dialog, request or error; the labels fit on a phone."""
    html = page_of(collected(labels=_HOSTILE))
    watched = show(browser, html, tmp_path, size=PHONE)
    watched.page.locator("#rows tr").first.hover()
    names = watched.page.locator("#rows .name").evaluate_all("all => all.map(x => x.textContent)")
    wide = watched.overflow()
    watched.close()

    assert sorted(_HOSTILE) == sorted(names)
    assert [] == watched.complaints
    assert 1 == len(watched.requests)
    assert wide <= 0


def test_an_injected_script_does_not_run(browser: Browser, tmp_path: Path) -> None:
    """The page's Content Security Policy holds even if escaping fails."""
    evil = "<script>document.title = 'evil'</script><img src=x onerror=\"document.title='evil'\">"
    watched = show(browser, _html().replace("</body>", f"{evil}</body>"), tmp_path)
    expect(watched.page.locator("#rows tr").first).to_be_visible()
    title = watched.page.title()
    watched.close()

    assert "evil" not in title
    assert any("Content Security Policy" in complaint for complaint in watched.complaints)


@pytest.mark.slow
def test_forty_thousand_values_are_drawn_found_and_sorted(browser: Browser, tmp_path: Path) -> None:
    """The page has at most 2.5 MB, and a step takes 8 seconds: eight times an idle machine's."""
    size = 41_270
    html = page_of(collected(labels=[f"page {number}" for number in range(size)]))
    started = time.perf_counter()
    watched = show(browser, html, tmp_path)
    page, names = watched.page, watched.page.locator("#rows .name")
    expect(page.locator("#overview")).to_have_attribute("data-drawn", str(size))
    drawn = time.perf_counter()
    page.get_by_label("Find a value").fill("page 41269")
    expect(names).to_have_text(["page 41269"])
    found = time.perf_counter()
    page.get_by_label("Find a value").fill("")
    page.get_by_label("Sort by").select_option("label")
    expect(names.first).to_have_text("page 0")
    ended = time.perf_counter()
    watched.close()

    assert len(html) < 2_500_000
    assert max(drawn - started, found - drawn, ended - found) < 8
    assert [] == watched.complaints
