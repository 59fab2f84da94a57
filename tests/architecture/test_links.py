"""Every page that another page points to is there, and so is the heading."""

import re
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parents[2]
_FOLDERS: Final = ("", "common", "user_agent", "shuffler", "analyzer", "deploy", "tests")
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")


def _pages() -> list[Path]:
    nested = [page for name in _FOLDERS[1:] for page in (_ROOT / name).rglob("*.md")]
    return sorted([*_ROOT.glob("*.md"), *nested])


def _anchors(page: Path) -> set[str]:
    """The names that headings get: small letters, no punctuation, hyphens for spaces."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", _pages(), ids=lambda page: str(page.relative_to(_ROOT)))
def test_a_page_points_to_what_there_is(page: Path) -> None:
    """Files and headings; addresses of the web are not looked up."""
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in _anchors(target), link
