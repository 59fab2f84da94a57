"""Read values from CSV or Parquet: a row is a person or, with a column `count`, an item."""

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
"""Endings of file names, in small letters or large."""
MAX_LINE_CHARACTERS: Final = 1 << 20
_ROWS_AT_ONCE: Final = 1 << 16
_INT64_DIGITS: Final = 18
"""Whole numbers of so many digits fit into 64 bits."""


class Table(NamedTuple):
    """How many people have each value."""

    values: tuple[str, ...]
    """Each once. Of rows that are people: in order, numbers by size, other texts by alphabet. Of
    rows that are items: as in the file."""
    counts: NDArray[np.int64]


def read(path: Path, column: str = VALUE) -> Table:
    """
    Read the column of values, and `count` if there is one, of a file with one of ENDINGS.

    Raises:
        TaskError: The file cannot be read, breaks a rule of such files, or is Parquet and pyarrow
            is not installed.
    """
    name = path.name
    ending = name.lower()
    try:
        if ending.endswith(".parquet"):
            return _parquet(path, column)
        if ending.endswith(".csv.gz"):
            with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as file:
                return read_csv(_lines(file, name), name=name, column=column)
        if ending.endswith(".csv"):
            with path.open(encoding="utf-8-sig", newline="") as file:
                return read_csv(_lines(file, name), name=name, column=column)
    except (OSError, EOFError, zlib.error) as error:  # OSError: gzip's own errors too
        reason = error.strerror if isinstance(error, OSError) else None
        raise TaskError(f"{name} cannot be read: {reason or 'it is cut or damaged'}") from error
    raise TaskError(f"{name} ends with none of {', '.join(ENDINGS)}")


def read_csv(lines: Iterable[str], *, name: str, column: str = VALUE) -> Table:
    """
    Read comma-separated lines of the file `name`: a header and rows. Empty lines are ignored.

    Raises:
        TaskError: The lines break a rule of such files. It names the row, never its content.
    """
    try:
        rows = csv.reader(lines, strict=True)
        header = [each.strip() for each in next(rows, [])]
        if not header:
            raise TaskError(
                f"{name} is empty; its first line names the column value, or value,count"
            )
        places = [header.index(each) for each in _columns(header, name, column)]
        return _tabulated(_fields(rows, places, name), name, counted=len(places) > 1)
    except (csv.Error, UnicodeDecodeError) as error:
        raise TaskError(f"{name} is not a table of comma-separated UTF-8 text") from error


def _lines(file: TextIO, name: str) -> Iterator[str]:
    """Yield lines, none of them long: a small compressed file may hold one without an end."""
    while line := file.readline(MAX_LINE_CHARACTERS + 1):
        if len(line) > MAX_LINE_CHARACTERS:
            raise TaskError(
                f"a line of {name} is too long; at most {MAX_LINE_CHARACTERS} characters are read"
            )
        yield line


def _fields(
    rows: Iterable[list[str]], places: Sequence[int], name: str
) -> Iterator[tuple[int, list[str]]]:
    for number, row in enumerate(rows, start=1):
        if row and len(row) <= max(places):
            raise TaskError(
                f"row {number} of {name} has {len(row)} columns; it needs {max(places) + 1}"
            )
        if row:
            yield number, [row[place].strip() for place in places]


def _parquet(path: Path, column: str) -> Table:
    name = path.name
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise TaskError(
            f"{name} is Parquet, which needs pyarrow: install shuffledp with its extra "
            "research (pip install 'shuffledp[research]'), or pyarrow beside it"
        ) from error
    broken: Any = importlib.import_module("pyarrow").ArrowException
    try:
        with parquet.ParquetFile(path) as file:
            columns = _columns(file.schema_arrow.names, name, column)
            rows = enumerate(_parquet_rows(file, columns, name), start=1)
            return _tabulated(rows, name, counted=len(columns) > 1)
    except (broken, UnicodeDecodeError) as error:
        raise TaskError(f"{name} is not a Parquet file that can be read") from error


def _parquet_rows(file: Any, columns: list[str], name: str) -> Iterator[list[str]]:  # noqa: ANN401  # pyarrow has no types
    """Yield rows, some thousand at a time: a small file may hold any number of them."""
    for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=columns):
        missing = sum(batch.column(column).null_count for column in columns)
        if missing:
            raise TaskError(
                f"{name} has {missing} empty fields; every row needs all of its columns"
            )
        fields = [[str(field) for field in batch.column(column).to_pylist()] for column in columns]
        yield from map(list, zip(*fields, strict=True))


def _columns(header: Sequence[str], name: str, column: str) -> list[str]:
    """Return the columns to read: that of the values, and `count` if there is one."""
    wanted = [each for each in dict.fromkeys((column, _COUNT)) if each in header]
    for each in wanted:
        if header.count(each) > 1:
            raise TaskError(f"{name} has {header.count(each)} columns {each}; one is allowed")
    if column not in header:
        raise TaskError(
            f"{name} has {len(header)} columns and none of them is called {column}; one row a "
            f"person needs a column {column}, one row an item needs {column} and count"
        )
    return wanted


def _tabulated(rows: Iterable[tuple[int, list[str]]], name: str, *, counted: bool) -> Table:
    """Count numbered rows that are people, or that are items with their count."""
    people = Counter[str]()
    for number, (value, *count) in rows:
        if len(value) > MAX_LABEL_CHARACTERS:
            raise TaskError(
                f"the value of row {number} of {name} has {len(value)} characters; "
                f"it may have at most {MAX_LABEL_CHARACTERS}"
            )
        if counted and value in people:
            raise TaskError(
                f"row {number} of {name} has the value of an earlier one; each stands once"
            )
        if counted and not _is_whole(count[0]):
            raise TaskError(
                f"the count of row {number} of {name} is negative, or no whole number, or too "
                f"long; a count is a whole number from 0 on, of at most {_INT64_DIGITS} digits"
            )
        people[value] += int(count[0]) if counted else 1
        if len(people) > MAX_DOMAIN_SIZE:
            raise TaskError(f"{name} has too many items; it may have at most {MAX_DOMAIN_SIZE}")
    if not people:
        raise TaskError(f"{name} has a header and no row; a data set has at least one")
    values = list(people)
    if not counted:
        values.sort(key=int if all(map(_is_whole, values)) else None)
    counts = np.array([people[value] for value in values], dtype=np.int64)
    return Table(tuple(values), counts)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _INT64_DIGITS
