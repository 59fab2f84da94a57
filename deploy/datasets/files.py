"""Read values from CSV or Parquet: a row per person or, with a column `count`, per item."""

import csv
import gzip
import importlib
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from common.errors import TaskError
from common.task.specs import MAX_DOMAIN_SIZE, MAX_LABEL_CHARACTERS

VALUE: Final = "value"
_COUNT: Final = "count"
ENDINGS: Final = (".csv", ".csv.gz", ".parquet")
"""Supported endings of file names, in any case."""
MAX_LINE_CHARACTERS: Final = 1 << 20
_ROWS_AT_ONCE: Final = 1 << 16
_INT64_DIGITS: Final = 18
"""Maximum decimal digits of a count, so that it fits into 64 bits."""


class Table(NamedTuple):
    """The number of people with each value."""

    values: tuple[str, ...]
    """Distinct values: in the file's order if rows are items; otherwise sorted, numerically if all
    are whole numbers."""
    counts: NDArray[np.int64]
    """Number of people with each value, shape (values,)."""


def read(path: Path, column: str = VALUE) -> Table:
    """Read a file's column of values, and its column `count` if it has one, or raise TaskError."""
    name = path.name
    ending = name.lower()
    if not ending.endswith(ENDINGS):
        raise TaskError(f"{name} must end with {' or '.join(ENDINGS)}")
    try:
        if ending.endswith(".parquet"):
            return _parquet(path, column)
        open_text: Any = gzip.open if ending.endswith(".gz") else Path.open
        with open_text(path, "rt", encoding="utf-8-sig", newline="") as file:
            return read_csv(_lines(file, name), name=name, column=column)
    except (OSError, EOFError, zlib.error) as error:  # OSError: gzip's own errors too
        reason = error.strerror if isinstance(error, OSError) else None
        raise TaskError(f"{name} cannot be read: {reason or 'it is truncated'}") from error


def read_csv(lines: Iterable[str], *, name: str, column: str = VALUE) -> Table:
    """Read CSV lines: a header and rows. The message of a TaskError names a row, never its text."""
    try:
        rows = csv.reader(lines, strict=True)
        header = [title.strip() for title in next(rows, [])]
        if not header:
            raise TaskError(f"{name} is empty; its first line must be value or value,count")
        indices = [header.index(title) for title in _columns(header, name, column)]
        return _tabulate(_fields(rows, indices, name), name)
    except (csv.Error, UnicodeDecodeError) as error:
        raise TaskError(f"{name} is not comma-separated UTF-8 text") from error


def _lines(file: TextIO, name: str) -> Iterator[str]:
    """Yield lines; raise TaskError for a long one: a small file can decompress to a huge line."""
    while line := file.readline(MAX_LINE_CHARACTERS + 1):
        if len(line) > MAX_LINE_CHARACTERS:
            raise TaskError(
                f"a line of {name} is too long; the limit is {MAX_LINE_CHARACTERS} characters"
            )
        yield line


def _fields(
    rows: Iterable[list[str]], indices: Sequence[int], name: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield every nonempty row's number, from 1 on, and its stripped fields at these indices."""
    needed = max(indices) + 1
    for number, row in enumerate(rows, start=1):
        if 0 < len(row) < needed:
            raise TaskError(f"row {number} of {name} has {len(row)} columns; it needs {needed}")
        if row:
            yield number, [row[index].strip() for index in indices]


def _parquet(path: Path, column: str) -> Table:
    name = path.name
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise TaskError(
            f"{name} is Parquet, which needs pyarrow: pip install 'shuffledp[research]', or pip "
            "install pyarrow"
        ) from error
    broken: Any = importlib.import_module("pyarrow").ArrowException
    try:
        with parquet.ParquetFile(path) as file:
            columns = _columns(file.schema_arrow.names, name, column)
            return _tabulate(enumerate(_parquet_rows(file, columns, name), start=1), name)
    except (broken, UnicodeDecodeError) as error:
        raise TaskError(f"{name} is not a valid Parquet file") from error


def _parquet_rows(file: Any, columns: list[str], name: str) -> Iterator[list[str]]:  # noqa: ANN401  # pyarrow has no types
    """Yield rows, read in batches, because a small file can have any number of rows."""
    for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=columns):
        missing = sum(batch.column(column).null_count for column in columns)
        if missing:
            raise TaskError(
                f"{name} has {missing} empty fields; every row needs {' and '.join(columns)}"
            )
        fields = [[str(field) for field in batch.column(column).to_pylist()] for column in columns]
        yield from map(list, zip(*fields, strict=True))


def _columns(header: Sequence[str], name: str, column: str) -> list[str]:
    """Return the names of the columns to read: the values' and, if there is one, `count`."""
    columns = [title for title in dict.fromkeys((column, _COUNT)) if title in header]
    for title in columns:
        if header.count(title) > 1:
            raise TaskError(f"{name} has {header.count(title)} columns {title}; one is allowed")
    if column not in header:
        shown = ", ".join(title[:MAX_LABEL_CHARACTERS] for title in header[:20])
        raise TaskError(
            f"{name} has no column {column}; choose one with simulate --column: {shown}"
        )
    return columns


def _tabulate(rows: Iterable[tuple[int, list[str]]], name: str) -> Table:
    """Return the table of numbered rows, which are people or, if they have a count, items."""
    people, counted = Counter[str](), False
    for number, (value, *count) in rows:
        counted = bool(count)
        if len(value) > MAX_LABEL_CHARACTERS:
            raise TaskError(
                f"the value of row {number} of {name} has {len(value)} characters; "
                f"it may have at most {MAX_LABEL_CHARACTERS}"
            )
        if counted and value in people:
            raise TaskError(
                f"row {number} of {name} repeats an earlier row's value; each value may appear once"
            )
        if counted and not _is_whole(count[0]):
            raise TaskError(
                f"the count of row {number} of {name} must be a whole number of at most "
                f"{_INT64_DIGITS} digits, 0 or more"
            )
        people[value] += int(count[0]) if counted else 1
        if len(people) > MAX_DOMAIN_SIZE:
            raise TaskError(f"{name} has too many items; it may have at most {MAX_DOMAIN_SIZE}")
    if not people:
        raise TaskError(f"{name} has a header and no rows; it must have at least one")
    values = list(people)
    if not counted:
        values.sort(key=int if all(map(_is_whole, values)) else None)
    counts = np.array([people[value] for value in values], dtype=np.int64)
    return Table(tuple(values), counts)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _INT64_DIGITS
