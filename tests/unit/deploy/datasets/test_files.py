"""The rules of docs/researchers/datasets.md, each in CSV and in Parquet."""

import csv
import datetime
import decimal
import gzip
import os
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shuffledp.common.errors import TaskError
from shuffledp.common.protocols import Kind
from shuffledp.deploy.datasets.sample_people import numbers_of, people_of
from shuffledp.deploy.datasets.sources import Dataset, dataset
from shuffledp.lab.simulate.populations import Population
from shuffledp.user_agent.contribution import checked_text, open_text
from tests.support.tables import table

_HUGE: Final = "0e" + 20 * "9"
"""A float, but no decimal number."""
_NO_NUMBERS: Final = ("-1e300", "5", _HUGE, "1_0", "1e400", "inf", "nan")
"""Two numbers, and five texts that are none."""
_FORMATS: Final = (".csv", ".csv.gz", ".parquet")


def _read(folder: Path, form: str, cells: Sequence[Any], **options: Any) -> Dataset:
    """Write cells, None for null, as a column of texts in a file of this format, and read it."""
    path = folder / f"mine{form}"
    if form == ".parquet":
        pq.write_table(pa.table({"id": range(len(cells)), "value": pa.array(cells)}), path)
        return dataset(str(path), **options)
    with (gzip.open if form == ".csv.gz" else open)(path, "wt", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["id", "value"])
        writer.writerows(enumerate(cells))
    return dataset(str(path), **options)


@table("form", _FORMATS)
@table(
    ("cells", "labels", "counts_and_missing"),
    [
        (["b", None, "a", "", "b", "  ", "\u00a0"], ("a", "b"), ([1, 2], 4)),
        (
            ["10", "9", "-1", "1e1", "-0.5", "2"],
            ("-1", "-0.5", "2", "9", "10", "1e1"),
            ([1] * 6, 0),
        ),
        (["b", "10", "9", "B"], ("9", "10", "B", "b"), ([1] * 4, 0)),
        (["007", "7", "07.0"], ("007", "07.0", "7"), ([1] * 3, 0)),
        (["1e400", "inf", "nan", _HUGE, "5", "1_0", "-1e300"], _NO_NUMBERS, ([1] * 7, 0)),
        (
            [str(2**63), str(2**63 + 1), "9" * 30],
            (str(2**63), str(2**63 + 1), "9" * 30),
            ([1] * 3, 0),
        ),
        (
            ["e\u0301", "\u00e9", " \u00e9 ", "\u00e9\u200b"],
            ("\u00e9", "\u00e9\u200b"),
            ([3, 1], 0),
        ),
        (
            ["a, b", 'say "x"', "two\nlines", "NA"],
            ("NA", "a, b", 'say "x"', "two\nlines"),
            ([1] * 4, 0),
        ),
    ],
)
def test_values_are_read_by_the_same_rules_from_every_format(
    tmp_path: Path,
    form: str,
    cells: list[str | None],
    labels: tuple[str, ...],
    counts_and_missing: tuple[list[int], int],
) -> None:
    """Values are stripped, in normal form C, in numeric and then alphabetical order."""
    found = _read(tmp_path, form, cells)

    plain = [unicodedata.normalize("NFC", cell or "").strip() for cell in cells]
    assert labels == found.labels
    assert counts_and_missing == (found.counts.tolist(), found.missing)
    assert found.rows is not None
    assert [plain.index(label) + 1 for label in labels] == found.rows.tolist()


def test_a_word_for_a_missing_value_is_pointed_out(tmp_path: Path) -> None:
    """It counts as a value, since NA may be a country."""
    found = _read(tmp_path, ".csv", ["NA", "DE", "null", "", "NA"])

    assert ("DE", "NA", "null") == found.labels
    assert [
        "NA counts as a value; leave the cell empty if it is none.",
        "null counts as a value; leave the cell empty if it is none.",
        "People of mine.csv without a value, who are left out: 1.",
    ] == found.remarks


@table(
    ("array", "labels"),
    [
        (pa.array([b"b", b"a", b"K\xc3\xb6ln"]), ("K\u00f6ln", "a", "b")),
        (pa.array([b"abcd"], pa.binary(4)), ("abcd",)),
        (pa.array([1, 20, 3, None], pa.timestamp("ns")), None),
        (pa.array([datetime.date(2027, 1, 31)]), ("2027-01-31",)),
        (pa.array([True, False, None]), ("false", "true")),
        (pa.array(["b", "a", None, "b"]).dictionary_encode(), ("a", "b")),
        (pa.array([10, 9, None]).dictionary_encode(), ("9", "10")),
        (pa.array([decimal.Decimal("12.50"), decimal.Decimal("-3.00")]), ("-3.00", "12.50")),
        (pa.array([10.0, 9.0, 0.5, None, 1e16]), ("0.5", "9.0", "10.0", "1e+16")),
        (pa.array([-0.0, 0.0]), ("0.0",)),
        (pa.array([-0.0, 2.0]).dictionary_encode(), ("0.0", "2.0")),
        (pa.array([0.1, 10.0, None], pa.float32()), ("0.1", "10.0")),
        (pa.array([2**64 - 1, 7], pa.uint64()), ("7", str(2**64 - 1))),
        (pa.array(["a", "b"], pa.large_string()), ("a", "b")),
        (pa.array(["a", "b"], pa.string_view()), ("a", "b")),
    ],
)
def test_a_column_of_another_type_is_read_as_text(
    tmp_path: Path, array: pa.Array, labels: tuple[str, ...] | None
) -> None:
    """As Python writes floats and Arrow all else; nulls are missing."""
    path = tmp_path / "mine.parquet"
    pq.write_table(pa.table({"value": array}), path)
    found = dataset(str(path))

    expected = labels or tuple(f"1970-01-01 00:00:00.{n:09}" for n in (1, 3, 20))
    assert (expected, array.null_count) == (found.labels, found.missing)


@pytest.mark.parametrize("numbers", [[10.0, -0.0, 0.0, 2.5, 1e16, 1e-7, None], [7, -3, None]])
def test_a_column_of_numbers_has_the_same_labels_as_its_csv(
    tmp_path: Path, numbers: list[float | None]
) -> None:
    """Written by Python; a zero has no sign in either."""
    written = _read(tmp_path, ".csv", numbers)
    found = _read(tmp_path, ".parquet", numbers)

    assert written.labels == found.labels
    assert written.counts.tolist() == found.counts.tolist()
    assert not {"-0.0", "-0"} & {*found.labels}


@pytest.mark.parametrize("ending", _FORMATS)
def test_what_is_no_file_is_refused(tmp_path: Path, ending: str) -> None:
    """A folder, a pipe without a writer, or nothing; a name that no system accepts."""
    folder, pipe = tmp_path / f"folder{ending}", tmp_path / f"pipe{ending}"
    folder.mkdir()
    os.mkfifo(pipe)
    for path in (folder, pipe, tmp_path / f"none{ending}"):
        with pytest.raises(TaskError, match=f"{path.name} does not exist, or is not an ordinary"):
            dataset(str(path))
    with pytest.raises(TaskError, match="cannot be read: File name too long"):
        dataset(str(tmp_path / f"{'x' * 300}{ending}"))


def test_a_time_that_arrow_cannot_write_is_refused(tmp_path: Path) -> None:
    """Its text would be the same sentence for many times."""
    path = tmp_path / "mine.parquet"
    pq.write_table(pa.table({"value": pa.array([1, 2**62], pa.timestamp("us"))}), path)
    with pytest.raises(TaskError, match=r"timestamp.* has a time that cannot be written"):
        dataset(str(path))


def test_a_count_may_be_a_whole_float(tmp_path: Path) -> None:
    """As columns with nulls become."""
    path = tmp_path / "mine.csv"
    path.write_text("value,count\na,3.0\nb,0\n")

    assert [3, 0] == dataset(str(path)).counts.tolist()


def test_rows_of_items_keep_their_order_and_may_have_no_people(tmp_path: Path) -> None:
    """People without a value are counted; a byte-order mark and other line ends are no text."""
    path = tmp_path / "mine.csv"
    path.write_bytes('\ufeff value ,count\r\nz,2\r\n\r\n,5\r\n"",1\r\nb,0\r\n'.encode())
    found = dataset(str(path))

    assert (("z", "b"), [2, 0], 6) == (found.labels, found.counts.tolist(), found.missing)
    assert ["People of mine.csv without a value, who are left out: 6."] == found.remarks
    path.write_bytes(b"value,count\nz,2\n z,1\n")
    with pytest.raises(TaskError, match=r"row 2 of mine\.csv repeats an earlier row's value"):
        dataset(str(path))


@table("form", _FORMATS)
@table(
    ("kind", "cells", "sentence"),
    [
        ("mean", ["1", "x", "2", "x"], "row 2 .* a value is a number.* break a rule: 2"),
        (
            "mean",
            ["1", "2", "1e300"],
            "row 3 .* between -999,999,999,999.9999 and 999,999,999,999.9999",
        ),
        ("mean", ["1", "1e12"], "row 2 .* between -999,999,999,999.9999 and 999,999,999,999.9999"),
        ("mean", ["1", "nan", "inf"], "row 2 .* a number must lie between .* a rule: 2"),
        ("ordered", ["5", "1", "-inf"], "row 3 .* a number must lie between"),
        ("ordered", ["5", "NA"], "row 2 .* a value is a number"),
        ("vector", ["1, 2", "1,2,3", "4,5"], "row 2 .* as many numbers as the first, 2"),
        ("vector", ["4,5", "3", "1,2,3"], "row 2 .* as the first, 2, .* a rule: 2"),
        ("vector", ["1, 2", "1,inf"], "row 2 .* a number must lie between"),
        ("key-value", ["0:1", "a:1"], "row 2 .* a key must be a number from 0 to 65535"),
        ("key-value", ["0:1", "65536:1"], "row 2 .* a key must lie between 0 and 65535"),
        ("key-value", ["0:1", "1:nan"], "row 2 .* a number must lie between"),
        ("string", ["a", "x" * 65, "b", "y" * 65], "row 2 .* at most 64 bytes .* a rule: 2"),
        ("open", ["a", "x" * 65], "row 2 .* at most 64 bytes"),
        ("open", ["a", "b\0"], "row 2 .* zero character"),
        ("categorical", ["a", "x" * 257], "row 2 .* 257 characters; an item may have at most 256"),
        ("categorical", ["a", "a "], "the number of different values in mine.* is 1; it must"),
    ],
)
def test_a_value_that_devices_refuse_is_named_by_its_row(
    tmp_path: Path, form: str, kind: Kind, cells: list[str], sentence: str
) -> None:
    """With the rule, and the number of people whose values break one."""
    data = _read(tmp_path, form, cells)
    read: dict[Kind, Callable[[], object]] = {
        "categorical": lambda: Population.of_items(data, 2),
        "ordered": lambda: numbers_of(data, 4),
    }
    with pytest.raises(TaskError, match=sentence):
        read.get(kind, lambda: people_of(data, kind, None, 1))()


@pytest.mark.parametrize("form", _FORMATS)
def test_an_empty_cell_is_a_value_where_that_is_asked(tmp_path: Path, form: str) -> None:
    """A person without keys, or an empty text."""
    cells = ["0:1", None, "", "1:0.5"]
    pairs = people_of(_read(tmp_path, form, cells, empty=True), "key-value", None, 1)
    texts = people_of(_read(tmp_path, form, ["a", None], empty=True), "string", None, 1)

    assert [0.25, 0.25] == pairs.truth.tolist()
    assert {"": 0.5, "a": 0.5} == dict(zip(texts.candidates, texts.truth.tolist(), strict=True))


@table(
    ("cells", "span", "expected"),
    [
        (["7", "7.0", "7"], None, (0.0, 14.0)),
        (["0", "-0.0"], None, (-1.0, 1.0)),
        (["-0.0", "5"], None, (0.0, 5.0)),
        (["-3"], (-5.0, 5.0), (-5.0, 5.0)),
        (["1e-7", "2e-7"], None, (1e-7, 2e-7)),
        (["5e-324", "1e-320"], None, (-1.0, 1.0)),
        (["9e11"], None, (0.0, np.nextafter(1e12, 0))),
        (["1", "9"], (0.0, 8.0), None),
    ],
)
def test_a_range_is_that_of_the_numbers_or_given(
    tmp_path: Path,
    cells: list[str],
    span: tuple[float, float] | None,
    expected: tuple[float, float] | None,
) -> None:
    """Around a constant column it is wider; -0.0 is 0; a number outside a given one is named."""
    data = _read(tmp_path, ".csv", cells)
    if expected is None:
        with pytest.raises(TaskError, match=r"row 2 .* a number must lie between 0.0 and 8.0"):
            people_of(data, "mean", None, 1, span)
        return
    numbers = people_of(data, "mean", None, 1, span).draft["numbers"]
    _, _, edges = numbers_of(data, 4, span)

    assert expected == (numbers.low, numbers.high) == (edges.low, edges.high)
    assert {"0.0"} >= {str(end) for end in (numbers.low, edges.low) if end == 0}


@pytest.mark.parametrize("form", _FORMATS)
def test_texts_that_devices_send_alike_are_one(tmp_path: Path, form: str) -> None:
    """The truth of a simulation is that of the normal form, without spaces at the ends."""
    data = _read(tmp_path, form, ["e\u0301", "\u00e9", "x", " \u00e9\u00a0"])
    for kind in ("open", "string"):
        people = people_of(data, kind, None, 1)
        assert (("\u00e9", "x"), [0.75, 0.25]) == (people.candidates, people.truth.tolist())
    assert {"\u00e9"} == {read(" e\u0301\t", 64) for read in (checked_text, open_text)}


_PEOPLE: Final = "region,note,age\nnorth,x,9\n south ,x,10\nnorth,,10\n,x,9\nnorth,y,9\n"


def test_several_columns_are_the_attributes_of_people(tmp_path: Path) -> None:
    """A row needs a value in each; values of an attribute are sorted as numbers, then as texts."""
    path = tmp_path / "people.csv"
    path.write_text(_PEOPLE, encoding="utf-8")
    data = dataset(str(path), column="region,age")
    people = people_of(data, "table", None, 1)
    tables = people.draft["tables"]

    assert (1, 4) == (data.missing, data.n_users)
    assert ["north / 10", "north / 9", "north / 9", "south / 10"] == sorted(map(str, people.values))
    named = {each.name: each.labels for each in tables.attributes}
    assert {"region": ("north", "south"), "age": ("9", "10")} == named
    assert [0.5, 0.25, 0.0, 0.25] == people.truth.tolist()


def test_a_value_with_the_separator_is_no_attributes(tmp_path: Path) -> None:
    """The message names the row, and not the value."""
    path = tmp_path / "people.csv"
    path.write_text("region,age\nnorth / east,9\n", encoding="utf-8")

    with pytest.raises(TaskError, match=r"of people\.csv, column region,age: a value has 2"):
        people_of(dataset(str(path), column="region,age"), "table", None, 1)
    with pytest.raises(TaskError, match=r"no column size; its first line names region, age$"):
        dataset(str(path), column="region,size")
