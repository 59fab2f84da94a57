"""A real browser that records the requests and errors of pages."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
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
"""Sizes and colour schemes."""

_FAINT_TEXT: Final = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((x) => x / 255)
      .map((x) => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const faint = new Set();
  for (const node of document.querySelectorAll("body *")) {
    const texts = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    const drawn = node.closest("script, style, noscript, svg, button:disabled");
    if (!texts || drawn || !node.checkVisibility()) continue;
    const a = light(parse(getComputedStyle(node).color).slice(0, 3)), b = light(ground(node));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) faint.add(node.tagName + "." + node.className + " " + contrast.toFixed(2));
  }
  return [...faint];
}"""
"""Lists elements whose contrast is below 4.5 : 1 [WCAG 2.2, 1.4.3]; drawings are left out."""
_NAMELESS: Final = """[...document.querySelectorAll("button, input, select, a, [tabindex='0']")]
.filter((x) => !(x.labels?.length || x.ariaLabel || x.textContent.trim() || x.title))
.map((x) => x.outerHTML)"""
"""Lists controls that have no name for a screen reader."""
_LEVELS: Final = "[...document.querySelectorAll('h1,h2,h3,h4')].map((x) => Number(x.tagName[1]))"


_QUIET: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-software-rasterizer", "--disable-site-isolation-trials"),
    *("--renderer-process-limit=1", "--disable-features=SpareRendererForSitePerProcess"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A page, with its requests and errors."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def overflow(self) -> int:
        """Return the pixels by which the page is wider than the window."""
        return int(self.page.evaluate("document.scrollingElement.scrollWidth - innerWidth"))

    def close(self) -> None:
        """Close the page and its context."""
        self.page.context.close()


@contextmanager
def launch_browser() -> Iterator[Browser]:
    """Start a browser; the test is skipped if none is installed."""
    program = tool("chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=list(_QUIET))
        yield started
        started.close()


def watch(browser: Browser, *, size: ViewportSize = DESKTOP, scheme: Scheme = "light") -> Watched:
    """Open an empty page, and record its requests and errors."""
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
    """Write a page to a file, and open the file."""
    file = folder / "page.html"
    file.write_text(html, encoding="utf-8")
    watched = watch(browser, size=size, scheme=scheme)
    watched.page.goto(file.as_uri())
    return watched


def check_page(
    browser: Browser, html: str, folder: Path, *, size: ViewportSize, scheme: Scheme
) -> None:
    """
    Check that a page, with all details open, requests nothing else and raises no error.

    See `check_shown` for the rest.
    """
    watched = show(browser, html, folder, size=size, scheme=scheme)
    check_shown(watched, scheme)
    watched.close()

    assert ([(folder / "page.html").as_uri()], []) == (watched.requests, watched.complaints)


def check_shown(watched: Watched, scheme: Scheme) -> None:
    """
    Check that a page, with all details open, fits the window and follows the colour scheme.

    It has enough contrast; controls have names and tables captions; there is one main part and one
    title, and heading levels step by one.
    """
    page = watched.page
    page.evaluate("document.querySelectorAll('details').forEach(x => x.open = true)")
    page.mouse.wheel(0, 20_000)
    wide, paper = watched.overflow(), "getComputedStyle(document.body).backgroundColor"
    dark = sum(map(int, re.findall(r"\d+", page.evaluate(paper)))) < 200
    faint, nameless, levels = (page.evaluate(each) for each in (_FAINT_TEXT, _NAMELESS, _LEVELS))
    parts = page.get_by_role("main").count(), page.locator("table:not(:has(caption))").count()

    assert wide <= 0
    assert dark == (scheme == "dark")
    assert ([], [], (1, 0)) == (faint, nameless, parts)
    assert (1, 1) == (levels[0], levels.count(1))
    assert all(after - before <= 1 for before, after in pairwise(levels))
