"""
A person's value, and a submission, which holds all sealed reports of one user in one envelope.

The envelope's plaintext is submission id ‖ sealed reports, in fixed-length binary: a protocol
buffer inside a ciphertext would leak its content by its length.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.errors import ValueRangeError
from shuffledp.common.protocols import Kind
from shuffledp.common.task.labels import normalize
from shuffledp.common.task.task import SUBMISSION_ID_BYTES

MAX_VALUE_CHARACTERS: Final = 1 << 20
LISTED_LABELS: Final = 20
"""Maximum number of labels or groups that an error lists."""
_ITEM_DIGITS: Final = 20
"""Digits of 2^64 - 1, the largest number on the wire."""
_PAIR: Final = re.compile(r"(.*?):([^:,]*)(?:,|\Z)", re.DOTALL)
_PAIRS_RULE: Final = "a value is comma-separated pairs of key and number, such as 3:0.5, 17:1"

Value = int | str | float | tuple[float, ...] | Mapping[int, float]
"""An item; a text; a number; several numbers; or a number for each key that the person owns."""


def kind_of(value: Value) -> Kind:
    """Return the kind of task that collects a value of this type."""
    if isinstance(value, int):
        return "categorical"
    if isinstance(value, str):
        return "string"
    if isinstance(value, float):
        return "mean"
    return "vector" if isinstance(value, tuple) else "key-value"


def parse_number(text: str, rule: str) -> float:
    """Parse an ASCII number without the underscores that Python allows; raise ValueRangeError."""
    with suppress(ValueError):
        if text.isascii() and "_" not in text:
            return float(text) + 0.0  # 0.0 for -0.0
    raise ValueRangeError(rule)


def parse_numbers(
    text: str, rule: str = "a value is a comma-separated list of numbers, such as 1, 2.5"
) -> tuple[float, ...]:
    """Parse comma-separated numbers; raise ValueRangeError(rule) if one is not a number."""
    return tuple(parse_number(part, rule) for part in text.split(","))


def label_numbers(labels: Sequence[str]) -> dict[str, int]:
    """Return every label's item, by the label as devices compare it with an answer."""
    return {normalize(label): item for item, label in enumerate(labels)}


def parse_item(text: str, labels: Mapping[str, int], size: int, noun: str = "value") -> int:
    """
    Parse an item's label or number; with labels, a number needs a # before it, as in #2.

    Otherwise 2 would be the third of the labels 10, 20 and 30. The number may exceed the domain.
    Raises ValueRangeError, without the text.
    """
    text = normalize(text)
    if text in labels:
        return labels[text]
    digits = text.removeprefix("#")
    explicit = digits != text or not labels
    if explicit and digits.isascii() and digits.isdecimal() and len(digits) <= _ITEM_DIGITS:
        return int(digits)
    rule = f"a number from 0 to {size - 1}"
    if labels:
        few = len(labels) <= LISTED_LABELS
        known = ", ".join(labels) if few else f"the task's {len(labels):,} labels"
        rule = f"one of {known}, or # and a number, from #0 to #{size - 1}"
    raise ValueRangeError(f"a {noun} must be {rule}")


def parse_pairs(text: str, labels: Mapping[str, int], size: int) -> dict[int, float]:
    """
    Parse pairs of a key, as `parse_item` does, and a number; an empty text owns no key.

    A label may contain commas and colons. Raises ValueRangeError, without the text.
    """
    pairs: dict[int, float] = {}
    at = 0 if text.strip() else len(text)
    while at < len(text):
        found = _PAIR.match(text, at)
        if found is None:
            raise ValueRangeError(_PAIRS_RULE)
        key = parse_item(found[1], labels, size, "key")
        if key >= size:
            raise ValueRangeError(f"a key must lie between 0 and {size - 1}")
        if key in pairs:
            raise ValueRangeError("a key appears twice; each key may appear once")
        pairs[key] = parse_number(found[2], _PAIRS_RULE)
        at = found.end()
    return pairs


class Outcome(StrEnum):
    """
    The shuffler's answer to one submission.

    A StrEnum, since Python hashes other enumerations too slowly for millions of outcomes.
    """

    STORED = "stored"
    REPEATED = "repeated"
    """Stored before with the same bytes; once the batch is permuted, a retry gets CLOSED."""
    CONFLICT = "conflict"
    """The submission id was used with other bytes."""
    CLOSED = "closed"
    """The batch no longer collects."""
    MALFORMED = "malformed"
    """The envelope does not open, or has the wrong length."""
    TOKEN_USED = "token used"  # noqa: S105  # an outcome, not a password
    """The token was used with another submission."""
    UNAUTHENTICATED = "unauthenticated"
    """The token is missing or invalid."""


STORED_OUTCOMES: Final = frozenset({Outcome.STORED, Outcome.REPEATED})
"""Outcomes of submissions that are in the batch."""
REFUSALS: Final = tuple(outcome for outcome in Outcome if outcome not in STORED_OUTCOMES)
"""Outcomes of submissions that are not in the batch."""


def split_submission(plaintext: bytes) -> tuple[bytes, bytes]:
    """Split a plaintext into the id, by which retries are known, and the sealed reports."""
    return plaintext[:SUBMISSION_ID_BYTES], plaintext[SUBMISSION_ID_BYTES:]


PLAIN_REPORT: Final = np.dtype([("item", "<u4")])
"""A report that names its item."""


def plain_reports(items: NDArray[np.int64]) -> NDArray[np.void]:
    """Encode items as plain reports, shape (n,). Run by devices and, for dummies, the shuffler."""
    reports = np.empty(items.shape, dtype=PLAIN_REPORT)
    reports["item"] = items
    return reports
