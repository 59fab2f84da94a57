"""A value as a person types it, or as a file holds it; no message repeats a word of it."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, get_args

from common.errors import SettingsError, ValueRangeError
from common.messages.value import Value
from common.protocols import Kind

_ITEM_DIGITS: Final = 20
"""Of the largest number that a call carries, 2^64 - 1."""
_MOST_CHARACTERS: Final = 1 << 20
"""Of what is read at all."""


def parse_kind(text: str) -> Kind:
    """
    Read a kind of value.

    Raises:
        SettingsError: There is none of this name.
    """
    known: tuple[Kind, ...] = get_args(Kind)
    for kind in known:
        if kind == text:
            return kind
    raise SettingsError(f"kind must be one of: {', '.join(known)}")


def parse_value(text: str, kind: Kind) -> Value:
    """
    Read a value of a kind.

    Raises:
        ValueRangeError: It is not written as the kind is; the message says how.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ValueRangeError(f"a value may have at most {_MOST_CHARACTERS} characters")
    return _READERS[kind](text)


def _item(text: str) -> int:
    digits = text.strip()
    if not _is_whole(digits):
        raise ValueRangeError("a value is an item's number, 0 or more")
    return int(digits)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _ITEM_DIGITS


def _text(text: str) -> str:
    """Give the text itself, without the end of its line."""
    return text.removesuffix("\n").removesuffix("\r")


def _number(text: str) -> float:
    number = _float(text)
    if number is None:
        raise ValueRangeError("a value is a number, such as 36.6")
    return number


def _numbers(text: str) -> tuple[float, ...]:
    numbers = tuple(_float(part) for part in text.split(","))
    found = tuple(number for number in numbers if number is not None)
    if len(found) != len(numbers):
        raise ValueRangeError("a value is a list of numbers with commas between, such as 1, 2.5")
    return found


def _pairs(text: str) -> dict[int, float]:
    """Read pairs; nothing is a person who owns no key."""
    pairs: dict[int, float] = {}
    for part in text.split(",") if text.strip() else ():
        key, colon, number = part.partition(":")
        value = _float(number)
        if not (colon and _is_whole(key.strip())) or value is None:
            raise ValueRangeError(
                "a value is pairs of a key's number and a number, such as 3:0.5, 17:1"
            )
        if int(key) in pairs:
            raise ValueRangeError("a key may be given once")
        pairs[int(key)] = value
    return pairs


def _float(text: str) -> float | None:
    """Read a number; of what Python takes for one, neither 1_0 nor other digits than 0 to 9."""
    try:
        return float(text) if text.isascii() and "_" not in text else None
    except ValueError:
        return None


_READERS: Final[Mapping[Kind, Callable[[str], Value]]] = MappingProxyType(
    {
        "categorical": _item,
        "string": _text,
        "mean": _number,
        "vector": _numbers,
        "key-value": _pairs,
    }
)
