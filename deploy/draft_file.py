"""A task's draft as a TOML file, for `shuffledp task create`."""

import dataclasses
import datetime
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from common.draft import TaskDraft
from common.dummy_spec import DummySpec
from common.errors import TaskError
from common.runtime.toml_file import read_toml
from common.shuffler_spec import ShufflerSpec
from common.task import MAX_TASK_BYTES, MAX_UNIX_TIME

MAX_DRAFT_BYTES: Final = 2 * MAX_TASK_BYTES
"""Room for the labels of the longest task, and for how a person lays them out."""

_TABLES: Final[Mapping[str, type[DummySpec] | type[ShufflerSpec]]] = {
    "dummies": DummySpec,
    "shuffler": ShufflerSpec,
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


def _table(name: str, value: Any) -> DummySpec | ShufflerSpec:  # noqa: ANN401  # TOML holds anything
    """Read the table [dummies] or [shuffler]; its keys are the fields of a task."""
    kind = _TABLES[name]
    if not isinstance(value, dict):
        raise TaskError(f"{name} must be a table, [{name}]")
    known = {field.name for field in dataclasses.fields(kind)}
    unknown = sorted(set(value) - known)
    if unknown:
        raise TaskError(f"unknown key in [{name}]: {', '.join(unknown)}")
    if any(type(number) is not int for key, number in value.items() if key != "law"):
        raise TaskError(f"every key of [{name}] but law must be a whole number")
    try:
        return kind(**value)
    except TypeError as error:
        raise TaskError(f"missing key in [{name}]: law, or per_user of dummies") from error


def _convert(name: str, value: Any, kind: Any) -> Any:  # noqa: ANN401  # TOML holds anything
    if name == "deadline" and isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise TaskError("deadline needs a time zone, such as 2027-01-31T12:00:00Z")
        return max(0, int(value.timestamp()))
    if name == "labels" and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    if name in _TABLES:
        return _table(name, value)
    if kind == float | None:
        kind = float
    if kind is float and type(value) is int and abs(value) <= MAX_UNIX_TIME:
        return float(value)
    if type(value) is not kind:
        wanted = "a date and time" if name == "deadline" else getattr(kind, "__name__", "a list")
        raise TaskError(f"{name} must be of type {wanted}")
    if kind is int and not 0 <= value <= MAX_UNIX_TIME:
        raise TaskError(f"{name} is {value}; it must lie between 0 and {MAX_UNIX_TIME}")
    return value
