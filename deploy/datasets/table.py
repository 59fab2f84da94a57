"""A table of values, one row a person or one row an item, as files hold it."""

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from common.errors import TaskError
from common.task.specs import MAX_DOMAIN_SIZE
from common.task.text import MAX_LABEL_CHARACTERS

VALUE: Final = "value"
COUNT: Final = "count"

_INT64_DIGITS: Final = 18
"""Whole numbers of so many digits fit into 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """How many people have each value."""

    values: tuple[str, ...]
    """Each once. Of rows that are people: in order, numbers by size, other texts by alphabet. Of
    rows that are items: as in the file."""
    counts: tuple[int, ...]


def read_csv(lines: Iterable[str], *, name: str, column: str = VALUE) -> Table:
    """
    Read comma-separated lines: a header that names the column of the values, and rows.

    With a column `count` each row is an item, otherwise each row is a person. Other columns are
    passed over, and so are empty lines.

    Args:
        lines: Text, with or without line ends.
        name: Of the file, for errors.
        column: Name of the column of the values.

    Raises:
        TaskError: There is no row, a column is missing, a row is short, or a count is no whole
            number from 0 on. It names the row, never what stands there.
    """
    try:
        rows = csv.reader(lines, strict=True)
        header = [each.strip() for each in next(rows, [])]
        value, count = _columns(header, name, column)
        if count is None:
            return of_people((row[0] for row in _fields(rows, (value,), name)), name)
        kept = list(islice(_fields(rows, (value, count), name), MAX_DOMAIN_SIZE + 1))
        return of_items([row[0] for row in kept], [row[1] for row in kept], name)
    except (csv.Error, UnicodeDecodeError) as error:
        raise TaskError(f"{name} is not a table of comma-separated UTF-8 text") from error


def of_items(values: Sequence[str], counts: Sequence[str | int], name: str) -> Table:
    """
    Make a table of rows that are items.

    Raises:
        TaskError: There is no row, a count is no whole number from 0 on, or a value stands twice.
    """
    if not values:
        raise TaskError(f"{name} has a header and no row; a data set has at least one")
    if len(values) > MAX_DOMAIN_SIZE:
        raise TaskError(f"{name} has too many items; it may have at most {MAX_DOMAIN_SIZE}")
    whole = tuple(_whole(text, row, name) for row, text in enumerate(counts, start=1))
    seen: set[str] = set()
    for row, value in enumerate(values, start=1):
        if value in seen:
            raise TaskError(
                f"row {row} of {name} has the value of an earlier one; each stands once"
            )
        seen.add(value)
    return Table(values=tuple(values), counts=whole)


def of_people(values: Iterable[str], name: str) -> Table:
    """
    Make a table of rows that are people.

    Raises:
        TaskError: There is no row.
    """
    people = Counter[str]()
    for value in values:
        people[value] += 1
        if len(people) > MAX_DOMAIN_SIZE:
            raise TaskError(f"{name} has too many items; it may have at most {MAX_DOMAIN_SIZE}")
    if not people:
        raise TaskError(f"{name} has a header and no row; a data set has at least one")
    numbers = all(_is_whole(value) for value in people)
    ordered = sorted(people, key=int) if numbers else sorted(people)
    return Table(values=tuple(ordered), counts=tuple(people[value] for value in ordered))


def _columns(header: list[str], name: str, column: str) -> tuple[int, int | None]:
    if not header:
        raise TaskError(f"{name} is empty; its first line names the column value, or value,count")
    wanted = check_columns(header, name, column)
    return header.index(column), header.index(COUNT) if COUNT in wanted else None


def check_columns(header: Sequence[str], name: str, column: str) -> list[str]:
    """
    Return the columns to read of a table: that of the values, and `count` if there is one.

    Raises:
        TaskError: The column is missing, or one of them stands twice.
    """
    wanted = list(dict.fromkeys(each for each in (column, COUNT) if each in header))
    for each in wanted:
        if header.count(each) > 1:
            raise TaskError(f"{name} has {header.count(each)} columns {each}; one is allowed")
    if column not in header:
        raise TaskError(
            f"{name} has {len(header)} columns and none of them is called {column}; one row a "
            f"person needs a column {column}, one row an item needs {column} and count"
        )
    return [column] if column == COUNT else wanted


def _fields(
    rows: Iterable[list[str]], columns: tuple[int, ...], name: str
) -> Iterable[tuple[str, ...]]:
    for number, row in enumerate(rows, start=1):
        if not row:
            continue
        if len(row) <= max(columns):
            raise TaskError(
                f"row {number} of {name} has {len(row)} columns; it needs {max(columns) + 1}"
            )
        fields = tuple(row[column].strip() for column in columns)
        if len(fields[0]) > MAX_LABEL_CHARACTERS:
            raise TaskError(
                f"the value of row {number} of {name} has {len(fields[0])} characters; "
                f"it may have at most {MAX_LABEL_CHARACTERS}"
            )
        yield fields


def _whole(text: str | int, row: int, name: str) -> int:
    digits = str(text)
    if not _is_whole(digits):
        raise TaskError(
            f"the count of row {row} of {name} is negative, or no whole number, or too long; "
            f"a count is a whole number from 0 on, of at most {_INT64_DIGITS} digits"
        )
    return int(digits)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _INT64_DIGITS
