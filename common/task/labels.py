"""Labels of items: the form that all parties compare, and its checks."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

from shuffledp.common.errors import TaskError

MAX_TEXT_BYTES: Final = 1024
"""Maximum of a task's most_bytes."""
MAX_LABEL_CHARACTERS: Final = 256
MAX_COMPOSED_CHARACTERS: Final = 4
"""Maximum number of characters that normalization combines into one."""
MAX_TYPED_CHARACTERS: Final = MAX_COMPOSED_CHARACTERS * MAX_TEXT_BYTES
"""Maximum characters of a text before normalization; no task accepts a longer one."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""Surrogates: valid in JSON, but not in files, messages or terminals."""


def normalize(text: str) -> str:
    """
    Return a text in the form that all parties compare.

    That is Unicode's normal form C without whitespace at either end. A text then sets the same bits
    of a filter however it was typed. The normal form of assigned
    characters never changes, so all versions of Unicode agree. A text longer than any task accepts
    is only stripped, since normalizing accents takes quadratic time.
    """
    text = text.strip()
    return unicodedata.normalize("NFC", text) if len(text) <= MAX_TYPED_CHARACTERS else text


def check_labels(labels: Sequence[str], domain_size: int) -> None:
    """
    Raise TaskError unless labels are absent, or one per item, short, distinct and valid text.

    Labels are compared in normal form C and without whitespace at either end, just as devices
    compare them with an answer.
    """
    if not labels:
        return
    if len(labels) != domain_size:
        raise TaskError(f"there are {len(labels)} labels for a domain_size of {domain_size}")
    longest = max(map(len, labels))
    if longest > MAX_LABEL_CHARACTERS:
        raise TaskError(
            f"a label has {longest} characters; it may have at most {MAX_LABEL_CHARACTERS}"
        )
    first = dict[str, int]()
    for item, label in enumerate(labels):
        if (earlier := first.setdefault(normalize(label), item)) != item:
            raise TaskError(f"two items have the same label: items {earlier} and {item}")
        if _SURROGATE.search(label):
            raise TaskError(
                f"the label of item {item} contains half of a surrogate pair: it must be valid text"
            )


def check_new_labels(labels: Sequence[str]) -> None:
    """
    Raise TaskError unless a new task's labels are lines, stripped and in normal form C.

    Earlier versions signed tasks with other labels, which stay readable.
    """
    for item, label in enumerate(labels):
        if len(label.splitlines()) != 1:
            raise TaskError(f"the label of item {item} is empty, or has a line break")
        if label != label.strip():
            raise TaskError(f"the label of item {item} begins or ends with whitespace")
        if label != normalize(label):
            raise TaskError(f"the label of item {item} is not in Unicode's normal form C")
