"""
The canonical JSON of a task: one form for every value, derived from the types of its fields.

The rules are stated for other programs in docs/theory/task-format.md.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, Final, Literal, NoReturn, get_args, get_origin, get_type_hints

from common.errors import TaskError
from common.task.dummy_forms import DUMMIES, AnyDummies
from common.task.shuffler_spec import NOISES, ItemNoise
from common.task.specs import FORMS, AnySpec

INTEGERS_AS_TEXT: Final = frozenset(
    {
        "true_weight",
        "other_weight",
        "key_true_weight",
        "key_other_weight",
        "value_true_weight",
        "value_other_weight",
        "piecewise_weight",
        "permanent_weight",
        "unset_weight",
        "set_weight",
        "extra_weight",
        "levels",
        "keep_weight",
        "left_weight",
        "right_weight",
        "scale",
    }
)
"""Fields whose integers are texts, whatever their value: JavaScript rounds those above 2^53."""
PARSE_ERRORS: Final = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RecursionError,
    OverflowError,
)
"""Exceptions, besides TaskError, that parsing arbitrary bytes may raise."""
_INFINITE: Final = "inf"
"""Infinity; JSON has no number for it."""
_TAG: Final = "distribution"
_UNIONS: Final[Mapping[Any, tuple[str, Mapping[str, type]]]] = {
    AnySpec: ("name", FORMS),
    AnyDummies: (_TAG, DUMMIES),
    ItemNoise: (_TAG, NOISES),
}
"""The key that names a class, and the classes by name, of each union of classes."""


def encode(value: Any) -> bytes:  # noqa: ANN401  # a dataclass, or a mapping of its fields
    """Return the canonical bytes of a value: sorted keys, no spaces, ASCII."""
    return json.dumps(
        to_json(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode("ascii")


def to_json(value: Any, name: str = "") -> Any:  # noqa: ANN401  # any value of a task
    """Return the JSON of a value; fields that have their default values are left out."""
    if is_dataclass(value):
        own = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
        own |= {_TAG: value.distribution} if hasattr(value, _TAG) else {}
        default = {each.name: each.default for each in fields(value)}
        return {
            key: to_json(each, key)
            for key, each in own.items()
            if key not in default or each != default[key]
        }
    if isinstance(value, tuple):
        return [to_json(each, name) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    if value != value:  # noqa: PLR0124  # NaN
        raise TaskError(f"{name} is not a number")
    if type(value) is int and name in INTEGERS_AS_TEXT:
        return str(value)
    return _INFINITE if value == math.inf else value


def decode(raw: bytes) -> Any:  # noqa: ANN401  # any JSON
    """Parse JSON in ASCII without NaN and infinities; raise PARSE_ERRORS or TaskError."""
    return json.loads(raw.decode("ascii"), parse_constant=_refuse_constant)


def from_json(kind: Any, raw: Any, name: str = "") -> Any:  # noqa: ANN401  # of any type
    """
    Parse the JSON of a value of this type.

    Raises TaskError or PARSE_ERRORS for arbitrary JSON. JSON that is not canonical may be accepted:
    `Task.from_bytes` encodes the value again, and compares.
    """
    if kind in _UNIONS:
        tag, forms = _UNIONS[kind]
        if raw[tag] not in forms:
            raise TaskError(f"{tag} of {name} must be one of: {', '.join(forms)}")
        kind = forms[raw[tag]]
    if is_dataclass(kind):
        types = _types(kind)  # type: ignore[arg-type]  # mypy calls types unhashable
        own = {key: each for key, each in raw.items() if key != _TAG}
        return kind(**{key: from_json(types[key], each, key) for key, each in own.items()})  # type: ignore[operator]  # a class
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        return tuple(from_json(inner, each, name) for each in _checked(list, raw, name))
    if kind is bytes:
        return bytes.fromhex(raw)
    if kind is int and name in INTEGERS_AS_TEXT:
        return int(_checked(str, raw, name))
    if kind is float:
        return math.inf if raw == _INFINITE else float(_checked((float, int), raw, name))
    return raw if get_origin(kind) is Literal else _checked(kind, raw, name)


def _checked(kinds: Any, raw: Any, name: str) -> Any:  # noqa: ANN401  # any JSON
    """Return JSON; raise TaskError unless it has the type, or one of the types, `kinds`."""
    allowed = kinds if isinstance(kinds, tuple) else (kinds,)
    if type(raw) not in allowed:
        words = " or ".join(kind.__name__ for kind in allowed)
        raise TaskError(f"{name} has the type {type(raw).__name__}; it must be {words}")
    return raw


@cache
def _types(kind: type) -> Mapping[str, Any]:
    """Return the type of each field of a dataclass, without None."""
    return {name: _without_none(hint) for name, hint in get_type_hints(kind).items()}


def _without_none(hint: Any) -> Any:  # noqa: ANN401  # any type
    if not isinstance(hint, UnionType):
        return hint
    return reduce(or_, (each for each in get_args(hint) if each is not NoneType))


def _refuse_constant(text: str) -> NoReturn:
    raise TaskError(f"{text} is not a number that a task may contain")
