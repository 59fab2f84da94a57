"""Every page that another page points to is there, and so is the heading."""

import re
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parents[2]
_FOLDERS: Final = ("", "common", "user_agent", "shuffler", "analyzer", "deploy", "tests")
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_NAMED: Final = re.compile(r"([\w/]+\.md)(?:#([\w-]+)|, ([A-Z][\w ]*\w))?")
"""A page in a program's words or comments, and perhaps its heading."""


def _pages() -> list[Path]:
    nested = [page for name in _FOLDERS[1:] for page in (_ROOT / name).rglob("*.md")]
    return sorted([*_ROOT.glob("*.md"), *nested])


def _anchors(page: Path) -> set[str]:
    """The names that headings get: small letters, no punctuation, hyphens for spaces."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def _sources() -> list[Path]:
    """Programs, drafts, settings and rules, whose words and comments name pages."""
    found = [
        path
        for name in _FOLDERS[1:-1]
        for ending in ("py", "toml", "yaml")
        for path in (_ROOT / name).rglob(f"*.{ending}")
    ]
    return sorted(path for path in found if _NAMED.search(path.read_text(encoding="utf-8")))


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


@pytest.mark.parametrize("source", _sources(), ids=lambda path: str(path.relative_to(_ROOT)))
def test_a_program_names_pages_that_there_are(source: Path) -> None:
    """Each from the root, or beside it; and a heading that comes after its name."""
    text = re.sub(r'"\s*\n\s*"', "", source.read_text(encoding="utf-8"))
    for name, anchor, heading in _NAMED.findall(text):
        pages = [page for page in (_ROOT / name, source.parent / name) if page.is_file()]
        assert pages, name
        wanted = anchor or heading.lower().replace(" ", "-")
        assert not wanted or wanted in _anchors(pages[0]), (name, wanted)
