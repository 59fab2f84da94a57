"""The glossary explains the words of help texts and of what commands print."""

import re
from functools import cache
from typing import Final

import pytest

from tests.support.commands import COMMANDS, ROOT, help_text

_HARD: Final = (
    *("accounting", "alphabet", "anonymity", "authority", "budget", "buckets", "certificate"),
    *("chain", "coalition", "collision", "colluders", "digest", "dummies", "envelope"),
    *("fingerprint", "head", "honest fraction", "identity", "ipums", "kosarak", "known dummies"),
    *("ledger", "local noise", "mechanism", "mse", "n_min", "od hp paper", "pairwise uniform"),
    *("population", "protocol", "receipt", "sealed", "seed", "sentinel", "shuffle model"),
    *("skippers", "suite", "token", "trust", "victim"),
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


@cache
def _help() -> str:
    """Give all help texts in one line."""
    return " ".join(" ".join(help_text(name) for name in COMMANDS).split()).lower()


def _plain(text: str) -> str:
    return text.lower().replace("-", " ")


def _has(text: str, word: str) -> bool:
    """Say whether a text has a word, or its plural."""
    return re.search(rf"(?<!\w){re.escape(_plain(word))}s?(?!\w)", _plain(text)) is not None


def _explained() -> str:
    """Return the words that the glossary explains."""
    lines = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    return " | ".join(line.strip("|").partition(" | ")[0] for line in lines if line[:2] == "| ")


@pytest.mark.parametrize("word", _PRINTED)
def test_a_printed_word_is_explained(word: str) -> None:
    """In the glossary."""
    assert _has(_explained(), word)


def test_every_hard_word_of_a_help_text_is_explained() -> None:
    """In the glossary too."""
    explained = _explained()

    assert [] == [word for word in _HARD if _has(_help(), word) and not _has(explained, word)]


def test_the_first_help_text_names_the_glossary() -> None:
    """In its last line."""
    assert "docs/glossary.md" in help_text("shuffledp").strip().splitlines()[-1]
