"""Estimates of every kind as CSV and Parquet."""

import csv
import dataclasses
import re
from pathlib import Path
from typing import Final

import pytest
from pyarrow import parquet
from syrupy.assertion import SnapshotAssertion

from shuffledp.common.messages.result import Means
from shuffledp.common.protocols import Kind
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.results.export import write_csv, write_parquet
from shuffledp.deploy.results.result_view import result_view
from tests.support.kind_results import kind_collected
from tests.support.kind_tasks import OTHER_KINDS
from tests.support.result_pages import collected
from tests.support.results import result
from tests.support.tables import table

_RESULT: Final = result(TaskDigest(b"\xd1" * 32))
_COLUMNS: Final = result_view(_RESULT.estimate, collected(size=3).task, most=1).columns


def _csv(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("kind", ["categorical", *OTHER_KINDS])
def test_files_hold_every_figure_exactly(
    tmp_path: Path, kind: Kind, snapshot: SnapshotAssertion
) -> None:
    """There is a row per value, number, key, or bit of a cohort; Parquet names the task."""
    found, columns = _RESULT, _COLUMNS
    if kind != "categorical":
        found = kind_collected(kind).result
        columns = result_view(found.estimate, kind_collected(kind).task, most=1).columns
    write_csv(tmp_path / "result.csv", columns)
    write_parquet(tmp_path / "result.parquet", found, columns)
    heading, *rows = _csv(tmp_path / "result.csv")
    table = parquet.read_table(tmp_path / "result.parquet")

    assert snapshot == {
        name: [len(column), *(column[30:35] or column)] for name, column in columns.items()
    }
    assert list(columns) == heading == table.column_names
    for place, name in enumerate(heading):
        texts = isinstance(columns[name][0], str)
        read = [row[place] if texts else float(row[place]) for row in rows]
        assert list(columns[name]) == read == table[name].to_pylist()
    assert found.task_digest.hex().encode() == table.schema.metadata[b"task_digest"]
    assert str(found.n_users).encode() == table.schema.metadata[b"n_users"]
    unbiased = b"true" if isinstance(found.estimate, Means) else None
    assert unbiased == table.schema.metadata.get(b"unbiased")


def test_parquet_says_that_projected_means_are_biased(tmp_path: Path) -> None:
    """A reader must not compute confidence intervals from them."""
    found = kind_collected("vector")
    assert isinstance(found.result.estimate, Means)
    estimate = dataclasses.replace(found.result.estimate, unbiased=False)
    biased = dataclasses.replace(found.result, estimate=estimate)
    columns = result_view(estimate, found.task, most=1).columns
    write_parquet(tmp_path / "result.parquet", biased, columns)

    assert b"false" == parquet.read_schema(tmp_path / "result.parquet").metadata[b"unbiased"]


@table(
    ("label", "written"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("+1", "'+1"),
        ("-1+1", "'-1+1"),
        ("@x", "'@x"),
        ("\tx", "'\tx"),
        ("-5.25", "-5.25"),
        ("5=5", "5=5"),
        ("x;=cmd", "x;'=cmd"),
        ("x,@y", "x,'@y"),
        ("x\t+1;-2", "x\t'+1;'-2"),
        ("x\r\n=1", "x\r\n'=1"),
        ("\t=1", "'\t'=1"),
        ('x";"=1', 'x";"\'=1'),
        ("a; b-c", "a; b-c"),
        ('a,b\n"q"ü', 'a,b\n"q"ü'),
    ],
)
@table("name", ["label", "text"])
def test_no_text_is_a_formula_to_a_spreadsheet(
    tmp_path: Path, name: str, label: str, written: str
) -> None:
    """Formulas get an apostrophe, as in the page's CSV; numbers stay."""
    write_csv(tmp_path / "result.csv", {name: [label], "share": [0.5]})
    _, [first, _] = _csv(tmp_path / "result.csv")

    assert written == first
    text = (tmp_path / "result.csv").read_text(encoding="utf-8")
    cells = re.split(r"[;\t\r\n]", text)
    assert not [cell for cell in cells if re.match("[=+@]|-[^0-9]", cell)]
