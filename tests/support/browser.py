"""A real browser that shows pages, and remembers what they asked for and complained of."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from tests.support.tools import tool

Scheme = Literal["light", "dark"]

DESKTOP: Final = ViewportSize(width=1280, height=900)
PHONE: Final = ViewportSize(width=390, height=844)
SCREENS: Final = (
    pytest.param(DESKTOP, "light", id="desktop-light"),
    pytest.param(PHONE, "dark", id="phone-dark"),
    pytest.param(DESKTOP, "dark", marks=pytest.mark.slow, id="desktop-dark"),
    pytest.param(PHONE, "light", marks=pytest.mark.slow, id="phone-light"),
)
"""Sizes with schemes."""

_QUIET: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A page, with all that it asked for after itself, and all that went wrong."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def close(self) -> None:
        """Close the page and what it kept."""
        self.page.context.close()


@contextmanager
def a_browser() -> Iterator[Browser]:
    """Start a browser; the test is skipped where there is none."""
    program = tool("chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=list(_QUIET))
        yield started
        started.close()


def watch(
    browser: Browser,
    *,
    size: ViewportSize = DESKTOP,
    scheme: Scheme = "light",
) -> Watched:
    """Open an empty page that is watched."""
    context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    context.set_default_timeout(10_000)
    watched = Watched(page=context.new_page())
    watched.page.on("request", lambda request: watched.requests.append(request.url))
    watched.page.on("pageerror", lambda error: watched.complaints.append(str(error)))
    watched.page.on(
        "console",
        lambda message: watched.complaints.append(message.text) if message.type != "log" else None,
    )
    watched.page.on("dialog", lambda dialog: watched.complaints.append(dialog.message))
    return watched


def show(
    browser: Browser,
    html: str,
    folder: Path,
    *,
    size: ViewportSize = DESKTOP,
    scheme: Scheme = "light",
) -> Watched:
    """Write a page to a file, and open it as somebody would who was sent it."""
    file = folder / "page.html"
    file.write_text(html, encoding="utf-8")
    watched = watch(browser, size=size, scheme=scheme)
    watched.page.goto(file.as_uri())
    return watched
