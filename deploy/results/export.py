"""Export results as JSON, CSV and Parquet."""

import csv
import dataclasses
import re
from pathlib import Path
from typing import Any, Final

from shuffledp.common.errors import SettingsError
from shuffledp.common.messages.result import (
    CONFIDENCE,
    Estimate,
    Histogram,
    Means,
    Result,
    ShareTable,
    ShareTables,
)
from shuffledp.common.protocols import protocol_named
from shuffledp.common.task.task import Task
from shuffledp.deploy.results.estimate_table import Columns
from shuffledp.deploy.terminal.files import atomic_output

_FORMULA: Final = re.compile(r"[=+\-@\t\r]")
_FORMULA_WITHIN: Final = re.compile(r'([;,\t\r\n]"*)(?=[=+\-@])')
"""A formula after a separator, where a spreadsheet that ignores quotes would start a cell."""
_TEXT_COLUMNS: Final = frozenset(
    {"label", "text", "group", "value", "attribute", "other_attribute", "other_value"}
)
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def as_json(result: Result) -> dict[str, Any]:
    """Return a result's JSON fields."""
    return {
        "task_digest": result.task_digest.hex(),
        "protocol": result.protocol,
        "mechanism": {
            "name": result.mechanism,
            "buckets": result.buckets,
            "local_epsilon": result.local_epsilon,
        },
        "n_users": result.n_users,
        "n_reports": result.n_reports,
        "n_dummies": result.n_dummies,
        "refused": dict(result.refused),
        "sentinels": {
            "planted": result.n_sentinels,
            "missing": result.n_sentinels_missing,
            "repeated": result.n_sentinels_repeated,
        },
        "kind": protocol_named(result.protocol).kind,
        **estimate_as_json(result.estimate),
        "guarantees": result.guarantees,
        "published_claim": result.published_claim,
        "warnings": list(result.all_warnings),
        "seconds": {"open": result.open_seconds, "estimate": result.estimate_seconds},
    }


def shufflers_as_json(task: Task) -> dict[str, Any]:
    """Return JSON fields of a task with two shufflers: names and coalition ε; none for one."""
    if not task.relay:
        return {}
    names = [each.name for each in task.shufflers]
    return {"shufflers": names, "coalition_epsilon": task.coalition_epsilon}


def estimate_as_json(estimate: Estimate) -> dict[str, Any]:
    """
    Return an estimate's JSON fields, named as in common/messages/result.py.

    Of a histogram `half_width` is how far the interval of an absent value reaches on its wider side
    in standard errors; every share's own interval is from `interval_low` to `interval_high`.
    """
    if isinstance(estimate, Histogram):
        return _with_interval(estimate, half_width=estimate.half_width(CONFIDENCE))
    fields = dataclasses.asdict(estimate)
    if isinstance(estimate, ShareTables):
        fields["tables"] = [*map(_with_interval, estimate.tables)]
        fields["attributes"] = [*map(_with_interval, estimate.attributes)]
    return fields


def _with_interval(shares: Histogram | ShareTable, **more: float) -> dict[str, Any]:
    """Return the fields of shares, with the ends of their intervals in place of the table."""
    fields = dataclasses.asdict(shares)
    del fields["table"]
    low, high = shares.interval(CONFIDENCE)
    return {**fields, **more, "interval_low": low, "interval_high": high}


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


def write_parquet(path: Path, result: Result | None, columns: Columns) -> None:
    """Write columns, of one result if given, as Parquet; raise SettingsError without pyarrow."""
    try:
        import pyarrow as pa  # noqa: PLC0415  # installed with the extra `research` only
        from pyarrow import parquet  # noqa: PLC0415  # likewise
    except ImportError as error:
        raise SettingsError("Parquet needs pyarrow: pip install 'shuffledp[research]'") from error
    metadata = {"confidence": str(CONFIDENCE)}
    if result is not None:
        metadata |= {"task_digest": result.task_digest.hex(), "n_users": str(result.n_users)}
    if result is not None and isinstance(result.estimate, Means):
        metadata["unbiased"] = str(result.estimate.unbiased).lower()
    table = pa.table({name: list(column) for name, column in columns.items()})
    with atomic_output(path) as target:
        parquet.write_table(table.replace_schema_metadata(metadata), target)
