"""Data sets in files: CSV or Parquet with a column of values, perhaps with a column `count`."""

import gzip
import importlib
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, TextIO

from common.errors import TaskError
from common.task.specs import MAX_DOMAIN_SIZE
from common.task.text import MAX_LABEL_CHARACTERS
from deploy.datasets.catalogue import Dataset, dataset_of
from deploy.datasets.table import VALUE, Table, check_columns, of_items, of_people, read_csv

ENDINGS: Final = (".csv", ".csv.gz", ".parquet")
"""What a file's name ends with, in small letters or large."""
MAX_LINE_CHARACTERS: Final = 1 << 20
_ROWS_AT_ONCE: Final = 1 << 16


def read(path: Path, column: str = VALUE) -> Dataset:
    """
    Read a file: CSV (`.csv`, or compressed `.csv.gz`) or Parquet (`.parquet`).

    The column `column` holds the values. With a column `count` each row is an item and how many
    people have it; otherwise each row is a person. Items are numbered as the file has them, or in
    the order of their values where rows are people: numbers by size, other texts by alphabet.

    Raises:
        TaskError: The file cannot be read, breaks a rule of such files, or is Parquet and there is
            nothing to read it with.
    """
    name = path.name
    ending = name.lower()
    try:
        if ending.endswith(".parquet"):
            table = _parquet(path, column)
        elif ending.endswith(".csv.gz"):
            with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as file:
                table = read_csv(_lines(file, name), name=name, column=column)
        elif ending.endswith(".csv"):
            with path.open(encoding="utf-8-sig", newline="") as file:
                table = read_csv(_lines(file, name), name=name, column=column)
        else:
            raise TaskError(f"{name} ends with none of {', '.join(ENDINGS)}")
    except (OSError, EOFError, zlib.error) as error:  # OSError: gzip's own errors too
        reason = error.strerror if isinstance(error, OSError) else None
        raise TaskError(f"{name} cannot be read: {reason or 'it is cut or damaged'}") from error
    return dataset_of(table, name=name, title=f"The file {name}")


def _lines(file: TextIO, name: str) -> Iterator[str]:
    """Give lines, none of them long: a small compressed file may hold one without an end."""
    while line := file.readline(MAX_LINE_CHARACTERS + 1):
        if len(line) > MAX_LINE_CHARACTERS:
            raise TaskError(
                f"a line of {name} is too long; at most {MAX_LINE_CHARACTERS} characters are read"
            )
        yield line


def _parquet(path: Path, column: str) -> Table:
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as error:
        raise TaskError(
            f"{path.name} is Parquet, which needs pyarrow: install shuffledp with its extra "
            "research (pip install 'shuffledp[research]'), or pyarrow beside it"
        ) from error
    name = path.name
    broken: Any = importlib.import_module("pyarrow").ArrowException
    try:
        with parquet.ParquetFile(path) as file:
            wanted = check_columns(file.schema_arrow.names, name, column)
            rows = _rows(file, wanted, name)
            if len(wanted) == 1:
                return of_people((row[0] for row in rows), name)
            kept = list(islice(rows, MAX_DOMAIN_SIZE + 1))
            return of_items([row[0] for row in kept], [row[1] for row in kept], name)
    except (broken, UnicodeDecodeError) as error:
        raise TaskError(f"{name} is not a Parquet file that can be read") from error


def _rows(file: Any, wanted: list[str], name: str) -> Iterator[tuple[str, ...]]:  # noqa: ANN401  # pyarrow has no types
    """Give rows, some thousand at a time: a small file may hold any number of them."""
    for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=wanted):
        missing = sum(batch.column(column).null_count for column in wanted)
        if missing:
            raise TaskError(
                f"{name} has {missing} empty fields; every row needs all of its columns"
            )
        fields = [[str(field) for field in batch.column(column).to_pylist()] for column in wanted]
        if max(map(len, fields[0]), default=0) > MAX_LABEL_CHARACTERS:
            raise TaskError(f"a value of {name} has more than {MAX_LABEL_CHARACTERS} characters")
        yield from zip(*fields, strict=True)
