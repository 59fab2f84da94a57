"""A result's rows, an item each: for the terminal, CSV and Parquet."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from common.errors import SettingsError
from common.messages.estimate import Estimate, Means
from common.messages.result import Result
from deploy.results.estimate_columns import CONFIDENCE, Columns, labels_of
from deploy.terminal.escape import shown
from deploy.terminal.output_file import whole
from deploy.terminal.tables import add_columns, print_whole

TOO_FEW: Final = (
    "Too few users for what the noise hides: nothing can be concluded about single values."
)
"""Said of a result where no value is distinguishable from none."""
_FORMULA: Final = re.compile(r"[=+\-@\t\r]")
_FORMULA_WITHIN: Final = re.compile(r'([;,\t\r\n]"*)(?=[=+\-@])')
"""Where a spreadsheet that splits lines elsewhere would begin a cell; quotes do not hold it."""
_WORDS: Final = frozenset({"label", "text"})
"""Columns of anybody's words."""
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")


def _kept_from_running(label: str) -> str:
    """Put an apostrophe before what a spreadsheet would run as a formula, as download.js does."""
    if _NUMBER.fullmatch(label):
        return label
    safe = _FORMULA_WITHIN.sub(r"\1'", label)
    return f"'{safe}" if _FORMULA.match(safe) else safe


def write_csv(path: Path, columns: Columns) -> None:
    """
    Write every figure as CSV, with a line of headings, in full precision.

    No label or text is a formula to a spreadsheet; Parquet has them as they are.

    Args:
        path: Where to.
        columns: Of the estimate, or of decoded candidates.

    Raises:
        SettingsError: The file cannot be written.
    """
    columns = {
        name: [_kept_from_running(str(each)) for each in column] if name in _WORDS else column
        for name, column in columns.items()
    }
    with whole(path) as target, target.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerow(columns)
        rows = zip(*columns.values(), strict=True)
        csv.writer(file, quoting=csv.QUOTE_NONNUMERIC).writerows(rows)


def write_parquet(path: Path, result: Result, columns: Columns) -> None:
    """
    Write every figure as Parquet; task, users and confidence are in the file's metadata.

    Args:
        path: Where to.
        result: Whose figures they are.
        columns: Of its estimate, or of decoded candidates.

    Raises:
        SettingsError: The file cannot be written, or pyarrow is not installed.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415  # of the extra `research`
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise SettingsError("Parquet needs pyarrow: pip install 'shuffledp[research]'") from error
    table = pa.table(
        {name: list(column) for name, column in columns.items()}
    ).replace_schema_metadata(
        {
            "task_digest": result.task_digest.hex(),
            "n_users": str(result.n_users),
            "confidence": str(CONFIDENCE),
            **_more_metadata(result.estimate),
        }
    )
    with whole(path) as target:
        parquet.write_table(table, target)


def _more_metadata(estimate: Estimate) -> dict[str, str]:
    return {"unbiased": str(estimate.unbiased).lower()} if isinstance(estimate, Means) else {}


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
