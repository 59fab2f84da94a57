"""
Labels, names, and texts in the one form that all parties write: Unicode's normal form C.

An é may be one code point, or an e and an accent: what looks the same must be the same bits of a
filter, on whatever keyboard it was typed. The normal form of characters that Unicode has assigned
never changes, so devices and operators with different versions of it agree.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from common.errors import TaskError
from common.task.specs import MAX_TEXT_BYTES

MAX_LABEL_CHARACTERS: Final = 256
MOST_WRITTEN: Final = 4
"""Most characters that one character of a normalised text can have been written with."""
MOST_CHARACTERS: Final = MOST_WRITTEN * MAX_TEXT_BYTES
"""Of a text as it is typed; one that is longer is longer than any task takes, however written."""
_HALF_A_PAIR: Final = re.compile("[\ud800-\udfff]")
"""JSON can hold one; no file, message or terminal can."""


def normalised(text: str) -> str:
    """
    Write a text as Unicode's normal form C, which devices, analyzer and operators compare.

    A text longer than any task takes is returned as it is: a run of accents costs its square.
    """
    return unicodedata.normalize("NFC", text) if len(text) <= MOST_CHARACTERS else text


def check_labels(labels: Sequence[str], domain_size: int) -> None:
    """Check a task's labels: none, or a different, short text for each item; raise TaskError."""
    if not labels:
        return
    if len(labels) != domain_size:
        raise TaskError(f"there are {len(labels)} labels for a domain_size of {domain_size}")
    if len(set(labels)) != len(labels):
        raise TaskError("two items have the same label")
    longest = max(map(len, labels))
    if longest > MAX_LABEL_CHARACTERS:
        raise TaskError(
            f"a label has {longest} characters; it may have at most {MAX_LABEL_CHARACTERS}"
        )
    for item, label in enumerate(labels):
        if _HALF_A_PAIR.search(label):
            raise TaskError(
                f"the label of item {item} holds half of a surrogate pair, which is no text"
            )
