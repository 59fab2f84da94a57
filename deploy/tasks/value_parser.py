"""Values as a person types them, or as a file holds them; no message repeats any of their text."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, get_args

from common.errors import SettingsError, ValueRangeError
from common.messages.value import Value
from common.protocols import Kind

_ITEM_DIGITS: Final = 20
"""Of the largest number that a call carries, 2^64 - 1."""
_MOST_CHARACTERS: Final = 1 << 20


def parse_kind(text: str) -> Kind:
    """
    Parse a kind of value.

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
    Parse a value of a kind.

    Raises:
        ValueRangeError: It is not written as this kind is; the message says how it is.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ValueRangeError(f"a value may have at most {_MOST_CHARACTERS} characters")
    return _PARSERS[kind](text)


def _item(text: str) -> int:
    digits = text.strip()
    if not _is_whole(digits):
        raise ValueRangeError("a value is an item's number, 0 or more")
    return int(digits)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _ITEM_DIGITS


def _text(text: str) -> str:
    """Return the text without its line end."""
    return text.removesuffix("\n").removesuffix("\r")


def _number(text: str) -> float:
    return _float(text, "a value is a number, such as 36.6")


def _numbers(text: str) -> tuple[float, ...]:
    rule = "a value is a list of numbers with commas between, such as 1, 2.5"
    return tuple(_float(part, rule) for part in text.split(","))


def _pairs(text: str) -> dict[int, float]:
    """Parse pairs; an empty text is a person who owns no key."""
    rule = "a value is pairs of a key's number and a number, such as 3:0.5, 17:1"
    pairs: dict[int, float] = {}
    for part in text.split(",") if text.strip() else ():
        key, _, number = part.partition(":")
        if not _is_whole(key.strip()):
            raise ValueRangeError(rule)
        if int(key) in pairs:
            raise ValueRangeError("a key may be given once")
        pairs[int(key)] = _float(number, rule)
    return pairs


def _float(text: str, rule: str) -> float:
    """Parse a number in ASCII; Python would take 1_0 and the digits of other scripts too."""
    try:
        if text.isascii() and "_" not in text:
            return float(text)
    except ValueError:
        pass
    raise ValueRangeError(rule)


_PARSERS: Final[Mapping[Kind, Callable[[str], Value]]] = MappingProxyType(
    {
        "categorical": _item,
        "string": _text,
        "mean": _number,
        "vector": _numbers,
        "key-value": _pairs,
    }
)
