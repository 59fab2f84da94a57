"""
Convert messages whose fields match a dataclass.

The package `wire` parses all messages but those between one party's own processes. It checks
lengths, and ranges that do not depend on a task.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from shuffledp.common.errors import WireError
from shuffledp.common.limits import Rule, parse_fixed, stated_rules
from shuffledp.common.task_digest import DIGEST_BYTES, TaskDigest

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of a message to any service."""
MAX_RESULT_BYTES: Final = 1024 * 1024 * 1024
"""Maximum size of a result, which may hold three numbers for each of 2^24 items."""

E = TypeVar("E", bound=Enum)
V = TypeVar("V")
M = TypeVar("M", bound=Message)


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
    """
    Converts between a Python and a protobuf enumeration with the same names.

    Those of a protobuf enumeration such as TaskState have a prefix, TASK_STATE_.
    """

    def __init__(self, members: type[E], numbers: EnumDescriptor) -> None:
        """Match members by name."""
        words = re.findall("[A-Z][a-z]+", numbers.name)
        prefix = "".join(f"{word.upper()}_" for word in words)
        self._noun = " ".join(words).lower()
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


class Codec(Generic[V, M]):
    """
    Converts between a dataclass and a message with the same fields.

    A field's type may state its reader (see `shuffledp.common.limits`). Enumerations and
    dataclasses have codecs of their own. Any other field is kept unchanged, except that lists
    become tuples. A missing optional field gets the dataclass's default, or None.
    """

    def __init__(
        self,
        value: type[V],
        message: type[M],
        readers: Mapping[str, Rule] | None = None,
        writers: Mapping[str, Callable[[Any], Any]] | None = None,
        *,
        apart: frozenset[str] = frozenset(),
    ) -> None:
        """
        Match fields by name.

        `readers` maps field names to parsers that their types do not state, and `writers` to
        converters of values other than None; a codec is both. Fields in `apart` are converted by
        the caller, who passes them to `from_wire`. Raises KeyError for a name of no field, and
        TypeError for a field with two parsers.
        """
        known = message.DESCRIPTOR.fields_by_name
        own = [field for field in fields(value) if field.name not in apart]  # type: ignore[arg-type]  # a dataclass
        unknown = {*(readers or {}), *(writers or {})} - {field.name for field in own}
        if unknown:
            raise KeyError(f"{value.__name__} has no field {', '.join(sorted(unknown))}")
        rules = stated_rules(value)  # type: ignore[arg-type]  # mypy calls types unhashable
        given: Mapping[str, Rule]
        given = {"task_digest": lambda _, field: digest_from_wire(field), **(readers or {})}
        self._readers = dict[str, Rule | None]()
        for field in own:
            name, (kind, rule) = field.name, rules[field.name]
            if rule and name in given:
                raise TypeError(f"{name} of {value.__name__} has two parsers")
            self._readers[name] = rule or given.get(name) or _reader(kind, known[name])
        both = (Codec, EnumCodec)
        coded = {name: x.to_wire for name, x in self._readers.items() if isinstance(x, both)}
        self._value, self._message = value, message
        self._writers = {**coded, **(writers or {})}
        self._fields = [(each.name, known[each.name], each.default is not MISSING) for each in own]

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
            reader = self._readers[name]
            if reader is not None:
                found[name] = reader(name, field)
            else:
                found[name] = tuple(field) if known.is_repeated else field
        return self._value(**found)


def _reader(kind: Any, known: Any) -> Rule | None:  # noqa: ANN401  # types of any field
    """Return the codec of a field of this type and descriptor; None to keep it unchanged."""
    if known.enum_type:
        return EnumCodec(kind, known.enum_type)
    if known.message_type and isinstance(kind, type):
        return Codec(kind, GetMessageClass(known.message_type))
    return None
