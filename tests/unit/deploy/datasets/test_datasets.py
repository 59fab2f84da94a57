import gzip
import importlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shuffledp.common.errors import TaskError
from shuffledp.common.task.specs import MAX_DOMAIN_SIZE
from shuffledp.deploy.datasets.names import COVID_US_STATES, IPUMS_1940_CITY
from shuffledp.deploy.datasets.sources import Dataset, dataset, load
from tests.support.tables import table

_PYARROW = importlib.util.find_spec("pyarrow") is not None
_FIVE = Dataset(name="five", title="", labels=(), counts=np.array([3, 0, 1, 1, 0]))


def _write(folder: Path, text: str) -> str:
    path = folder / "mine.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("name", "items", "people", "largest"),
    [
        (IPUMS_1940_CITY, 915, 602_156, ("4610", 74_321)),
        ("kosarak_prefix", 17_034, 36_682, ("6", 5727)),
        ("kosarak_reconstructed", 41_270, 990_002, ("6", 155_784)),
        (COVID_US_STATES, 58, 31_670_031, ("California", 3_718_210)),
    ],
)
def test_a_shipped_histogram_is_complete(
    name: str, items: int, people: int, largest: tuple[str, int]
) -> None:
    """Items, people and largest item are as published; drawing all people returns it."""
    found = load(name)
    top = int(found.counts.argmax())
    everybody = found.sample_counts(people, np.random.default_rng(1))

    assert (items, people) == (found.domain_size, found.n_users)
    assert largest == (found.labels[top], int(found.counts[top]))
    assert ("RECONSTRUCTED, not real" in found.title) == ("reconstructed" in name)
    np.testing.assert_array_equal(everybody, found.counts)


def test_people_are_drawn_without_replacement() -> None:
    """Five people, three of whom share item 0, allow draws of one to five."""
    rng = np.random.default_rng(6)
    draws = np.array([_FIVE.sample_counts(2, rng) for _ in range(100)])

    assert (draws.sum(axis=1) == 2).all()
    assert (draws <= _FIVE.counts).all()
    assert sorted(_FIVE.draw(5, rng).tolist()) == [0, 0, 0, 2, 3]
    for n_users in (-1, 0, 6):
        with pytest.raises(TaskError, match=rf"users is {n_users}; for five it must be 1 to 5"):
            _FIVE.sample_counts(n_users, rng)


def test_synthetic_data_is_apportioned_by_largest_remainders() -> None:
    """Of twelve people 6.55, 3.27 and 2.18 are due to three items: the last goes to the first."""
    found, usual = dataset("zipf:3,1", 12), dataset("zipf:1000")

    assert ([7, 3, 2], "zipf:3,1", ()) == (found.counts.tolist(), found.name, found.labels)
    assert (1_000_000, "zipf:1000,1.1") == (usual.n_users, usual.name)
    assert [3, 3, 2, 2] == dataset("uniform:4", 10).counts.tolist()


@given(size=st.integers(2, 500), exponent=st.floats(0, 20), n_users=st.integers(1, 10**9 - 1))
def test_synthetic_counts_fall_and_sum_to_the_number_of_people(
    size: int, exponent: float, n_users: int
) -> None:
    """This holds for any size, exponent and number."""
    counts = dataset(f"zipf:{size},{exponent}", n_users).counts

    assert n_users == int(counts.sum())
    assert (np.diff(counts) <= 0).all()
    assert counts.min() >= 0


def test_a_file_has_a_row_per_person_or_per_item(tmp_path: Path) -> None:
    """People's numbers are sorted by size; items keep their order, also without people."""
    path = tmp_path / "mine.CSV.gz"
    path.write_bytes(gzip.compress('\ufeffvalue,count\r\nz,2\r\n"a, b",0\r\n'.encode()))
    people = dataset(_write(tmp_path, "who,value\na,10\nb,9\n\nc,10\n"))
    items = dataset(str(path), 2)

    assert (("9", "10"), [1, 2]) == (people.labels, people.counts.tolist())
    assert (("z", "a, b"), [2, 0]) == (items.labels, items.counts.tolist())
    assert ("b", "é") == dataset(_write(tmp_path, "value\né\nb\né\n")).labels


@table(
    ("name", "content", "message"),
    [
        ("", b"", "the first line of mine.csv is empty; it must name the columns"),
        ("", b"\nvalue\na\n", "the first line of mine.csv is empty"),
        ("", b"value\n", "a header and no row"),
        ("", b"item,count\na,1\n", "mine.csv has no .* value; its first line names item, count:"),
        ("", b"a;count\na;1\n", "names a;count; commas must separate columns: simulate reads"),
        ("", b"a,7.5\nb,8\n", "column value; its first line must name its columns, and has numb"),
        ("", b"value,value\na,1\n", "has 2 columns value; one is allowed"),
        ("", b"value,count\na,1.5\n", "the count of row 1 of mine.csv must be a whole"),
        ("", b"value,count\na,1\nb,1e9\n", "row 2 .* must be a whole number from 0 to 9{9}"),
        ("", b"value,count\na,-1\n", "row 1 .* must be a whole number from 0 to"),
        ("", b"value,count\na,1\nb\n", "row 2 of mine.csv has 1 values and the header has 2"),
        ("", b"value\n1\n2,5\n", "row 2 of mine.csv has 2 values .* quote values"),
        ("", b"value\n\n \n''\n"[:-3], "a header and no row with a value"),
        ("", b"value,count\na,1\nb,2\na,3\n", "row 3 of mine.csv repeats an earlier"),
        ("", b"value,count\na,0\nb,0\n", "people of mine.csv is 0; it must lie between 1 and 999"),
        ("", b'value\nb\n"a\n', "row 2 of mine.csv is not valid CSV: unexpected end of data"),
        ("", b'value\nb\n"a"b\n', "row 2 of mine.csv is not valid CSV"),
        ("", b"value\n" + b"x" * 140_000, "row 1 of mine.csv is not valid CSV: field larger"),
        (
            "latin.csv",
            "value\nKoeln\nK\u00f6ln\n".encode("latin-1"),
            "row 2 of latin.csv is not UTF",
        ),
        ("sixteen.csv", "value\na\n".encode("utf-16"), "the header of sixteen.csv is not UTF-8"),
        ("header.csv", "value,gr\u00f6\u00dfe\n".encode("latin-1"), "header of header.csv is not"),
        ("missing.csv", None, "does not exist"),
        ("plain.csv.gz", b"value\na\nb\n", "cannot be read"),
        ("cut.csv.gz", gzip.compress(b"value\n" + b"a\nb\n" * 1000)[:-12], "cannot be read"),
        # A kind of block that there is not.
        ("damaged.csv.gz", gzip.compress(b"")[:10] + b"\x07", "cannot be read"),
        # 64 MB in 64 kB: no more than a megabyte of it is read.
        ("bomb.csv.gz", gzip.compress(b"value\n" + b"x" * (64 << 20)), "is too long"),
    ],
)
def test_a_file_that_breaks_a_rule_is_refused(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    """The message has its name, the rule and the number, never its content."""
    path = tmp_path / (name or "mine.csv")
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TaskError, match=message) as refused:
        dataset(str(path))
    assert path.name in str(refused.value)


@table(
    ("text", "message"),
    [
        ("kosarak", "kosarak is not a data set; it must be ipums1940_city"),
        ("zipf:9,x", "zipf needs numbers"),
        ("zipf:1_0", "zipf needs numbers"),
        ("zipf:9,\N{ARABIC-INDIC DIGIT THREE}", "zipf needs numbers"),
        ("zipf:9,1,2", "has 3 numbers"),
        ("uniform:9,1", "has 2 numbers"),
        ("zipf:1", "items of a Zipf distribution is 1"),
        (f"uniform:{MAX_DOMAIN_SIZE + 1}", "items of a uniform distribution is 16777217"),
        ("zipf:9,-1", "exponent is -1.0; it must lie between 0 and 20"),
    ],
)
def test_an_unknown_data_set_is_refused(text: str, message: str) -> None:
    """The message names the known ones."""
    with pytest.raises(TaskError, match=message):
        dataset(text)


@pytest.mark.skipif(not _PYARROW, reason="the extra research is not installed")
def test_parquet_is_read_like_csv(tmp_path: Path) -> None:
    """Rows are people or items, and broken rules are refused."""
    arrow, parquet = map(importlib.import_module, ("pyarrow", "pyarrow.parquet"))
    path = tmp_path / "mine.parquet"

    def saved(**columns: list[Any]) -> str:
        binary = any(isinstance(field, bytes) for field in columns.get("value", ()))
        arrays = {name: arrow.array(cells) for name, cells in columns.items() if not binary}
        if binary:
            arrays = {"value": arrow.array(columns["value"], arrow.binary())}
        parquet.write_table(arrow.table(arrays), path)
        return str(path)

    people = dataset(saved(value=[10, 9, 10]))
    items = dataset(saved(value=["z", "a"], count=[2, 0], other=[1.0, 2.0]))
    assert (("9", "10"), [1, 2]) == (people.labels, people.counts.tolist())
    assert (("z", "a"), [2, 0]) == (items.labels, items.counts.tolist())
    for columns, message in (
        ({"count": [1]}, "no column value; its first line names count:"),
        (
            {"value": ["z", "a"], "count": [-2, 0]},
            r"the count of row 1 of mine\.parquet must be a whole",
        ),
        ({"value": [None, None]}, "a header and no row with a value"),
        ({"value": [[1.0], [2.0]]}, r"the type list<.*>; it must hold texts, numbers"),
        ({"value": ["z", b"K\xf6ln"]}, r"row 2 of mine\.parquet is not UTF-8 text"),
    ):
        with pytest.raises(TaskError, match=message):
            dataset(saved(**columns))
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(TaskError, match="not a valid Parquet file"):
        dataset(str(path))
