"""Anybody's data set: a file with a column `value`, or `value` and `count`."""

import gzip
import importlib
from pathlib import Path
from typing import Any, Final

from common.errors import TaskError
from deploy.datasets.catalogue import Dataset, dataset_of
from deploy.datasets.table import COUNT, VALUE, Table, of_items, of_people, read_csv

ENDINGS: Final = (".csv", ".csv.gz", ".parquet")
"""What a file's name ends with, in small letters or large."""


def read(path: Path) -> Dataset:
    """
    Read a file: CSV (`.csv`, or compressed `.csv.gz`) or Parquet (`.parquet`).

    With a column `count` each row is an item and how many people have it; otherwise each row is
    a person. Items are numbered as the file has them, or in the order of their values where rows
    are people: numbers by size, other texts by alphabet.

    Raises:
        TaskError: The file cannot be read, breaks a rule of such files, or is Parquet and there is
            nothing to read it with.
    """
    name = path.name
    ending = name.lower()
    try:
        if ending.endswith(".parquet"):
            table = _parquet(path)
        elif ending.endswith(".csv.gz"):
            with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as lines:
                table = read_csv(lines, name=name)
        elif ending.endswith(".csv"):
            with path.open(encoding="utf-8-sig", newline="") as lines:
                table = read_csv(lines, name=name)
        else:
            raise TaskError(f"{name} ends with none of {', '.join(ENDINGS)}")
    except (OSError, EOFError) as error:  # OSError: gzip's own errors too
        reason = error.strerror if isinstance(error, OSError) else None
        raise TaskError(f"{name} cannot be read: {reason or 'it is cut or damaged'}") from error
    return dataset_of(table, name=name, title=f"The file {name}")


def _parquet(path: Path) -> Table:
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
        columns = parquet.read_schema(path).names
        if VALUE not in columns:
            raise TaskError(
                f"{name} has {len(columns)} columns and none of them is called value; one row a "
                "person needs a column value, one row an item needs value and count"
            )
        wanted = [column for column in (VALUE, COUNT) if column in columns]
        rows = parquet.read_table(path, columns=wanted)
    except broken as error:
        raise TaskError(f"{name} is not a Parquet file that can be read") from error
    missing = sum(rows.column(column).null_count for column in wanted)
    if missing:
        raise TaskError(f"{name} has {missing} empty fields; every row needs all of its columns")
    values = [str(value) for value in rows.column(VALUE).to_pylist()]
    if COUNT in wanted:
        return of_items(values, rows.column(COUNT).to_pylist(), name)
    return of_people(values, name)
