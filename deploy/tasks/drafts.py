"""A task's draft as a TOML file, for `shuffledp task create`."""

import dataclasses
import datetime
import json
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from common.errors import TaskError
from common.runtime.settings import read_toml
from common.task.draft import NumberDraft, PairDraft, TaskDraft, TextDraft
from common.task.dummy_spec import DummySpec
from common.task.shuffler_spec import ShufflerSpec
from common.task.task import MAX_TASK_BYTES, MAX_UNIX_TIME

MAX_DRAFT_BYTES: Final = 2 * MAX_TASK_BYTES
"""Room for the labels of the longest task, and for how a person lays them out."""

_OfShuffle = DummySpec | ShufflerSpec
_OfKind = NumberDraft | TextDraft | PairDraft
_TABLES: Final[Mapping[str, type[_OfShuffle]]] = {"dummies": DummySpec, "shuffler": ShufflerSpec}
_TABLES_OF_KINDS: Final[Mapping[str, type[_OfKind]]] = {
    "numbers": NumberDraft,
    "texts": TextDraft,
    "pairs": PairDraft,
}


def read(path: Path, shuffler_key: bytes) -> TaskDraft:
    """
    Read a draft. Its keys are TaskDraft's; `deadline` is a TOML date-time.

    Raises:
        TaskError: The file cannot be read, or a key is unknown, missing or of the wrong type.
    """
    fields = read_toml(path, TaskError, most_bytes=MAX_DRAFT_BYTES)
    known = {field.name: field for field in dataclasses.fields(TaskDraft)}
    unknown = sorted(set(fields) - set(known) | ({"shuffler_key"} & set(fields)))
    if unknown:
        raise TaskError(f"unknown key in the draft: {', '.join(unknown)}")
    fields["shuffler_key"] = shuffler_key
    missing = sorted(
        name
        for name, field in known.items()
        if field.default is dataclasses.MISSING and name not in fields
    )
    if missing:
        raise TaskError(f"missing key in the draft: {', '.join(missing)}")
    kinds = typing.get_type_hints(TaskDraft)
    return TaskDraft(**{name: _convert(name, value, kinds[name]) for name, value in fields.items()})


def _check_keys(name: str, value: Any, kind: type[_OfShuffle | _OfKind]) -> None:  # noqa: ANN401  # TOML
    if not isinstance(value, dict):
        raise TaskError(f"{name} must be a table, [{name}]")
    known = {field.name for field in dataclasses.fields(kind)}
    unknown = sorted(set(value) - known)
    if unknown:
        raise TaskError(f"unknown key in [{name}]: {', '.join(unknown)}")


def _table(name: str, value: Any) -> _OfShuffle:  # noqa: ANN401  # TOML holds anything
    """Read the table [dummies] or [shuffler]; its keys are the fields of a task."""
    kind = _TABLES[name]
    _check_keys(name, value, kind)
    if any(type(number) is not int for key, number in value.items() if key != "law"):
        raise TaskError(f"every key of [{name}] but law must be a whole number")
    try:
        return kind(**value)
    except TypeError as error:
        raise TaskError(f"missing key in [{name}]: law, or per_user of dummies") from error


def _table_of_kind(name: str, value: Any) -> _OfKind:  # noqa: ANN401  # TOML holds anything
    """Read the table of a kind of value; its keys are those of the draft's class."""
    kind = _TABLES_OF_KINDS[name]
    _check_keys(name, value, kind)
    types = typing.get_type_hints(kind)
    return kind(**{key: _convert(f"{name}.{key}", one, types[key]) for key, one in value.items()})


def _convert(name: str, value: Any, kind: Any) -> Any:  # noqa: ANN401  # TOML holds anything
    if name == "deadline" and isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise TaskError("deadline needs a time zone, such as 2027-01-31T12:00:00Z")
        return max(0, int(value.timestamp()))
    if name == "labels" and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    if name in _TABLES:
        return _table(name, value)
    if name in _TABLES_OF_KINDS:
        return _table_of_kind(name, value)
    if name == "pairs.fakes" and isinstance(value, list):
        return tuple(_number("each of pairs.fakes", one, float) for one in value)
    return _number(name, value, float if kind == float | None else kind)


def _number(name: str, value: Any, kind: Any) -> Any:  # noqa: ANN401  # TOML holds anything
    """Read a number, or text, of the type that a field has."""
    if kind is float and type(value) is int and abs(value) <= MAX_UNIX_TIME:
        return float(value)
    if type(value) is not kind:
        wanted = "a date and time" if name == "deadline" else getattr(kind, "__name__", "a list")
        raise TaskError(f"{name} must be of type {wanted}")
    if kind is int and not 0 <= value <= MAX_UNIX_TIME:
        raise TaskError(f"{name} is {value}; it must lie between 0 and {MAX_UNIX_TIME}")
    return value


def as_toml(draft: TaskDraft) -> str:
    """Write a draft so that `read` gives it back; what has its default is left out."""
    plain, tables = [], []
    for field in dataclasses.fields(draft):
        value = getattr(draft, field.name)
        if field.name == "shuffler_key" or value == field.default:
            continue
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            entries = dataclasses.asdict(value).items()
            lines = [f"{key} = {_literal(one)}" for key, one in entries if one != ()]
            tables += ["", f"[{field.name}]", *lines]
        elif field.name == "deadline":
            moment = datetime.datetime.fromtimestamp(value, tz=datetime.UTC)
            plain.append(f"deadline = {moment:%Y-%m-%dT%H:%M:%SZ}")
        else:
            plain.append(f"{field.name} = {_literal(value)}")
    return "\n".join([*plain, *tables]) + "\n"


def _literal(value: object) -> str:
    """Write a number, a text or a list as TOML does."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, str):  # TOML escapes no pair of surrogates, and has no bare DEL
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
