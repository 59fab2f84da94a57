"""Whoever reads a help text finds its words explained."""

import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from common.protocols import PROTOCOLS
from deploy.accountant.query import MECHANISMS
from tests.support.commands import COMMANDS, ROOT, help_text

_HARD: Final = (
    *("accounting", "alphabet", "anonymity", "authority", "budget", "buckets", "burst"),
    *("certificate", "chain", "coalition", "collision", "colluders", "digest", "dry run"),
    *("dummies", "envelope", "fingerprint", "head", "honest fraction", "identity", "ipums"),
    *("kosarak", "known dummies", "label", "ledger", "local noise", "loopback", "mechanism"),
    *("mse", "n_min", "od hp paper", "p99", "pairwise uniform", "parquet", "pem", "plaintext"),
    *("population", "protocol", "ramp", "receipt", "sealed", "seed", "sentinel"),
    *("shuffle model", "sink", "skippers", "submission", "suite", "token", "trust", "victim"),
    "zipf",
)
"""Words of this field, with spaces for hyphens: to be explained wherever a help text has them."""
_PRINTED: Final = (
    *("benjamini and hochberg", "bonferroni", "clones", "closed loop", "cohort", "debiased", "em"),
    *("expectation maximisation", "fake", "fdr", "filter", "inclusion", "instantaneous response"),
    *("l1", "multi hm × q/d", "norm sub", "open loop", "p value", "permanent response"),
    *("privacy blanket", "quarantined", "replace one", "rmse", "shrunk", "solh", "spread"),
    *("two binomial form", "unexplained", "variation ratio", "ε for good"),
)
"""Words that commands and pages print."""
_SOURCES: Final = ("deploy", "common", "analyzer", "shuffler", "user_agent")


@cache
def _help() -> str:
    """Give all help texts in one line."""
    return " ".join(" ".join(help_text(name) for name in COMMANDS).split()).lower()


def _plain(text: str) -> str:
    return text.lower().replace("-", " ")


def _has(text: str, word: str) -> bool:
    """Say whether a text has a word, or its plural."""
    return re.search(rf"(?<!\w){re.escape(_plain(word))}s?(?!\w)", _plain(text)) is not None


def _first_cells(page: Path, section: str) -> list[str]:
    _, _, behind = page.read_text(encoding="utf-8").partition(f"\n## {section}\n")
    rows = [line for line in behind.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    return [row.strip("|").partition(" | ")[0].strip() for row in rows[1:]]


def _table_of_words() -> str:
    """README's table, whose meanings explain more words in bold, and first cells of the other."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("\n## Words\n")[2].partition("\n## ")[0]
    page = ROOT / "deploy" / "WORDS.md"
    cells = [*_first_cells(ROOT / "README.md", "Words"), *re.findall(r"\*\*(.+?)\*\*", section)]
    for part in ("In help texts", "In what is printed"):
        cells += _first_cells(page, part)
    return " | ".join([*cells, *re.findall(r"`n_min`", section)])


@pytest.mark.parametrize("word", _PRINTED)
def test_a_word_of_what_is_printed_is_explained(word: str) -> None:
    """In README's table or in that of the tools."""
    assert _has(_table_of_words(), word)


def test_every_hard_word_of_a_help_text_is_explained() -> None:
    """In one of the two."""
    explained = _table_of_words()

    assert [] == [word for word in _HARD if _has(_help(), word) and not _has(explained, word)]


@pytest.mark.parametrize("row", _first_cells(ROOT / "deploy" / "WORDS.md", "In help texts"))
def test_a_word_that_is_explained_is_in_a_help_text(row: str) -> None:
    """A row goes when its word does."""
    assert any(_has(_help(), word) for word in row.split(", "))


@pytest.mark.parametrize("row", _first_cells(ROOT / "deploy" / "WORDS.md", "In what is printed"))
def test_a_word_of_what_is_printed_is_in_a_program(row: str) -> None:
    """Or in a page's template."""
    files = [
        path
        for name in _SOURCES
        for ending in ("py", "html")
        for path in (ROOT / name).rglob(f"*.{ending}")
    ]
    text = " ".join(path.read_text(encoding="utf-8") for path in files)

    assert any(_has(text, word) for word in row.split(", "))


def test_every_mechanism_and_protocol_that_a_help_text_names_is_listed() -> None:
    """With its source, on the page that the tables of words send readers to."""
    tasks = (ROOT / "deploy" / "TASKS.md").read_text(encoding="utf-8")
    researchers = (ROOT / "deploy" / "RESEARCHERS.md").read_text(encoding="utf-8")

    assert [] == [name for name in PROTOCOLS if f"\n| `{name}` |" not in tasks]
    assert [] == [name for name in MECHANISMS if f"`{name}`" not in researchers]


def test_the_first_help_text_says_where_words_are_explained() -> None:
    """In its last line."""
    last = help_text("shuffledp").strip().splitlines()[-1]

    assert "deploy/WORDS.md" in last
