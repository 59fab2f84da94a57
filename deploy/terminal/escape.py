"""Escape untrusted text for terminal output."""

import unicodedata
from typing import Final

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that control a terminal, reverse text direction, or are invalid."""


def visible(text: str) -> str:
    """Replace control characters with readable escapes."""
    return "".join(
        character.encode("unicode_escape").decode("ascii")
        if unicodedata.category(character) in _HIDDEN
        else character
        for character in text
    )


def escaped(text: str) -> str:
    """Escape control characters and markup in untrusted text for rich; append no markup to it."""
    from rich.markup import escape  # noqa: PLC0415  # help needs no rich

    # The blank keeps `escape` from doubling a backslash at the end.
    return escape(f"{visible(text)} ")[:-1]
