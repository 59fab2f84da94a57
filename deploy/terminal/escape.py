"""Text from elsewhere, made fit for a terminal: names of values, messages of other parties."""

import unicodedata
from typing import Final

from rich.markup import escape

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that steer a terminal, turn its writing round, or are none."""


def visible(text: str) -> str:
    """Write characters that would steer a terminal as escapes that can be read."""
    return "".join(
        character.encode("unicode_escape").decode("ascii")
        if unicodedata.category(character) in _HIDDEN
        else character
        for character in text
    )


def shown(text: str) -> str:
    """
    The same, for what rich prints: nothing in it is markup. No markup may follow it at once.

    A backslash at the end stays one: `escape` alone would double it, for the sake of what follows,
    and another text would look the same.
    """
    return escape(f"{visible(text)} ")[:-1]
