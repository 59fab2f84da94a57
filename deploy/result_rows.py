"""A result's rows, an item each: for the terminal, CSV and Parquet."""

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from common.errors import SettingsError
from common.result import Histogram, Result
from deploy.foreign_text import shown
from deploy.output_file import whole
from deploy.whole_table import add_columns, print_whole

CONFIDENCE: Final = 0.95
"""Of the intervals that are shown, each by itself."""
COLUMNS: Final = (
    "item",
    "label",
    "share",
    "standard_error",
    "interval_low",
    "interval_high",
    "refined",
)
"""Of CSV, also of the one that a result's page makes, and of Parquet."""
TOO_FEW: Final = (
    "Too few users for what the noise hides: nothing can be concluded about single values."
)
"""Said of a result where no value is distinguishable from none."""
_FORMULA: Final = re.compile(r"[=+\-@\t\r]")
_FORMULA_WITHIN: Final = re.compile(r'([;,\t\r\n]"*)(?=[=+\-@])')
"""Where a spreadsheet that splits lines elsewhere would begin a cell; quotes do not hold it."""
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def labels_of(labels: Sequence[str], n_items: int) -> Sequence[str]:
    """Give a task's labels, or the items' numbers where it has none."""
    return labels or [str(item) for item in range(n_items)]


def _kept_from_running(label: str) -> str:
    """Put an apostrophe before what a spreadsheet would run as a formula, as download.js does."""
    if _NUMBER.fullmatch(label):
        return label
    safe = _FORMULA_WITHIN.sub(r"\1'", label)
    return f"'{safe}" if _FORMULA.match(safe) else safe


def rows(histogram: Histogram, labels: Sequence[str]) -> Iterator[tuple[object, ...]]:
    """Give a row for each item, in the order of COLUMNS."""
    low, high = histogram.interval(CONFIDENCE)
    columns = (
        histogram.frequencies,
        histogram.standard_errors,
        low,
        high,
        histogram.refined,
    )
    named = labels_of(labels, len(histogram.frequencies))
    yield from zip(range(len(named)), named, *(column.tolist() for column in columns), strict=True)


def write_csv(path: Path, histogram: Histogram, labels: Sequence[str]) -> None:
    """
    Write every item as CSV, with a line of headings; shares in full precision.

    No label is a formula to a spreadsheet; Parquet has them as they are.

    Raises:
        SettingsError: The file cannot be written.
    """
    with whole(path) as target, target.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerow(COLUMNS)
        csv.writer(file, quoting=csv.QUOTE_NONNUMERIC).writerows(
            (item, _kept_from_running(str(label)), *figures)
            for item, label, *figures in rows(histogram, labels)
        )


def write_parquet(path: Path, result: Result, labels: Sequence[str]) -> None:
    """
    Write every item as Parquet; task, users and confidence are in the file's metadata.

    Raises:
        SettingsError: The file cannot be written, or pyarrow is not installed.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415  # of the extra `research`
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError("Parquet needs pyarrow: pip install 'shuffledp[research]'") from error
    columns = list(zip(*rows(result.histogram, labels), strict=True))
    table = pa.table(dict(zip(COLUMNS, columns, strict=True))).replace_schema_metadata(
        {
            "task_digest": result.task_digest.hex(),
            "n_users": str(result.n_users),
            "confidence": str(CONFIDENCE),
        }
    )
    with whole(path) as target:
        parquet.write_table(table, target)


def show(
    result: Result,
    labels: Sequence[str],
    console: Console,
    *,
    most: int,
    truth: NDArray[np.float64] | None = None,
) -> None:
    """
    Print the items with the largest shares.

    Args:
        result: What was released.
        labels: The task's; empty for none.
        console: Where to.
        most: How many items.
        truth: The true shares, in a demo; the order is then theirs.
    """
    histogram = result.histogram
    if not histogram.tells_values_apart(CONFIDENCE):
        console.print(TOO_FEW, style="bold")
    named = labels_of(labels, len(histogram.frequencies))
    low, high = histogram.interval(CONFIDENCE)
    n_shown = min(most, len(named))
    order = "estimate" if truth is None else "truth"
    table = Table(
        title=f"The {n_shown:,} largest of {len(named):,} values by {order}, share of users"
    )
    headings = (*(["truth"] if truth is not None else []), "estimate")
    figures = (*headings, f"{CONFIDENCE:.0%} interval", "refined")
    add_columns(table, {"value": "left", **dict.fromkeys(figures, "right")})
    for item in np.argsort(histogram.frequencies if truth is None else truth)[::-1][:n_shown]:
        table.add_row(
            shown(named[item]),
            *([f"{truth[item]:.4f}"] if truth is not None else []),
            f"{histogram.frequencies[item]:.4f}",
            f"{low[item]:.4f} … {high[item]:.4f}",
            f"{histogram.refined[item]:.4f}",
        )
    print_whole(table, console)
