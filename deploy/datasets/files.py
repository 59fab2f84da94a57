"""
Read values from CSV or Parquet: a row per person or, with a column `count`, per item.

Rules: docs/researchers/datasets.md. A value is compared as devices compare it. A TaskError names a
row, counted from 1 below the header, never its text.
"""

import csv
import gzip
import importlib
import io
import math
import textwrap
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Final, TextIO

import numpy as np

from shuffledp.common.errors import TaskError, ValueRangeError
from shuffledp.common.messages.submission import parse_number
from shuffledp.common.task import domain_spec, labels
from shuffledp.common.task.specs import MAX_DOMAIN_SIZE

VALUE: Final = "value"
_COUNT: Final = "count"
ENDINGS: Final = (".csv", ".csv.gz", ".parquet")
"""Supported endings of file names, in any case."""
MAX_LINE_CHARACTERS: Final = 1 << 20
_MOST_LISTED: Final = 400
"""Characters of a header that a message shows."""
_OTHER_SEPARATORS: Final = ";\t|"
_ROWS_AT_ONCE: Final = 1 << 16
MAX_PEOPLE: Final = 10**9 - 1
"""Largest population that numpy's hypergeometric distribution accepts."""
_OUT_OF_RANGE: Final = b"<value out of range"
"""How Arrow writes a time that it cannot write."""


def read(path: Path, column: str = VALUE, *, empty: bool = False) -> dict[str, Any]:
    """
    Read a file's column of values, and its column `count` if it has one, or raise TaskError.

    Returns the fields of a Dataset: labels, counts, rows and missing. Labels are in the file's
    order if rows are items; otherwise numbers in numeric order, then texts in alphabetical order.
    Rows without a value are left out and counted or, if `empty`, have the empty text as a value.
    Several columns, with commas between, are joined as the parts of a value: a row needs them all.
    """
    name = path.name
    ending = name.lower()
    if not ending.endswith(ENDINGS):
        raise TaskError(f"{name} must end with {' or '.join(ENDINGS)}")
    rows = _parquet_rows if ending.endswith(".parquet") else _csv_rows
    try:
        if not path.is_file():  # a pipe could wait for ever
            raise TaskError(f"{path} does not exist, or is not an ordinary file")
        with path.open("rb") as file:
            return tabulate(rows(file, name, column), name, empty=empty)
    except (OSError, EOFError, zlib.error) as error:  # OSError: gzip's and Arrow's own errors too
        reason = error.strerror if isinstance(error, OSError) else None
        rule = f"{name} cannot be read: {reason or 'it is damaged, or in another format'}"
        raise TaskError(rule) from error


def _csv_rows(file: IO[bytes], name: str, column: str) -> Iterator[list[str]]:
    """Yield rows of the chosen columns; bytes that are not UTF-8 become surrogates."""
    number, raw = 0, gzip.GzipFile(fileobj=file) if name.lower().endswith(".gz") else file
    with io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        rows = csv.reader(_lines(lines, name), strict=True)
        try:
            header = next(rows, [])
            if not header:
                raise TaskError(f"the first line of {name} is empty; it must name the columns")
            values, counts = _columns(header, name, column)
            for number, row in enumerate(rows, start=1):
                if row and len(row) != len(header):
                    advice = ": quote values that contain commas" * (len(row) > len(header))
                    raise TaskError(
                        f"row {number} of {name} has {len(row)} values and the header has "
                        f"{len(header)}{advice}"
                    )
                yield _chosen(row or [""] * len(header), values, counts)
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


def _parquet_rows(raw: IO[bytes], name: str, column: str) -> Iterator[list[str]]:
    """Yield rows of the chosen columns; read in batches, as a small file can have many rows."""
    try:
        arrow, parquet = map(importlib.import_module, ("pyarrow", "pyarrow.parquet"))
    except ModuleNotFoundError as error:
        raise TaskError(
            f"{name} is Parquet, which needs pyarrow: pip install 'shuffledp[research]', or pip "
            "install pyarrow"
        ) from error
    try:
        with parquet.ParquetFile(raw) as file:
            header = file.schema_arrow.names
            values, counts = _columns(header, name, column)
            titles = [header[index] for index in (*values, *counts)]
            places = range(len(values)), range(len(values), len(titles))
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=titles):
                columns = [_texts(arrow, batch.column(title), name) for title in titles]
                yield from (_chosen(row, *places) for row in zip(*columns, strict=True))
    except (arrow.ArrowException, UnicodeDecodeError) as error:
        raise TaskError(f"{name} is not a valid Parquet file") from error


def _texts(arrow: Any, column: Any, name: str) -> list[str]:  # noqa: ANN401  # pyarrow has no types
    """Return a column's texts: floats as Python writes them, others as Arrow; empty for null."""
    if arrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if arrow.types.is_floating(kind):
        texts = column.to_numpy(zero_copy_only=False).astype(str)
        return list(np.where(column.is_valid(), texts, "").tolist())
    try:
        if "binary" not in str(kind):
            column = column.cast(arrow.string())
        fields = column.cast(arrow.binary()).to_pylist()
    except arrow.ArrowException as error:
        raise TaskError(
            f"a column of {name} has the type {kind}; it must hold texts, numbers, dates, times or "
            "truth values"
        ) from error
    if arrow.types.is_temporal(kind) and any(f and f.startswith(_OUT_OF_RANGE) for f in fields):
        raise TaskError(f"a column of {name} of the type {kind} has a time that cannot be written")
    return [(field or b"").decode(errors="surrogateescape") for field in fields]


def _chosen(row: Sequence[str], values: Sequence[int], counts: Sequence[int]) -> list[str]:
    """Return a row's value, joined from all of its parts, or empty, and its count if any."""
    value = row[values[0]]
    if len(values) > 1:
        parts = [_comparable(row[at]) for at in values]
        value = domain_spec.GROUP_SEPARATOR.join(parts) if all(parts) else ""
    return [value, *(row[at] for at in counts)]


def _columns(header: Sequence[str], name: str, column: str) -> tuple[list[int], list[int]]:
    """Return the places of the columns of values and, if there is one, of `count`."""
    titles, wanted = [labels.normalize(title) for title in header], [labels.normalize(column)]
    if wanted[0] not in titles:
        wanted = [*map(labels.normalize, column.split(","))]
    counts = [title for title in (_COUNT,) if title in titles and title not in wanted]
    for title in (*wanted, *counts):
        if titles.count(title) > 1:
            raise TaskError(f"{name} has {titles.count(title)} columns {title}; one is allowed")
    if not all(map(_is_unicode, titles)):
        raise TaskError(f"the header of {name} is not UTF-8 text")
    for title in wanted:
        if title not in titles:
            listed = f"its first line names {textwrap.shorten(', '.join(titles), _MOST_LISTED)}"
            if any(number_of(each) is not None for each in titles):  # somebody's, not names
                listed = "its first line must name its columns, and has numbers"
            elif len(titles) == 1 and any(each in titles[0] for each in _OTHER_SEPARATORS):
                listed += "; commas must separate columns"
            others = (
                ": simulate reads others with --column, and load those of a published task's "
                "attributes with --users"
            )
            raise TaskError(f"{name} has no column {title}; {listed}{others * (column == VALUE)}")
    return [titles.index(title) for title in wanted], [titles.index(title) for title in counts]


def tabulate(rows: Iterable[Sequence[str]], name: str, *, empty: bool) -> dict[str, Any]:
    """Count the rows, which are people or, if they have a count, items, as `read` does."""
    people, first, missing, counted = Counter[str](), dict[str, int](), 0, False
    for number, (text, *count) in enumerate(rows, start=1):
        value, users, counted = _comparable(text), 1, bool(count)
        if count:
            written = _users(count[0] if count[0].strip() or value else "0")  # a blank line: 0
            if written is None:
                raise TaskError(
                    f"the count of row {number} of {name} must be a whole number from 0 to "
                    f"{MAX_PEOPLE}"
                )
            users = written
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
    values = list(people) if counted else sorted(people, key=value_order)
    counts, rows = (
        np.array([found[value] for value in values], dtype=np.int64) for found in (people, first)
    )
    return {"labels": tuple(values), "counts": counts, "rows": rows, "missing": missing}


def _comparable(text: str) -> str:
    """Return a text as devices compare it; a zero has no sign."""
    value = labels.normalize(text)
    return value[1:] if value.startswith("-") and number_of(value) == 0 else value


def _users(text: str) -> int | None:
    """Return the number of people that a text writes, or None."""
    number = number_of(text)
    return None if number is None or not 0 <= number <= MAX_PEOPLE or number % 1 else int(number)


def _is_unicode(text: str) -> bool:
    """Check that a text has no surrogates, which stand for bytes that are not UTF-8."""
    return text == text.encode(errors="ignore").decode()


def value_order(value: str) -> tuple[bool, Decimal, str]:
    """Return the key that sorts numbers in numeric order, then texts in alphabetical order."""
    number = number_of(value)
    return number is None, number or Decimal(0), value


def number_of(value: str) -> Decimal | None:
    """Return the exact number that a text writes; None if it writes none or one without an end."""
    try:
        return Decimal(value) if math.isfinite(parse_number(value, "")) else None
    except (ValueRangeError, ArithmeticError):  # the latter for exponents of many digits
        return None
