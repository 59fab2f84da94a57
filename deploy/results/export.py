"""Export results as JSON, CSV and Parquet."""

import csv
import dataclasses
import importlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from shuffledp.common.errors import SettingsError, UsageError
from shuffledp.common.messages import result
from shuffledp.common.protocols import protocol_named
from shuffledp.common.runtime.validation import read_file
from shuffledp.common.task.task import Task
from shuffledp.deploy.results.estimate_table import Columns
from shuffledp.deploy.terminal.files import atomic_output

_FORMULA: Final = re.compile(r"[=+\-@\t\r]")
_FORMULA_WITHIN: Final = re.compile(r'([;,\t\r\n]"*)(?=[=+\-@])')
"""A formula after a separator, where a spreadsheet that ignores quotes would start a cell."""
_TEXT_COLUMNS: Final = frozenset(
    {"label", "text", "group", "value", "attribute", "other_attribute", "other_value"}
)
_COLUMN_NAMES: Final = {
    "frequencies": "share",
    "frequency_errors": "standard_error",
    "mean_errors": "mean_standard_error",
}
"""Columns of fields of a JSON result, of those whose name is not its field's without an s."""
_ESTIMATES: Final = ("frequencies", "shares", "means", "means_with_fakes")
"""Fields that list the estimates; the first one that a result has counts."""
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def as_json(found: result.Result) -> dict[str, Any]:
    """Return a result's JSON fields."""
    return {
        "task_digest": found.task_digest.hex(),
        "protocol": found.protocol,
        "mechanism": {
            "name": found.mechanism,
            "buckets": found.buckets,
            "local_epsilon": found.local_epsilon,
        },
        "n_users": found.n_users,
        "n_reports": found.n_reports,
        "n_dummies": found.n_dummies,
        "refused": dict(found.refused),
        "sentinels": {
            "planted": found.n_sentinels,
            "missing": found.n_sentinels_missing,
            "repeated": found.n_sentinels_repeated,
        },
        "kind": protocol_named(found.protocol).kind,
        **estimate_as_json(found.estimate),
        "guarantees": found.guarantees,
        "published_claim": found.published_claim,
        "warnings": list(found.all_warnings),
        "seconds": {"open": found.open_seconds, "estimate": found.estimate_seconds},
    }


def task_as_json(task: Task) -> dict[str, Any]:
    """Return a task's fields beside a result's: labels, two shufflers' names and coalition ε."""
    names = [each.name for each in task.shufflers]
    two = {"shufflers": names, "coalition_epsilon": task.coalition_epsilon} if task.relay else {}
    return {"labels": task.labels, **two}


def estimate_as_json(estimate: result.Estimate) -> dict[str, Any]:
    """
    Return an estimate's JSON fields, named as in common/messages/result.py.

    Of a histogram `half_width` is how far the interval of an absent value reaches on its wider side
    in standard errors; every share's own interval is from `interval_low` to `interval_high`.
    """
    if isinstance(estimate, result.Histogram):
        return _with_interval(estimate, half_width=estimate.half_width(result.CONFIDENCE))
    fields = dataclasses.asdict(estimate)
    if isinstance(estimate, result.ShareTables):
        fields["tables"] = [*map(_with_interval, estimate.tables)]
        fields["attributes"] = [*map(_with_interval, estimate.attributes)]
    return fields


def _with_interval(shares: result.Histogram | result.ShareTable, **more: float) -> dict[str, Any]:
    """Return the fields of shares, with the ends of their intervals in place of the table."""
    fields = dataclasses.asdict(shares)
    del fields["table"]
    low, high = shares.interval(result.CONFIDENCE)
    return {**fields, **more, "interval_low": low, "interval_high": high}


def columns_of(records: Sequence[Mapping[str, Any]]) -> Columns:
    """Return the plain fields of records as columns, with None where a record has no such field."""
    plain = [{n: f for n, f in each.items() if not isinstance(f, dict | list)} for each in records]
    names = dict.fromkeys(name for each in plain for name in each)
    return {name: [each.get(name) for each in plain] for name in names}


def columns_of_file(path: Path) -> Columns:
    """
    Return the columns of a JSON result, by the names that CSV has for them.

    They are the fields with a text or number for each estimate, labels first. Raises UsageError if
    the file is no JSON result, or one of attributes, which has several tables.
    """
    try:
        fields = dict(json.loads(read_file(path, refusal=UsageError)))
        lists = {"labels": None, **fields, **(fields.get("owners") or {})}
        size = len(next(lists[name] for name in _ESTIMATES if name in lists))
    except (ValueError, TypeError, StopIteration, RecursionError) as error:
        rule = "is not a JSON result of one table of estimates"
        raise UsageError(f"{path} {rule}") from error
    kept = {n: each for n, each in lists.items() if isinstance(each, list) and len(each) == size}
    return {_COLUMN_NAMES.get(name, name.removesuffix("s")): each for name, each in kept.items()}


def as_frame(columns: Columns, library: str | None) -> Any:  # noqa: ANN401  # of that library
    """
    Return columns as a data frame of pandas or, without it, of polars, or else as lists.

    `library` names one of them, or columns for lists. Raises SettingsError if it is not installed.
    """
    lists = {name: list(column) for name, column in columns.items()}
    for name in (library,) if library else ("pandas", "polars", "columns"):
        with suppress(ModuleNotFoundError):
            return lists if name == "columns" else importlib.import_module(name).DataFrame(lists)
    raise SettingsError(f"{library} is not installed: pip install {library}")


def write_csv(path: Path, columns: Columns) -> None:
    """Write columns as CSV; escape formulas in texts, so that spreadsheets do not evaluate them."""
    columns = {
        name: [_no_formula(str(text)) for text in column] if name in _TEXT_COLUMNS else column
        for name, column in columns.items()
    }
    with atomic_output(path) as target, target.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerow(columns)
        rows = zip(*columns.values(), strict=True)
        csv.writer(file, quoting=csv.QUOTE_NONNUMERIC).writerows(rows)


def _no_formula(label: str) -> str:
    """Escape spreadsheet formulas, except plain numbers, with an apostrophe, like download.js."""
    if _NUMBER.fullmatch(label):
        return label
    safe = _FORMULA_WITHIN.sub(r"\1'", label)
    return f"'{safe}" if _FORMULA.match(safe) else safe


def write_parquet(path: Path, found: result.Result | None, columns: Columns) -> None:
    """Write columns, of one result if given, as Parquet; raise SettingsError without pyarrow."""
    try:
        import pyarrow as pa  # noqa: PLC0415  # installed with the extra `research` only
        from pyarrow import parquet  # noqa: PLC0415  # likewise
    except ImportError as error:
        raise SettingsError("Parquet needs pyarrow: pip install 'shuffledp[research]'") from error
    metadata = {"confidence": str(result.CONFIDENCE)}
    if found is not None:
        metadata |= {"task_digest": found.task_digest.hex(), "n_users": str(found.n_users)}
    if found is not None and isinstance(found.estimate, result.Means):
        metadata["unbiased"] = str(found.estimate.unbiased).lower()
    table = pa.table({name: list(column) for name, column in columns.items()})
    with atomic_output(path) as target:
        parquet.write_table(table.replace_schema_metadata(metadata), target)
