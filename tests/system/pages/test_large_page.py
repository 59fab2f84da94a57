"""41,270 values on one page: it stays small and quick."""

import time
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import watch
from tests.support.result_pages import collected, page_of

_SIZE: Final = 41_270
_PATIENCE: Final = 8.0
"""Seconds for what takes one on a quiet machine: a check of sanity, not a measurement."""


@pytest.mark.slow
def test_forty_thousand_values_are_drawn_found_and_sorted(browser: Browser, tmp_path: Path) -> None:
    """At most 2.5 MB; drawn, searched and sorted by name in seconds even on a busy machine."""
    labels = tuple(f"page {number}" for number in range(_SIZE))
    large = collected(size=_SIZE, labels=labels)
    html = page_of(large)
    file = tmp_path / "page.html"
    file.write_text(html, encoding="utf-8")
    watched = watch(browser)
    started = time.perf_counter()
    watched.page.goto(file.as_uri())
    expect(watched.page.locator("#overview")).to_have_attribute("data-drawn", str(_SIZE))
    drawn = time.perf_counter()
    watched.page.get_by_label("Find a value").fill("page 41269")
    expect(watched.page.locator("#rows .name")).to_have_text(["page 41269"])
    found = time.perf_counter()
    watched.page.get_by_label("Find a value").fill("")
    watched.page.get_by_label("Sort by").select_option("label")
    expect(watched.page.locator("#rows .name").first).to_have_text("page 0")
    sorted_ = time.perf_counter()
    watched.close()

    assert len(html) < 2_500_000
    assert drawn - started < _PATIENCE
    assert found - drawn < _PATIENCE
    assert sorted_ - found < _PATIENCE
    assert [] == watched.complaints
