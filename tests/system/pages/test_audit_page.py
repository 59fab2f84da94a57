"""The page of an audit in a real browser, at desktop and phone width, light and dark."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ViewportSize

from deploy.audit.report.audit_page import audit_page
from deploy.audit.report.audit_report import AuditReport
from tests.support.audit_reports import demo_report, failed_report
from tests.support.browser import FAINT_TEXT, SCREENS, Scheme, show


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


def test_headings_are_in_order_and_tables_have_captions(browser: Browser, tmp_path: Path) -> None:
    """One main part, one title, one level at a time."""
    watched = show(browser, _page(demo_report), tmp_path)
    watched.check_outline()
    watched.close()
