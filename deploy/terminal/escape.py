"""Escape untrusted text for terminal output."""

import unicodedata
from typing import Final

from rich.markup import escape

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that control a terminal, reverse its text, or are invalid."""


def visible(text: str) -> str:
    """Replace control characters by readable escapes."""
    return "".join(
        character.encode("unicode_escape").decode("ascii")
        if unicodedata.category(character) in _HIDDEN
        else character
        for character in text
    )


def escaped(text: str) -> str:
    """
    Escape text for rich, too: none of it is markup. No markup may follow it directly.

    The blank keeps a backslash at the end single: `escape` would double it for what follows.
    """
    return escape(f"{visible(text)} ")[:-1]
