"""One person's value, as a device receives it."""

from collections.abc import Mapping
from typing import Final

from common.protocols import Kind

Value = int | str | float | tuple[float, ...] | Mapping[int, float]
"""An item; a text; a number; several numbers; or a number for each key that the person owns."""

KIND_IN_WORDS: Final[Mapping[Kind, str]] = {
    "categorical": "an item's number",
    "string": "a text",
    "mean": "a number",
    "vector": "a list of numbers",
    "key-value": "pairs of a key and a number",
}
"""The value that a task of each kind asks for."""


def kind_of(value: Value) -> Kind:
    """Return the kind of task that a value answers."""
    if isinstance(value, int):
        return "categorical"
    if isinstance(value, str):
        return "string"
    if isinstance(value, float):
        return "mean"
    return "vector" if isinstance(value, tuple) else "key-value"
