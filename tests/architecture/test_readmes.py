"""Every file has its line where a page lists files, and every source that is cited its entry."""

import re
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parents[2]
_FOLDERS: Final = ("common", "user_agent", "shuffler", "analyzer", "deploy", "tests")
_FILE: Final = re.compile(r"`([\w/]+(?:\.py|/))`")
_KEY: Final = (
    r"(?:[A-Z][A-Za-z]*(?:\+|-[A-Z]+)?\d{2,4}(?:-\d+)?[A-Z]?|GRappor|XWing|DLMF|Okabe-Ito)"
)
_CITED: Final = re.compile(rf"\[({_KEY}(?:[ ,;:][^\[\]]*)?)\](?!\()")
"""A key in brackets, perhaps with a section or further keys; no link."""
_SOURCES: Final = ("common/README.md", "deploy/audit/README.md")
"""Pages that spell keys out: everybody's, and what only the audit cites."""


def _tables(page: Path) -> list[str]:
    """Give the tables of a page that list files."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"(?m)^\| file \| what \|\n((?:\|.*\n)+)", text)


def _pages() -> list[Path]:
    found = [page for name in _FOLDERS for page in (_ROOT / name).rglob("README.md")]
    return sorted(page for page in found if _tables(page))


def _there(folder: Path) -> set[str]:
    """Give the files and packages of a folder, as a table names them."""
    files = {path.name for path in folder.glob("*.py")} - {"__init__.py"}
    return files | {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}


def _keys(page: str) -> list[str]:
    """Give the keys of a page's table of sources."""
    text = (_ROOT / page).read_text(encoding="utf-8")
    rows = text.partition("\n## References\n")[2].partition("\n## ")[0].splitlines()
    cells = [row.split(" | ")[0].strip("| ") for row in rows if row.startswith("|")]
    return [key for cell in cells[2:] for key in cell.split(", ")]


def _citing() -> list[Path]:
    """Give programs and pages that cite a source."""
    nested = [
        path
        for name in _FOLDERS
        for ending in ("py", "md")
        for path in (_ROOT / name).rglob(f"*.{ending}")
    ]
    return sorted(path for path in (*nested, *_ROOT.glob("*.md")) if _cited(path))


def _cited(path: Path) -> set[str]:
    """Give the keys that a program or page cites."""
    within = _CITED.findall(path.read_text(encoding="utf-8"))
    return {key for cited in within for key in re.findall(rf"\b{_KEY}(?![\w+-])", cited)}


@pytest.mark.parametrize("page", _pages(), ids=lambda page: str(page.relative_to(_ROOT)))
def test_a_page_that_lists_files_names_each_that_there_is(page: Path) -> None:
    """Once, and no other."""
    [table] = _tables(page)
    first = [line.strip("|").split(" | ")[0] for line in table.splitlines()[1:]]
    named = [name for cell in first for name in _FILE.findall(cell)]

    assert sorted(_there(page.parent)) == sorted(named)


@pytest.mark.parametrize("path", _citing(), ids=lambda path: str(path.relative_to(_ROOT)))
def test_a_source_that_is_cited_is_spelled_out(path: Path) -> None:
    """In the list of everybody's sources; of the audit also in its own."""
    known = set(_keys(_SOURCES[0]))
    if path.is_relative_to(_ROOT / "deploy" / "audit"):
        known |= set(_keys(_SOURCES[1]))

    assert set() == _cited(path) - known


def test_a_source_is_listed_once() -> None:
    """On one page or the other; and the pages are read at all."""
    keys = [key for page in _SOURCES for key in _keys(page)]

    assert {"EPK14", "LR80", "CP34"} < set(keys)
    assert len(set(keys)) == len(keys)
