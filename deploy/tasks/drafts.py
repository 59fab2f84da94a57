"""Read and write task drafts as TOML, and save signed tasks as files."""

import datetime
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Final

from pydantic import with_config

from common.crypto.signing import SignedTask
from common.errors import SettingsError, TaskError
from common.limits import MAX_UNIX_TIME
from common.runtime.validation import STRICT, read_file, read_toml, unknown_keys, validated
from common.task.canonical import from_json
from common.task.cluster_dummies import ClusterDummies
from common.task.draft import TaskDraft
from common.task.dummy_forms import DUMMIES, AnyDummies
from common.task.shuffler_spec import KEEP_SUM, NOISES, ShufflerSpec
from common.task.task import MAX_TASK_BYTES
from common.task.token_spec import TokenSpec
from deploy.terminal.files import all_or_nothing, atomic_output

MAX_DRAFT_BYTES: Final = 2 * MAX_TASK_BYTES
"""Enough for the labels of the longest task, with indentation."""
TASK_FILES: Final = ("task.json", "task.sig")
"""File names of a task's bytes and of its signature."""
_DRAFT: Final = with_config(STRICT)(TaskDraft)
for _form in (*DUMMIES.values(), *NOISES.values()):
    with_config(STRICT)(_form)
_OF_NOISE: Final = ("trials", "peak", "left_weight", "right_weight", "most")
"""Keys of the distributions of the shuffler's dummies."""
_OF_OTHERS: Final = {"shuffler_key": "shuffler", "tokens": "issuer"}
"""Fields that are not in the file, with the party whose key they hold."""


def read(path: Path, shuffler_key: bytes, tokens: TokenSpec | None = None) -> TaskDraft:
    """Read TaskDraft's fields from TOML; `deadline` is a date-time or a UNIX time."""
    keys = read_toml(path, TaskError, max_bytes=MAX_DRAFT_BYTES)
    return replace(from_keys(keys, path), shuffler_key=shuffler_key, tokens=tokens)


def from_keys(keys: dict[str, Any], path: Path) -> TaskDraft:
    """Check a draft's keys in TOML and return it without others' keys, or raise TaskError."""
    for name, party in _OF_OTHERS.items():
        if name in keys:
            raise TaskError(f"unknown key in the draft: {name}; the key comes from the {party}")
    if "schedule" in keys:
        raise TaskError("a draft with a table [schedule] is for `shuffledp series`")
    if "deadline" in keys:
        keys["deadline"] = unix_time("deadline", keys["deadline"])
    edges = keys.get("edges")
    if isinstance(edges, dict) and edges.get("spacing") != "given" and "given" not in edges:
        check_keys(edges, ("low", "high", "buckets"), "edges", path)
    keys["shuffler_key"] = ""
    tables = {name: keys.pop(name) for name in ("dummies", "shuffler") if name in keys}
    draft = validated(_DRAFT, keys, TaskError, "key in the draft", str(path))
    _check_whole_numbers(asdict(draft).items())
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise TaskError(f"{name} must be a table")
        try:
            tables[name] = _dummies(table) if name == "dummies" else _shuffler(table)
        except TaskError as error:
            raise TaskError(f"{path}, [{name}]: {error}") from error
    return replace(draft, shuffler_key=b"", **tables)


def _dummies(table: dict[str, Any], forms: Mapping[str, type[Any]] = DUMMIES) -> Any:  # noqa: ANN401  # of one of the forms
    """
    Return the distribution that a draft's table names as its `law`, or raise TaskError.

    Its own keys may be in an inner table of its name. Keys of other distributions may have the
    value that it implies, or 0, false or [].
    """
    law = table.pop("law", None)
    if not isinstance(law, str) or law not in forms:
        raise TaskError(f"law must be one of: {', '.join(forms)}")
    known = {field.name for form in forms.values() for field in fields(form)}
    own = {field.name for field in fields(forms[law]) if field.init}
    inner = table.pop(law) if isinstance(table.get(law), dict) else None
    given = inner or {key: table.pop(key) for key in own & table.keys()}
    found = validated(forms[law], given, TaskError, "key")
    implied: dict[str, tuple[Any, ...]]
    implied = {key: (getattr(found, key, 0), 0, []) for key in known}
    if wrong := {key for key, value in table.items() if value not in implied.get(key, ())}:
        raise TaskError(unknown_keys(wrong, own, f"key, or wrong value, for the law {law}", ""))
    return found


def _shuffler(table: dict[str, Any]) -> ShufflerSpec:
    keep_weight = table.pop("keep_weight", KEEP_SUM)
    return ShufflerSpec(keep_weight=keep_weight, noise=_dummies({"law": "none", **table}, NOISES))


def shuffler_table(spec: ShufflerSpec) -> dict[str, Any]:
    """Return the keys of the table [shuffler] of a draft, those of other distributions as 0."""
    numbers = {key: getattr(spec.noise, key, 0) for key in _OF_NOISE}
    return {"law": spec.noise.distribution, "keep_weight": spec.keep_weight, **numbers}


def _dummies_table(dummies: AnyDummies) -> dict[str, Any]:
    """Return the keys of the table [dummies] of a draft; those of clusters in an inner table."""
    own, law = asdict(dummies), dummies.distribution
    return {"law": law, **({law: own} if isinstance(dummies, ClusterDummies) else own)}


def check_keys(table: Mapping[str, Any], needed: Iterable[str], name: str, path: Path) -> None:
    """Raise TaskError unless a table of a draft has all the keys that it needs."""
    if missing := [key for key in needed if key not in table]:
        raise TaskError(f"the table [{name}] of {path} lacks {', '.join(missing)}")


def read_token_key(path: Path) -> TokenSpec:
    """Read the file of a token key, as `shuffledp issuer new-key` writes it."""
    try:
        tokens: TokenSpec = from_json(TokenSpec, json.loads(read_file(path)))
    except TaskError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SettingsError(f"{path} is not a token key from `shuffledp issuer new-key`") from error
    return tokens


def unix_time(name: str, moment: object) -> int:
    """Return the seconds since 1970 UTC of a key's date-time or UNIX time, or raise TaskError."""
    if type(moment) is int:
        return moment
    if not isinstance(moment, datetime.datetime):
        raise TaskError(f"{name} must be a date and time, such as 2027-01-31T12:00:00Z")
    if moment.tzinfo is None:
        raise TaskError(f"{name} needs a time zone, such as 2027-01-31T12:00:00Z")
    return max(0, int(moment.timestamp()))


def _check_whole_numbers(values: Iterable[tuple[str, Any]]) -> None:
    """Raise TaskError if a whole number does not fit the wire format; recurse into mappings."""
    for name, value in values:
        if isinstance(value, dict):
            _check_whole_numbers((f"{name}.{key}", inner) for key, inner in value.items())
        elif type(value) is int and not 0 <= value <= MAX_UNIX_TIME:
            raise TaskError(f"{name} is {value}; it must lie between 0 and {MAX_UNIX_TIME}")


def as_toml(draft: TaskDraft) -> str:
    """Return a draft as TOML for `read`, without others' keys and fields with default values."""
    whole = asdict(draft) | {
        "deadline": datetime.datetime.fromtimestamp(draft.deadline, datetime.UTC),
        "dummies": draft.dummies and _dummies_table(draft.dummies),
        "shuffler": shuffler_table(draft.shuffler),
    }
    own = (field for field in fields(draft) if field.name not in _OF_OTHERS)
    changed = [field.name for field in own if getattr(draft, field.name) != field.default]
    return "\n".join(_lines("", {name: whole[name] for name in changed})) + "\n"


def _lines(prefix: str, entries: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table's entries, and of the tables in it, without those not set."""
    plain, inner = [], []
    for key, entry in entries.items():
        if isinstance(entry, Mapping):
            inner += ["", f"[{prefix}{key}]", *_lines(f"{prefix}{key}.", entry)]
        elif entry is not None and entry != ():
            plain.append(f"{key} = {literal(entry)}")
    return plain + inner


def literal(value: object) -> str:
    """Return a truth value, a number, a text, a time in UTC or a tuple as a TOML literal."""
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, str):  # TOML has no escaped surrogate pairs and no bare DEL
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, datetime.datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    return repr(value)


def save_task(folder: Path, signed: SignedTask) -> None:
    """
    Write a task and its signature to TASK_FILES in a new or existing folder.

    Nothing in them is secret, so the user's umask decides who may read them, as for other outputs.
    """
    with all_or_nothing([folder], *TASK_FILES):
        folder.mkdir(exist_ok=True)
        for name, content in zip(TASK_FILES, (signed.task_bytes, signed.signature), strict=True):
            with atomic_output(folder / name) as file:
                file.write_bytes(content)
