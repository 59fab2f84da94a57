"""The page of an audit in a real browser, at desktop and phone width, light and dark."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ViewportSize

from deploy.audit.report.audit_page import audit_page
from deploy.audit.report.audit_report import AuditReport
from tests.support.audit_reports import demo_report, failed_report, finding, report_of
from tests.support.browser import FAINT_TEXT, PHONE, SCREENS, Scheme, show
from tests.support.protocol_tasks import protocol_task


@cache
def _page(make: Callable[[], AuditReport]) -> str:
    return audit_page(make())


@pytest.mark.parametrize(("size", "scheme"), SCREENS)
@pytest.mark.parametrize("make", [demo_report, failed_report])
def test_a_page_asks_for_nothing_fits_and_can_be_read(
    browser: Browser,
    tmp_path: Path,
    make: Callable[[], AuditReport],
    size: ViewportSize,
    scheme: Scheme,
) -> None:
    """No request, no complaint, nothing too wide or too faint; with all details open."""
    watched = show(browser, _page(make), tmp_path, size=size, scheme=scheme)
    watched.page.evaluate("document.querySelectorAll('details').forEach(x => x.open = true)")
    wide = watched.overflow()
    dark = watched.is_dark()
    faint: Any = watched.page.evaluate(FAINT_TEXT)
    watched.close()

    assert [(tmp_path / "page.html").as_uri()] == watched.requests
    assert [] == watched.complaints
    assert wide <= 0
    assert [] == faint
    assert dark == (scheme == "dark")


def test_the_outline_is_whole_and_no_names_in_a_chart_overlap(
    browser: Browser, tmp_path: Path
) -> None:
    """One title, one level at a time, captions, and pictures with a name."""
    watched = show(browser, _page(demo_report), tmp_path, size=PHONE)
    watched.check_outline()
    n_pictures = watched.page.get_by_role("img", name=re.compile("..")).count()
    touching: Any = watched.page.evaluate(
        """[...document.querySelectorAll(".chart > svg")].flatMap((svg) => {
          const ticks = [...svg.querySelectorAll(".tick")];
          const boxes = ticks.map((x) => [x, x.getBoundingClientRect()]);
          return boxes.flatMap(([x, a], i) => boxes.slice(i + 1)
            .filter(([, b]) => a.left < b.right && b.left < a.right
              && a.top + 3 < b.bottom && b.top + 3 < a.bottom)
            .map(([y]) => x.textContent + " | " + y.textContent));
        })"""
    )
    watched.close()

    assert [] == touching
    assert n_pictures == 2 + 3  # curves, and attacks


def test_no_text_of_a_row_makes_the_page_wider_or_runs(browser: Browser, tmp_path: Path) -> None:
    """Neither a word of 300 letters nor an element."""
    evil = "<script>document.title='evil'</script><img src=x onerror=\"document.title='evil'\">"
    row = finding(
        title="w" * 300,
        sentence=evil + "w" * 300,
        heading="anonymity",
        coalition="analyzer",
        roc=((0.0, 0.0), (1.0, 1.0)),
    )
    html = audit_page(report_of(protocol_task("ldp-grr"), (row,)))
    watched = show(browser, html, tmp_path, size=PHONE)
    wide = watched.overflow()
    title = watched.page.title()
    watched.close()

    assert wide <= 0
    assert "evil" not in title
    assert [] == watched.complaints
    assert 1 == len(watched.requests)
