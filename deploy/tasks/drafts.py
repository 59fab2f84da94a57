"""Read and write task drafts as TOML, save signed tasks as files, and draft demos' tasks."""

import datetime
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import SettingsError, TaskError, WireError
from shuffledp.common.messages.guarantee import default_delta
from shuffledp.common.runtime.validation import read_file, read_toml
from shuffledp.common.task.canonical import MAX_TASK_BYTES, from_json
from shuffledp.common.task.cluster_dummies import ClusterDummies
from shuffledp.common.task.draft import RelayDraft, TaskDraft
from shuffledp.common.task.dummy_forms import AnyDummies
from shuffledp.common.task.shuffler_spec import NOISES, GeometricNoise, ItemNoise, ShufflerSpec
from shuffledp.common.task.token_spec import TokenSpec
from shuffledp.deploy.terminal.durations import DAY
from shuffledp.deploy.terminal.files import all_or_nothing, atomic_output

MAX_DRAFT_BYTES: Final = 2 * MAX_TASK_BYTES
"""Enough for the labels of the longest task, with indentation."""
TASK_FILES: Final = ("task.json", "task.sig")
"""File names of a task's bytes and of its signature."""
_OF_OTHERS: Final = {"shuffler_key": "shuffler", "tokens": "issuer"}
"""Fields that are not in the file, with the party whose key they hold."""


def read(path: Path, keys: dict[str, Any] | None = None) -> TaskDraft:
    """
    Read a draft without others' keys from TOML; its `deadline` is a date-time or a UNIX time.

    `keys` are those of the file if they are already read. Raises TaskError, which names the file
    and the key.
    """
    keys = keys or read_toml(path, TaskError, max_bytes=MAX_DRAFT_BYTES)
    for name in _OF_OTHERS.keys() & keys:
        raise TaskError(
            f"unknown key in the draft: {name}; the key comes from the {_OF_OTHERS[name]}"
        )
    if "schedule" in keys:
        raise TaskError("a draft with a table [schedule] is for `shuffledp series`")
    if "deadline" in keys:
        keys["deadline"] = unix_time("deadline", keys["deadline"])
    tables = {name: table for name, table in keys.items() if isinstance(table, dict)}
    edges = tables.get("edges", {"given": ()})
    if edges.get("spacing") != "given" and "given" not in edges:
        check_keys(edges, ("low", "high", "buckets"), "edges", path)
    for name in ("dummies", "shuffler"):
        if "law" in tables.get(name, ()):
            raise TaskError(f"{path}: the table [{name}] has a key law; write distribution instead")
    keys |= _shufflers(tables)
    if isinstance(clusters := tables.get("dummies", {}).get("clusters"), dict):
        keys["dummies"] = {**tables["dummies"], **clusters}
    try:
        draft: TaskDraft = from_json(TaskDraft, {**keys, "shuffler_key": ""})
    except (TaskError, WireError) as error:  # the file has the noise's keys in a shuffler's table
        message = str(error).replace("shuffler.noise", "shuffler").replace("relay.noise", "relay")
        raise TaskError(f"{path}: {message}") from error
    return draft


def _shufflers(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of shufflers, with the keys of their noise in tables of their own."""
    found = dict[str, Any]()
    for name, given in (("shuffler", {}), ("relay", {"key": ""})):
        if table := tables.get(name):
            noise = {"distribution": "none", **table}
            own = {key: noise.pop(key) for key in ("keep_weight", "name", "views") if key in table}
            found[name] = {**given, **own, "noise": noise}
    if "views" in found.get("shuffler", ()):
        found["shuffler_views"] = found["shuffler"].pop("views")
    return found


def shuffler_table(spec: ShufflerSpec) -> dict[str, Any]:
    """Return the keys of all distributions of the shuffler's dummies: those of others as 0."""
    numbers = {each.name for form in NOISES.values() for each in fields(form)}
    own = {name: getattr(spec.noise, name, 0) for name in sorted(numbers)}
    return {"distribution": spec.noise.distribution, "keep_weight": spec.keep_weight, **own}


def check_keys(table: Mapping[str, Any], needed: Iterable[str], name: str, path: Path) -> None:
    """Raise TaskError unless a table of a draft has all the keys that it needs."""
    if missing := [key for key in needed if key not in table]:
        raise TaskError(f"the table [{name}] of {path} lacks {', '.join(missing)}")


def read_token_key(path: Path) -> TokenSpec:
    """Read the file of a token key, as `shuffledp issuer new-key` writes it."""
    try:
        tokens: TokenSpec = from_json(TokenSpec, json.loads(read_file(path)), "tokens")
    except (ValueError, RecursionError) as error:
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


def as_toml(draft: TaskDraft) -> str:
    """Return a draft as TOML for `read`, without others' keys and fields with default values."""
    shuffler, relay = draft.shuffler, draft.relay
    whole = asdict(draft) | {
        "deadline": datetime.datetime.fromtimestamp(draft.deadline, datetime.UTC),
        "dummies": draft.dummies and _table(draft.dummies),
        "shuffler": {
            "keep_weight": shuffler.keep_weight,
            **_noise_table(shuffler.noise, draft.noises),
        },
        "relay": relay and {"name": relay.name, **_noise_table(relay.noise, relay.noises)},
    }
    own = (field for field in fields(draft) if field.name not in _OF_OTHERS)
    changed = [field.name for field in own if getattr(draft, field.name) != field.default]
    if "noises" in changed:  # in the shuffler's table
        changed[changed.index("noises")] = "shuffler"
    return "\n".join(_lines("", {name: whole[name] for name in changed})) + "\n"


def _table(form: AnyDummies | ItemNoise) -> dict[str, Any]:
    """Return the keys of a distribution, its name first; those of clusters in an inner table."""
    own = {field.name: getattr(form, field.name) for field in fields(form) if field.init}
    inner = {"clusters": own} if isinstance(form, ClusterDummies) else own
    return {"distribution": form.distribution, **inner}


def _noise_table(noise: ItemNoise, views: Sequence[ItemNoise]) -> dict[str, Any]:
    """Return the keys of a shuffler's noise: of all views alike, or of each."""
    first, *others = {*views} or {noise}
    return {"views": tuple(map(_table, views))} if others else _table(first)


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
    """Return a truth value, a number, a text, a time in UTC, a tuple or a table as TOML."""
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, Mapping):
        stated = {key: each for key, each in value.items() if each not in (None, ())}
        return f"{{{', '.join(f'{key} = {literal(each)}' for key, each in stated.items())}}}"
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


DEMO_PARAMETERS: Final[Mapping[str, Any]] = {
    "protocol": "od-hp",
    "buckets": 53,
    "dummies_per_user": 1,
    "local_epsilon": 4.0,
}
"""Protocol and parameters for items in the demo."""
_NOISE: Final = GeometricNoise(peak=22, left_weight=602140992, right_weight=602140992, most=58)
"""From `shuffledp plan --shufflers 2 --central-epsilon 1 --coalition-epsilon 1.157`."""
_TABLE_NOISE: Final = GeometricNoise(
    peak=110, left_weight=934582848, right_weight=934582848, most=289
)
"""From `shuffledp plan --task-kind table --attribute-sizes 5,4,3,4 --shufflers 2
--central-epsilon 1`."""


def _by_two(protocol: str, noise: GeometricNoise) -> dict[str, Any]:
    return {
        "protocol": protocol,
        "local_epsilon": math.inf,
        "shuffler_name": "first.localhost",
        "shuffler": ShufflerSpec(noise=noise),
        "relay": RelayDraft(name="second.localhost", key=b"", noise=noise),
    }


DEMO_TABLES: Final[Mapping[str, Any]] = _by_two("geo-tables", _TABLE_NOISE)
"""Protocol and parameters for tables in the demo. Devices with default settings refuse reports
without local noise unless each of two shufflers hides them."""


def with_two_shufflers(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a draft for items, for two shufflers that each add the same noise."""
    kept = {name: value for name, value in fields.items() if name not in DEMO_PARAMETERS}
    return {**kept, **_by_two("sageo", _NOISE)}


def closing_draft(
    fields: Mapping[str, Any], n_users: int, *, now: float, shuffler_key: bytes = b""
) -> TaskDraft:
    """Return the draft of a task that closes at n_users users, or a day after `now` (UNIX time)."""
    return TaskDraft(
        **fields,
        delta=default_delta(n_users),
        n_min=n_users,
        target_size=n_users,
        deadline=int(now) + DAY,
        shuffler_key=shuffler_key,
    )
