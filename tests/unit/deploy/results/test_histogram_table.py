"""A result's rows as files and as a table."""

import csv
import dataclasses
import io
import re
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from rich.console import Console

from common.errors import SettingsError
from common.task_digest import TaskDigest
from deploy.pages.histogram_data import histogram_data
from deploy.results.estimate_columns import COLUMNS, columns_of
from deploy.results.histogram_table import TOO_FEW, show, write_csv, write_parquet
from tests.support.result_pages import collected
from tests.support.results import result

_RESULT = result(TaskDigest(b"\xd1" * 32))
_LABELS = ("a,b", '"q"\n', "ü")


def test_a_csv_file_holds_every_value_exactly(tmp_path: Path) -> None:
    """Labels with commas, quotes and line breaks too."""
    write_csv(tmp_path / "result.csv", columns_of(_RESULT.histogram, _LABELS))
    with (tmp_path / "result.csv").open(encoding="utf-8", newline="") as file:
        heading, *found = csv.reader(file)

    assert COLUMNS == tuple(heading)
    assert list(_LABELS) == [row[1] for row in found]
    assert _RESULT.histogram.frequencies.tolist() == [float(row[2]) for row in found]


def test_a_parquet_file_says_of_what_task_it_is(tmp_path: Path) -> None:
    """Beside every value."""
    write_parquet(tmp_path / "result.parquet", _RESULT, columns_of(_RESULT.histogram, ()))
    table = parquet.read_table(tmp_path / "result.parquet")

    assert list(COLUMNS) == table.column_names
    assert ["0", "1", "2"] == table["label"].to_pylist()
    assert _RESULT.histogram.refined.tolist() == table["refined"].to_pylist()
    assert (b"d1" * 32, b"10") == (
        table.schema.metadata[b"task_digest"],
        table.schema.metadata[b"n_users"],
    )


@pytest.mark.parametrize("write", [write_csv, write_parquet])
def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path: Path, write: object) -> None:
    """Its name and why."""
    columns = columns_of(_RESULT.histogram, ())
    arguments = (_RESULT, columns) if write is write_parquet else (columns,)
    with pytest.raises(SettingsError, match="cannot be written"):
        write(tmp_path / "no" / "file", *arguments)  # type: ignore[operator]  # one of two functions


def test_intervals_are_of_the_unrefined_shares() -> None:
    """1.96 standard errors on either side."""
    columns = columns_of(_RESULT.histogram, ())
    item, label, share, error, low, high, refined = (column[2] for column in columns.values())

    assert (2, "2", 0.6, 0.1, 0.55) == (item, label, share, error, refined)
    assert (low, high) == (pytest.approx(0.6 - 0.19600, abs=1e-5), pytest.approx(0.79600, abs=1e-5))


def test_a_table_shows_the_largest_and_no_markup() -> None:
    """A label is text, whatever it looks like."""
    console = Console(file=io.StringIO(), width=100)
    show(_RESULT, ("[red]a", "b", "c"), console, most=2)
    printed = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO

    assert "The 2 largest of 3 values by estimate" in printed
    assert printed.index(" c ") < printed.index("[red]a")
    assert " b " not in printed


def test_a_demo_s_table_says_that_it_is_sorted_by_truth() -> None:
    """The page of the same result is sorted by estimate."""
    console = Console(file=io.StringIO(), width=100)
    show(_RESULT, (), console, most=2, truth=np.array([0.5, 0.3, 0.2]))

    assert "The 2 largest of 3 values by truth" in console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO


def test_few_users_are_said_to_be_too_few() -> None:
    """Before the table; and not where a value is distinguishable from none."""
    found = collected(size=9).result
    nothing = dataclasses.replace(
        found, estimate=dataclasses.replace(found.histogram, standard_errors=np.ones(9))
    )
    said = []
    for each in (found, nothing):
        console = Console(file=io.StringIO(), width=100)
        show(each, (), console, most=2)
        said.append(TOO_FEW in console.file.getvalue())  # type: ignore[attr-defined]  # a StringIO

    assert [False, True] == said


@pytest.mark.parametrize(
    ("label", "written"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("+1", "'+1"),
        ("-1+1", "'-1+1"),
        ("@x", "'@x"),
        ("\tx", "'\tx"),
        ("-5", "-5"),
        ("-5.25", "-5.25"),
        ("5=5", "5=5"),
        ("x;=cmd", "x;'=cmd"),
        ("x,@y", "x,'@y"),
        ("x\t+1;-2", "x\t'+1;'-2"),
        ("x\r\n=1", "x\r\n'=1"),
        ("\n=1", "\n'=1"),
        ("\t=1", "'\t'=1"),
        ('x";"=1', 'x";"\'=1'),
        ("a; b-c", "a; b-c"),
    ],
)
def test_no_label_is_a_formula_to_a_spreadsheet(tmp_path: Path, label: str, written: str) -> None:
    """The rule of the page's own CSV: an apostrophe before it; numbers are none."""
    write_csv(tmp_path / "result.csv", columns_of(_RESULT.histogram, (label, "b", "c")))
    with (tmp_path / "result.csv").open(encoding="utf-8", newline="") as file:
        _, first, *_ = csv.reader(file)

    assert written == first[1]


def test_a_line_that_is_split_elsewhere_begins_no_formula(tmp_path: Path) -> None:
    """Where the language writes 0,5 spreadsheets split at semicolons, whatever is in quotes."""
    labels = ("x;=1", "y\t@z", "v\n-w")
    write_csv(tmp_path / "result.csv", columns_of(_RESULT.histogram, labels))
    text = (tmp_path / "result.csv").read_text(encoding="utf-8")

    assert not [cell for cell in re.split(r"[;\t\r\n]", text) if re.match("[=+@-]", cell)]
    assert '0,"x;\'=1",' in text


def test_the_page_s_csv_has_the_same_headings() -> None:
    """Whoever reads one reads the other."""
    assert COLUMNS == histogram_data(_RESULT.histogram, n_users=10)["columns"]
