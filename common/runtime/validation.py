"""Strict checks of configuration files and environment variables; errors hide ill-typed values."""

import codecs
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError, to_json

from shuffledp.common.errors import SettingsError, ShuffleDpError
from shuffledp.common.limits import unknown_keys

STRICT: Final = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)
"""No type conversion, no unknown keys, and no values in errors."""

_MAX_KEY_PARTS: Final = 32
"""Maximum parts of a dotted key: tomllib's memory grows quadratically. Keys need at most 3."""
_LONG_KEY: Final = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{_MAX_KEY_PARTS},}}"""
)
_REASON: Final = re.compile(r"(?!Cannot|Expected newline|Invalid date)(?:[\w ,/-]|'[^\w\s]{1,2}')+")
_POSITION: Final = re.compile(r"\(at line \d+, column \d+\)|\(at end of document\)")
_MAX_INTEGER: Final = 2**63
"""TOML's own bound; pydantic would parse an integer of 400 digits as infinity."""
_UNKNOWN: Final = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
"""pydantic's types of errors about unknown keys."""

T = TypeVar("T")


def read_file(
    path: Path, max_bytes: int | None = None, refusal: type[ShuffleDpError] = SettingsError
) -> bytes:
    """
    Return a text file's bytes, without a byte-order mark, which some editors put first.

    Raises `refusal` if it is unreadable or longer than `max_bytes`.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(-1 if max_bytes is None else max_bytes + 1)
    except OSError as error:
        raise refusal(f"{path} cannot be read: {error.strerror}") from error
    if max_bytes is not None and len(raw) > max_bytes:
        raise refusal(f"{path} is too long; at most {max_bytes} bytes are read")
    return raw.removeprefix(codecs.BOM_UTF8)


def file_version(path: Path) -> tuple[int, int] | None:
    """Return a value that changes when a file is replaced; None if it is missing."""
    try:
        file = os.stat(path)  # noqa: PTH116  # faster than Path.stat, at every call
    except OSError:
        return None
    return (file.st_mtime_ns, file.st_ino)


def read_toml(path: Path, refusal: type[ShuffleDpError], *, max_bytes: int) -> dict[str, Any]:
    """Read a TOML file's keys; raise `refusal` if it is invalid, too long or unreadable."""
    raw = read_file(path, max_bytes, refusal)
    try:
        text = raw.decode("utf-8").replace("\r\n", "\n")
        if _LONG_KEY.search(text):
            raise refusal(f"a key of {path} has too many parts; at most {_MAX_KEY_PARTS} are read")
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError covers numbers with too many digits
        position = _POSITION.search(str(error))  # unclear reasons may quote the file
        where = f" {position[0]}" if position else ""
        fault = "is not TOML, repeats a key, or has no such date or time"
        if position and _REASON.fullmatch(reason := str(error)[: position.start() - 1]):
            fault = f"is not TOML: {reason}"
        elif isinstance(error, UnicodeDecodeError):
            fault = "is not UTF-8 text"
        elif "Invalid date" in str(error):
            fault = "has a date that does not exist"
        raise refusal(f"{path} {fault}{where}") from error


def validated(
    kind: type[T],
    fields: Mapping[str, Any],
    refusal: type[ShuffleDpError],
    noun: str,
    source: str = "",
) -> T:
    """
    Create a dataclass with the configuration STRICT from the keys of a file.

    JSON's rules apply: a list becomes a tuple, a table a dataclass. Errors call a key a `noun`,
    such as a "setting", and name the `source` of an unknown one, such as a file.

    Raises:
        refusal: A key is unknown, missing, of the wrong type, or breaks a rule. The message names
            the key and the rule, never the value: it may be a secret.
    """
    try:
        for name, value in fields.items():
            if _too_large(value):
                raise refusal(f"{name} must be within 64 bits")
        return TypeAdapter(kind).validate_json(to_json(fields, inf_nan_mode="constants"))
    except ValidationError as error:
        known = getattr(kind, "__dataclass_fields__", ())
        raise refusal(sentence_of(error, known, noun, source)) from None
    except (PydanticSerializationError, RecursionError):
        raise refusal(f"a {noun} is not valid text, or its lists are nested too deeply") from None


def from_text(name: str, text: str, kind: Any, refusal: type[ShuffleDpError]) -> Any:  # noqa: ANN401  # fields of any type
    """Parse a field's value, a list in JSON, from text; raise `refusal` if it breaks a rule."""
    of_list = tuple in {get_origin(kind), *map(get_origin, get_args(kind))}
    adapter = TypeAdapter(kind)
    try:
        return adapter.validate_json(text) if of_list else adapter.validate_strings(text)
    except ValidationError as error:
        raise refusal(f"{name} {_rule(error.errors()[0]['msg'])}") from None


def _too_large(value: object) -> bool:
    if isinstance(value, dict | list):
        return any(map(_too_large, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and abs(value) >= _MAX_INTEGER


def sentence_of(error: ValidationError, known: Iterable[str], noun: str, source: str = "") -> str:
    """Return a message that names unknown keys, else all missing ones, or the first broken rule."""
    errors = error.errors(include_input=False)
    if unknown := [_name(each) for each in errors if each["type"] in _UNKNOWN]:
        return unknown_keys(unknown, known, noun, source)
    if missing := sorted(_name(each) for each in errors if each["type"].startswith("missing")):
        return f"missing {noun}: {', '.join(missing)}"
    return f"{_name(errors[0])} {_rule(errors[0]['msg'])}"


def _name(error: ErrorDetails) -> str:
    # A rule of a list's items names the list.
    return re.sub(r"(?<=.)\.\d+$", "", ".".join(map(str, error["loc"])))


def _rule(message: str) -> str:
    """Convert pydantic's "Input should …" to "must …", to follow a key's name."""
    rule = re.sub(r"^\w+ should", "must", message)
    return rule.replace("an object", "a table").removeprefix("Value error, ")
