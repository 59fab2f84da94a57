"""The names of a task's items: as many as items, each once, and text that can be written."""

import re
from collections.abc import Sequence
from typing import Final

from common.errors import TaskError

MAX_LABEL_CHARACTERS: Final = 256
_HALF_A_PAIR: Final = re.compile("[\ud800-\udfff]")
"""JSON can hold one; no file, message or terminal can."""


def check_labels(labels: Sequence[str], domain_size: int) -> None:
    """
    Check the labels of a task; there may be none.

    Raises:
        TaskError: They are not as many as items, two are the same, or one is too long or no text.
    """
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
