"""
The canonical JSON of a task: one form for every value, derived from the types of its fields.

The rules are stated for other programs in docs/wire.md.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Final, Literal, NoReturn, get_args, get_origin

from shuffledp.common.errors import TaskError
from shuffledp.common.limits import stated_rules, unknown_keys
from shuffledp.common.task.dummy_forms import DUMMIES, AnyDummies
from shuffledp.common.task.shuffler_spec import NOISES, ItemNoise
from shuffledp.common.task.spec_forms import FORMS, AnySpec

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
        "keep_weight",
        "left_weight",
        "right_weight",
        "scale",
    }
)
"""Fields whose integers are texts, whatever their value: JavaScript rounds those above 2^53."""
MAX_TASK_BYTES: Final = 2 * 1024 * 1024
_INFINITE: Final = "inf"
"""Infinity; JSON has no number for it."""
_WORDS: Final[Mapping[Any, str]] = {
    bool: "true or false",
    bytes: "hexadecimal digits",
    float: "a number",
    int: "a whole number",
    list: "a list",
    str: "a text",
}
_TAG: Final = "distribution"
_UNIONS: Final[Mapping[Any, tuple[str, Mapping[str, type]]]] = {
    AnySpec: ("name", FORMS),
    AnyDummies: (_TAG, DUMMIES),
    ItemNoise: (_TAG, NOISES),
}
"""The key that names a class, and the classes by name, of each union of classes."""


def encode(noun: str, value: Any, **more: Any) -> bytes:  # noqa: ANN401  # a dataclass and JSON
    """
    Return the canonical bytes of a `noun` with more keys: sorted, no spaces, ASCII.

    Raises TaskError for more than MAX_TASK_BYTES.
    """
    keys = {**to_json(value), **more}
    text = json.dumps(keys, sort_keys=True, separators=(",", ":"), allow_nan=False)
    if len(text) > MAX_TASK_BYTES:
        raise TaskError(f"the {noun} has {len(text)} bytes; the limit is {MAX_TASK_BYTES}")
    return text.encode("ascii")


def key_of(field: Field[Any]) -> str:
    """Return the key of a field in JSON: its name, unless it states another."""
    return str(field.metadata.get("key", field.name))


def to_json(value: Any, name: str = "") -> Any:  # noqa: ANN401  # any value of a task
    """Return the JSON of a value; fields that have their default values are left out."""
    if is_dataclass(value):
        own = {key_of(each): getattr(value, each.name) for each in fields(value) if each.init}
        own |= {_TAG: value.distribution} if hasattr(value, _TAG) else {}
        default = {key_of(each): each.default for each in fields(value)}
        return {
            key: to_json(each, key)
            for key, each in own.items()
            if key not in default or each != default[key]
        }
    if isinstance(value, tuple):
        return [to_json(each, name) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    if value != value or value == -math.inf:  # noqa: PLR0124  # NaN
        raise TaskError(f"{name} must be a number above minus infinity")
    if type(value) is int and name in INTEGERS_AS_TEXT:
        return str(value)
    return _INFINITE if value == math.inf else value


def decode(noun: str, raw: bytes) -> Any:  # noqa: ANN401  # any JSON
    """Parse the JSON of a `noun`: ASCII without NaN and infinities. Raises TaskError."""
    if len(raw) > MAX_TASK_BYTES:
        raise TaskError(f"the {noun} has {len(raw)} bytes; the limit is {MAX_TASK_BYTES}")
    try:
        return json.loads(raw.decode("ascii"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise TaskError(f"the {noun} is not JSON in ASCII") from error


def from_json(kind: Any, raw: Any, name: str = "") -> Any:  # noqa: ANN401  # of any class
    """
    Read a class, or one of a union's, from fields of JSON or TOML; check each by its type's rule.

    An infinite number, and an integer of INTEGERS_AS_TEXT, may be a number or a text: `Task`
    encodes itself again, and compares. Raises TaskError, or a rule's own error; errors call the
    value `name`.
    """
    if type(raw) is not dict:
        raise TaskError(f"{name or 'the JSON'} must be a table")
    given, of_record = dict(raw), f" of {name}" * bool(name)
    if kind in _UNIONS:
        tag, forms = _UNIONS[kind]
        if given.get(tag) not in tuple(forms):
            raise TaskError(f"{tag}{of_record} must be one of: {', '.join(forms)}")
        kind = forms[given.pop(tag) if tag == _TAG else given[tag]]
    own = {key_of(each): each for each in fields(kind) if each.init}
    if unknown := given.keys() - own.keys():
        raise TaskError(unknown_keys(unknown, own, f"key{of_record}", ""))
    if lacking := [key for key in own.keys() - given.keys() if own[key].default is MISSING]:
        raise TaskError(f"missing key{of_record}: {', '.join(sorted(lacking))}")
    read, rules = dict[str, Any](), stated_rules(kind)
    for key, field in own.items():
        if key in given:
            place, (form, rule) = f"{name}.{key}".removeprefix("."), rules[field.name]
            read[field.name] = _field(form, given[key], place)
            if rule:
                rule(place, read[field.name])
    try:
        return kind(**read)
    except TaskError as error:
        raise TaskError(f"{name}: {error}".removeprefix(": ")) from error


def _field(kind: Any, raw: Any, name: str) -> Any:  # noqa: ANN401  # of any type
    """Read a field's value; raise TaskError."""
    if is_dataclass(kind) or kind in _UNIONS:
        return from_json(kind, raw, name)
    try:
        if get_origin(kind) is tuple:
            inner, *more = get_args(kind)
            if len(_checked(list, raw, name)) != 1 + len(more) and more != [...]:
                raise TaskError(f"{name} has a list of {len(raw)}; it must have {1 + len(more)}")
            return tuple(_field(inner, each, f"{name}[{i}]") for i, each in enumerate(raw))
        if kind is bytes:
            return bytes.fromhex(_checked(str, raw, name))
        key = name.rpartition(".")[2].partition("[")[0]  # of a name such as mechanism.weights[3]
        if kind is int and type(raw) is str and key in INTEGERS_AS_TEXT:
            return int(raw)
        if kind is float:
            return math.inf if raw == _INFINITE else float(_checked(float, raw, name))
        return raw if get_origin(kind) is Literal else _checked(kind, raw, name)
    except OverflowError:
        raise TaskError(f"{name} must be within 64 bits") from None
    except ValueError:  # of digits
        raise TaskError(f"{name} must be {_WORDS[kind]}") from None


def _checked(kind: Any, raw: Any, name: str) -> Any:  # noqa: ANN401  # any JSON
    """Return JSON; raise TaskError unless it has this type, or is a whole number for a float."""
    if type(raw) is not kind and (kind, type(raw)) != (float, int):
        raise TaskError(f"{name} must be {_WORDS[kind]}")
    return raw


def _refuse_constant(text: str) -> NoReturn:
    raise TaskError(f"{text} is not a number that a task may contain")
