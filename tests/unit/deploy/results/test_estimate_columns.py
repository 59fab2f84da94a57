"""Every kind of estimate as CSV and as Parquet."""

import csv
import dataclasses
from pathlib import Path
from typing import Final

import pytest
from pyarrow import parquet

from common.messages.estimate import KeyValues, Means
from common.protocols import Kind
from deploy.results.estimate_columns import columns_of, labels_of
from deploy.results.histogram_table import write_csv, write_parquet
from tests.support.kind_results import kind_collected
from tests.support.kind_tasks import OTHER_KINDS

_COLUMNS: Final[dict[Kind, tuple[str, ...]]] = {
    "string": ("cohort", "bit", "set", "reports"),
    "mean": (
        *("number", "label", "mean", "standard_error", "interval_low", "interval_high"),
        "shrunk",
    ),
    "vector": (
        *("number", "label", "mean", "standard_error", "interval_low", "interval_high"),
        "shrunk",
    ),
    "key-value": (
        *("key", "label", "share", "standard_error", "interval_low", "interval_high"),
        *("mean", "mean_standard_error", "mean_interval_low", "mean_interval_high"),
        *("mean_with_fakes", "error_with_fakes", "reports"),
    ),
}
_ROWS: Final[dict[Kind, int]] = {"string": 8 * 32, "mean": 1, "vector": 5, "key-value": 6}


def _csv(path: Path, kind: Kind, labels: tuple[str, ...] = ()) -> list[list[str]]:
    columns = columns_of(kind_collected(kind).result.estimate, labels)
    write_csv(path / "result.csv", columns)
    with (path / "result.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_csv_file_holds_every_figure_exactly(tmp_path: Path, kind: Kind) -> None:
    """A row a number, a key, or a bit of a cohort; in full precision."""
    columns = columns_of(kind_collected(kind).result.estimate, ())
    heading, *rows = _csv(tmp_path, kind)

    assert _COLUMNS[kind] == tuple(heading)
    assert _ROWS[kind] == len(rows)
    for place, name in enumerate(heading):
        assert list(columns[name]) == [
            row[place] if name == "label" else float(row[place]) for row in rows
        ]


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_parquet_file_holds_the_same(tmp_path: Path, kind: Kind) -> None:
    """With the task's digest in the metadata."""
    result = kind_collected(kind).result
    write_parquet(tmp_path / "result.parquet", result, columns_of(result.estimate, ()))
    table = parquet.read_table(tmp_path / "result.parquet")

    assert {
        name: list(column) for name, column in columns_of(result.estimate, ()).items()
    } == table.to_pydict()
    assert result.task_digest.hex().encode() == table.schema.metadata[b"task_digest"]


def test_a_later_iteration_of_pairs_has_no_columns_of_owners() -> None:
    """Nothing stands in for a share that nobody told."""
    found = kind_collected("key-value").result.estimate
    assert isinstance(found, KeyValues)
    columns = columns_of(dataclasses.replace(found, owners=None), ())

    assert ["key", "label", "mean_with_fakes", "error_with_fakes", "reports"] == list(columns)


def test_what_noise_reaches_around_a_biased_mean_is_called_no_interval(tmp_path: Path) -> None:
    """In the columns' names, and in the metadata for whoever renames them."""
    collected = kind_collected("vector").result
    assert isinstance(collected.estimate, Means)
    biased = dataclasses.replace(
        collected, estimate=dataclasses.replace(collected.estimate, unbiased=False)
    )
    for result, ends, told in (
        (collected, ["interval_low", "interval_high"], b"true"),
        (biased, ["noise_low", "noise_high"], b"false"),
    ):
        write_parquet(tmp_path / "result.parquet", result, columns_of(result.estimate, ()))
        table = parquet.read_table(tmp_path / "result.parquet")

        assert ends == table.column_names[4:6]
        assert told == table.schema.metadata[b"unbiased"]


def test_bits_are_beside_their_cohort_and_its_size(tmp_path: Path) -> None:
    """Row 32·j + i is bit i of cohort j."""
    estimate = kind_collected("string").result.estimate
    _, *rows = _csv(tmp_path, "string")
    cohort, bit, n_set, reports = map(int, rows[32 * 3 + 5])

    assert (3, 5) == (cohort, bit)
    assert (estimate.bit_counts[3, 5], estimate.cohort_sizes[3]) == (n_set, reports)  # type: ignore[union-attr]  # a BitTable


@pytest.mark.parametrize("kind", ["vector", "key-value"])
def test_a_label_of_another_kind_is_no_formula_either(tmp_path: Path, kind: Kind) -> None:
    """As of items."""
    labels = ("=1+1", "b", "c", "d", "e", "f")[: _ROWS[kind]]
    _, first, second, *_ = _csv(tmp_path, kind, labels)

    assert ("'=1+1", "b") == (first[1], second[1])


def test_numbers_stand_in_for_labels() -> None:
    """As texts, so that a column has one type."""
    assert ["0", "1"] == labels_of((), 2)
    assert ("x", "y") == labels_of(("x", "y"), 2)
