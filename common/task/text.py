"""
A text in the one form that all parties write it in: Unicode's normal form C.

An é may be one code point, or an e and an accent: what looks the same must be the same bits of a
filter, on whatever keyboard it was typed. The normal form of characters that Unicode has assigned
never changes, so devices and operators with different versions of it agree.
"""

import unicodedata
from typing import Final

from common.task.specs import MAX_TEXT_BYTES

MOST_WRITTEN: Final = 4
"""Most characters that one character of a normalised text can have been written with."""
MOST_CHARACTERS: Final = MOST_WRITTEN * MAX_TEXT_BYTES
"""Of a text as it is typed; one that is longer is longer than any task takes, however written."""


def normalised(text: str) -> str:
    """
    Write a text as Unicode's normal form C. Run by devices, by the analyzer and by operators.

    A text longer than any task takes comes back as it is: a run of accents costs its square.
    """
    return unicodedata.normalize("NFC", text) if len(text) <= MOST_CHARACTERS else text
