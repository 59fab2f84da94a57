"""
Read values from CSV or Parquet: a row per person or, with a column `count`, per item.

Rules: docs/researchers/datasets.md. A value is compared as devices compare it. A TaskError names a
row, counted from 1 below the header, never its text.
"""

import csv
import gzip
import importlib
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np

from common.errors import TaskError, ValueRangeError
from common.messages.submission import parse_number
from common.task.specs import MAX_DOMAIN_SIZE, MAX_LABEL_CHARACTERS, normalize

VALUE: Final = "value"
_COUNT: Final = "count"
ENDINGS: Final = (".csv", ".csv.gz", ".parquet")
"""Supported endings of file names, in any case."""
MAX_LINE_CHARACTERS: Final = 1 << 20
_ROWS_AT_ONCE: Final = 1 << 16
_INT64_DIGITS: Final = 18
"""Maximum decimal digits of a count, so that it fits into 64 bits."""


def read(path: Path, column: str = VALUE, *, empty: bool = False) -> dict[str, Any]:
    """
    Read a file's column of values, and its column `count` if it has one, or raise TaskError.

    Returns the fields of a Dataset: labels, counts, rows and missing. Labels are in the file's
    order if rows are items; otherwise numbers in numeric order, then texts in alphabetical order.
    Rows without a value are left out and counted or, if `empty`, have the empty text as a value.
    """
    name = path.name
    ending = name.lower()
    if not ending.endswith(ENDINGS):
        raise TaskError(f"{name} must end with {' or '.join(ENDINGS)}")
    rows = _parquet_rows if ending.endswith(".parquet") else _csv_rows
    try:
        return _tabulate(rows(path, column), name, empty=empty)
    except (OSError, EOFError, zlib.error) as error:  # OSError: gzip's own errors too
        reason = error.strerror if isinstance(error, OSError) else None
        raise TaskError(f"{name} cannot be read: {reason or 'it is truncated'}") from error


def _csv_rows(path: Path, column: str) -> Iterator[list[str]]:
    """Yield rows of the chosen columns; bytes that are not UTF-8 become surrogates."""
    name, number = path.name, 0
    open_text: Any = gzip.open if name.lower().endswith(".gz") else Path.open
    with open_text(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        rows = csv.reader(_lines(file, name), strict=True)
        try:
            header = next(rows, [])
            if not header:
                raise TaskError(f"{name} is empty; its first line must be value or value,count")
            indices = _columns(header, name, column)
            for number, row in enumerate(rows, start=1):
                if row and len(row) != len(header):
                    raise TaskError(
                        f"row {number} of {name} has {len(row)} columns and the header has "
                        f"{len(header)}: quote values that contain commas"
                    )
                yield [row[index] if row else "" for index in indices]
        except csv.Error as error:
            raise TaskError(f"row {number + 1} of {name} is not valid CSV: {error}") from error


def _lines(file: TextIO, name: str) -> Iterator[str]:
    """Yield lines; raise TaskError for a long one: a small file can decompress to a huge line."""
    while line := file.readline(MAX_LINE_CHARACTERS + 1):
        if len(line) > MAX_LINE_CHARACTERS:
            raise TaskError(
                f"a line of {name} is too long; the limit is {MAX_LINE_CHARACTERS} characters"
            )
        yield line


def _parquet_rows(path: Path, column: str) -> Iterator[tuple[str, ...]]:
    """Yield rows of the chosen columns; read in batches, as a small file can have many rows."""
    name = path.name
    try:
        arrow, parquet = map(importlib.import_module, ("pyarrow", "pyarrow.parquet"))
    except ModuleNotFoundError as error:
        raise TaskError(
            f"{name} is Parquet, which needs pyarrow: pip install 'shuffledp[research]', or pip "
            "install pyarrow"
        ) from error
    try:
        with parquet.ParquetFile(path) as file:
            header = file.schema_arrow.names
            titles = [header[index] for index in _columns(header, name, column)]
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=titles):
                columns = [_texts(arrow, batch.column(title), name) for title in titles]
                yield from zip(*columns, strict=True)
    except (arrow.ArrowException, UnicodeDecodeError) as error:
        raise TaskError(f"{name} is not a valid Parquet file") from error


def _texts(arrow: Any, column: Any, name: str) -> list[str]:  # noqa: ANN401  # pyarrow has no types
    """Return a column's texts, as Arrow writes values; empty for null."""
    kind = column.type
    if arrow.types.is_dictionary(kind):
        column = column.dictionary_decode()
    try:
        if "binary" not in str(column.type):
            column = column.cast(arrow.string())
        fields = column.cast(arrow.binary()).to_pylist()
    except arrow.ArrowException as error:
        raise TaskError(
            f"a column of {name} has the type {kind}; it must hold texts, numbers, dates, times or "
            "truth values"
        ) from error
    if arrow.types.is_floating(kind):
        fields = [b"0" if field == b"-0" else field for field in fields]
    return [(field or b"").decode(errors="surrogateescape") for field in fields]


def _columns(header: Sequence[str], name: str, column: str) -> list[int]:
    """Return the places of the columns to read: the values' and, if there is one, `count`."""
    titles = [normalize(title.strip()) for title in header]
    column = normalize(column.strip())
    columns = [title for title in dict.fromkeys((column, _COUNT)) if title in titles]
    for title in columns:
        if titles.count(title) > 1:
            raise TaskError(f"{name} has {titles.count(title)} columns {title}; one is allowed")
    if not all(map(_is_unicode, titles)):
        raise TaskError(f"the header of {name} is not UTF-8 text")
    if column not in titles:
        shown = ", ".join(title[:MAX_LABEL_CHARACTERS] for title in titles[:20])
        raise TaskError(
            f"{name} has no column {column}; choose one with simulate --column: {shown}"
        )
    return [titles.index(title) for title in columns]


def _tabulate(rows: Iterable[Sequence[str]], name: str, *, empty: bool) -> dict[str, Any]:
    """Count the rows, which are people or, if they have a count, items."""
    people, first, missing, counted = Counter[str](), dict[str, int](), 0, False
    for number, (text, *count) in enumerate(rows, start=1):
        value, users, counted = normalize(text.strip()), 1, bool(count)
        if count:
            written = count[0].strip() or ("" if value else "0")  # a blank line has no people
            if not (written.isascii() and written.isdecimal() and len(written) <= _INT64_DIGITS):
                raise TaskError(
                    f"the count of row {number} of {name} must be a whole number of at most "
                    f"{_INT64_DIGITS} digits, 0 or more"
                )
            users = int(written)
        if not (value or empty):
            missing += users
            continue
        if value not in first:
            if not _is_unicode(value):
                raise TaskError(f"row {number} of {name} is not UTF-8 text")
            if len(first) == MAX_DOMAIN_SIZE:
                raise TaskError(f"{name} has too many items; it may have at most {MAX_DOMAIN_SIZE}")
            first[value] = number
        elif counted:
            raise TaskError(
                f"row {number} of {name} repeats an earlier row's value; each value may appear once"
            )
        people[value] += users
    if not people:
        raise TaskError(f"{name} has a header and no row with a value; it must have at least one")
    values = list(people) if counted else sorted(people, key=_order)
    counts, rows = (
        np.array([found[value] for value in values], dtype=np.int64) for found in (people, first)
    )
    return {"labels": tuple(values), "counts": counts, "rows": rows, "missing": missing}


def _is_unicode(text: str) -> bool:
    """Check that a text has no surrogates, which stand for bytes that are not UTF-8."""
    return text == text.encode(errors="ignore").decode()


def _order(value: str) -> tuple[bool, Decimal, str]:
    number = number_of(value)
    return number is None, number or Decimal(0), value


def number_of(value: str) -> Decimal | None:
    """Return the exact number that a text writes; None if it writes none or one without an end."""
    try:
        return Decimal(value) if math.isfinite(parse_number(value, "")) else None
    except ValueRangeError:
        return None
