"""
Parse single fields, and convert messages whose fields match a dataclass.

Only the package `wire` parses messages. It checks lengths, and ranges that do not depend on a task.
Every parser raises WireError, which names the field and the public number that broke the rule.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any, Final, Generic, TypeVar

import numpy as np
from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray

from common.errors import WireError
from common.task_digest import DIGEST_BYTES, TaskDigest

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of a message to any service."""

W = TypeVar("W", bound=str)
E = TypeVar("E", bound=Enum)
V = TypeVar("V")
M = TypeVar("M", bound=Message)
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


def parse_numbers(
    name: str, fields: Sequence[float], minimum: float, maximum: float
) -> NDArray[np.float64]:
    """Parse numbers from `minimum` to `maximum`; NaN is refused."""
    read = np.array(fields, dtype=np.float64)
    outside = read[~((minimum <= read) & (read <= maximum))]
    if len(outside):
        raise WireError(f"{name} holds {outside[0]}; each must lie between {minimum} and {maximum}")
    return read


def parse_refused(_name: str, field: Mapping[str, int], causes: Sequence[W]) -> dict[W, int]:
    """Parse counts by cause of refusal; each cause must be one of `causes`."""
    return {parse_word("a cause of refusal", cause, causes): n for cause, n in field.items()}


def parse_stored(kind: type[M], stored: bytes, what: str) -> M:
    """Parse a message from a party's own storage; `what` it is completes the error."""
    try:
        return kind.FromString(stored)
    except DecodeError as error:
        raise WireError(f"the stored {what} is damaged") from error


def digest_from_wire(field: bytes) -> TaskDigest:
    """Parse a task digest."""
    return TaskDigest(parse_fixed("task_digest", field, DIGEST_BYTES))


class EnumCodec(Generic[E]):
    """Converts between a Python and a protobuf enumeration with the same names after a prefix."""

    def __init__(self, noun: str, members: type[E], numbers: EnumDescriptor, prefix: str) -> None:
        self._noun = noun
        self._numbers = {
            member: numbers.values_by_name[prefix + member.name].number for member in members
        }
        self._members = {number: member for member, number in self._numbers.items()}

    def to_wire(self, member: E) -> Any:  # noqa: ANN401  # the number type of the enumeration
        """Return the protobuf number of a member."""
        return self._numbers[member]

    def __call__(self, _name: str, number: int) -> E:
        """Return the member with this protobuf number; raise WireError if there is none."""
        if number not in self._members:
            raise WireError(f"{self._noun} {number} is unknown to this program")
        return self._members[number]


Reader = Callable[[str, Any], Any]
"""Parses a field, from its name and value."""
READERS: Final[Mapping[str, Reader]] = {"task_digest": lambda _, field: digest_from_wire(field)}
"""Readers, by name, of fields that mean the same in every message."""


class Codec(Generic[V, M]):
    """
    Converts between a dataclass and a message with the same fields.

    A field without a reader is kept unchanged, except that lists become tuples. A missing optional
    field gets the dataclass's default, or None.
    """

    def __init__(
        self,
        value: type[V],
        message: type[M],
        readers: Mapping[str, Reader] | None = None,
        writers: Mapping[str, Callable[[Any], Any]] | None = None,
        *,
        apart: frozenset[str] = frozenset(),
    ) -> None:
        """
        Match fields by name.

        `readers` maps field names to parsers, and `writers` to converters of values other than
        None; a codec is both. Fields in `apart` are converted by the caller, who passes them to
        `from_wire`.
        """
        readers = readers or {}
        both = {name: x.to_wire for name, x in readers.items() if isinstance(x, Codec | EnumCodec)}
        known = message.DESCRIPTOR.fields_by_name
        self._value, self._message = value, message
        self._readers = {**READERS, **readers}
        self._writers = {**both, **(writers or {})}
        self._fields = [
            (field.name, known[field.name], field.default is not MISSING)
            for field in fields(value)  # type: ignore[arg-type]  # a dataclass
            if field.name not in apart
        ]

    def __call__(self, _name: str, message: M) -> V:
        """Parse a field of another message; see `from_wire`."""
        return self.from_wire(message)

    def to_wire(self, value: V) -> M:
        """Convert a value to its message."""
        found = {name: getattr(value, name) for name, _, _ in self._fields}
        for name, write in self._writers.items():
            if found[name] is not None:
                found[name] = write(found[name])
        return self._message(**found)

    def from_wire(self, message: M, **apart: Any) -> V:  # noqa: ANN401  # fields of any type
        """Parse a value; raise WireError if a field breaks its rule."""
        found = dict(apart)
        for name, known, has_default in self._fields:
            if known.has_presence and not message.HasField(name):
                if not has_default:
                    found[name] = None
                continue
            field = getattr(message, name)
            reader = self._readers.get(name)
            if reader is not None:
                found[name] = reader(name, field)
            else:
                found[name] = tuple(field) if known.is_repeated else field
        return self._value(**found)
