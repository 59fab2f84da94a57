"""
Limits of the fields of messages: a parser returns a valid value, or raises WireError.

The error names the field and the public number that broke the rule. A dataclass states the parser
of a field in the field's type, `Annotated[int, partial(parse_count, maximum=9)]`, where codecs read
it.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from common.errors import WireError

MAX_USERS: Final = 10**9
MAX_UNIX_TIME: Final = 2**40

W = TypeVar("W", bound=str)
L = TypeVar("L", bound=bytes | str)


def parse_word(name: str, field: str, allowed: Sequence[W]) -> W:
    """Parse a word that must be one of `allowed`."""
    for word in allowed:
        if word == field:
            return word
    raise WireError(f"{name} must be one of {', '.join(allowed)}")


def parse_fixed(name: str, field: bytes, length: int) -> bytes:
    """Parse bytes of exactly this length."""
    if len(field) != length:
        raise WireError(f"{name} has {len(field)} bytes; it must have {length}")
    return field


def parse_bounded(name: str, field: L, length: int) -> L:
    """Parse bytes or a text of at most this length."""
    if len(field) > length:
        unit = "bytes" if isinstance(field, bytes) else "characters"
        raise WireError(f"{name} has {len(field)} {unit}; it may have at most {length}")
    return field


def parse_amount(name: str, field: float, maximum: float) -> float:
    """Parse a number from 0 to `maximum`."""
    if not 0 <= field <= maximum:
        raise WireError(f"{name} is {field}; it must lie between 0 and {maximum}")
    return field


def parse_count(name: str, field: int, maximum: int) -> int:
    """Parse a whole number up to `maximum`."""
    if field > maximum:
        raise WireError(f"{name} is {field}; it may be at most {maximum}")
    return field


def parse_positive(name: str, field: int, maximum: int) -> int:
    """Parse a whole number from 1 to `maximum`."""
    if not 1 <= field <= maximum:
        raise WireError(f"{name} is {field}; it must lie between 1 and {maximum}")
    return field


def parse_texts(_name: str, fields: Sequence[L], noun: str, length: int) -> tuple[L, ...]:
    """Parse bytes or texts of at most this length each; errors call one of them `noun`."""
    return tuple(parse_bounded(noun, field, length) for field in fields)


def parse_refused(_name: str, field: Mapping[str, int], causes: Sequence[W]) -> dict[W, int]:
    """Parse counts by cause of refusal; each cause must be one of `causes`."""
    return {parse_word("a cause of refusal", cause, causes): n for cause, n in field.items()}
