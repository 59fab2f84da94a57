"""The page of an audit in a real browser, at desktop and phone width, light and dark."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ViewportSize

from audit.report.audit_page import audit_page
from audit.report.audit_report import AuditReport
from tests.support.audit_reports import demo_report, failed_report
from tests.support.browser import SCREENS, Scheme, check_page


@pytest.mark.parametrize(("size", "scheme"), SCREENS)
@pytest.mark.parametrize("make", [demo_report, failed_report])
def test_the_page_is_self_contained_fits_and_is_accessible(
    browser: Browser,
    tmp_path: Path,
    make: Callable[[], AuditReport],
    size: ViewportSize,
    scheme: Scheme,
) -> None:
    """The page is checked with all details open."""
    check_page(browser, audit_page(make()), tmp_path, size=size, scheme=scheme)
