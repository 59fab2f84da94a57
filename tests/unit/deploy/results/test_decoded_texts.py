import csv
import dataclasses
import json
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from pyarrow import parquet

from common.errors import SettingsError, TaskError, ValueRangeError
from common.mechanisms.registry import rappor_of
from common.messages.estimate import BitTable
from deploy.results.decoded_texts import (
    MOST_CANDIDATES,
    columns_of_decoded,
    decode_candidates,
    decoded_as_json,
    of_decoded,
    read_candidates,
)
from deploy.results.histogram_table import write_csv, write_parquet
from deploy.terminal.json_output import dumps
from tests.support.kind_results import CANDIDATES, N_USERS, bit_table, kind_collected
from tests.support.kind_tasks import kind_task

_COLUMNS: Final = (
    *("text", "share", "standard_error", "interval_low", "interval_high"),
    *("p_value", "detected"),
)
_TASK = kind_collected("string").task
_DECODED = decode_candidates(_TASK, bit_table(_TASK), CANDIDATES)


def _read(tmp_path: Path, raw: bytes) -> tuple[str, ...]:
    (tmp_path / "candidates.txt").write_bytes(raw)
    return read_candidates(tmp_path / "candidates.txt")


@pytest.mark.parametrize(
    ("raw", "texts"),
    [
        (b"Ohio\nUtah\n", ("Ohio", "Utah")),
        (b"Ohio\nUtah", ("Ohio", "Utah")),
        (b"\n\nOhio\n\nUtah\n\n", ("Ohio", "Utah")),
        (b"Ohio\r\n\r\nUtah\r\n", ("Ohio", "Utah")),
        (b" Ohio \nOhio\n", (" Ohio ", "Ohio")),
        ("Köln\n東京\n".encode(), ("Köln", "東京")),
        ("Ko\u0308ln\n".encode(), ("Köln",)),
        (b"\xef\xbb\xbfOhio\nUtah\n", ("Ohio", "Utah")),
        ("a\u2028b\x0bc\n".encode(), ("a\u2028b\x0bc",)),
    ],
)
def test_a_candidate_is_a_line(tmp_path: Path, raw: bytes, texts: tuple[str, ...]) -> None:
    """
    Empty lines are left out, and a byte order mark; blanks count, as they do on the device.

    An ö is an ö, however it is written.
    """
    assert texts == _read(tmp_path, raw)


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (b"", "names 0 candidates"),
        (b"\n\r\n\n", "names 0 candidates"),
        (b"Ohio\nUtah\nOhio\nOhio\n", "names 2 candidates again"),
        (b"Ohio\r\nOhio\n", "names 1 candidates again"),
        ("Köln\nKo\u0308ln\n".encode(), "names 1 candidates again"),
        (b"Ohio\n\xff\xfe\n", "is no text in UTF-8"),
        (b"\n".join(b"%d" % number for number in range(MOST_CANDIDATES + 1)), "names 100001"),
        (b"x" * (16 * 1024 * 1024 + 1), "at most 16777216 are read"),
    ],
)
def test_a_file_that_breaks_a_rule_is_refused(tmp_path: Path, raw: bytes, rule: str) -> None:
    """With its name and the rule."""
    with pytest.raises(SettingsError, match=f"candidates.txt.*{rule}"):
        _read(tmp_path, raw)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """With the system's reason."""
    with pytest.raises(SettingsError, match=r"none.txt cannot be read: No such file"):
        read_candidates(tmp_path / "none.txt")


def test_who_is_held_is_detected_and_who_is_not_has_a_small_share() -> None:
    """
    Shares within seven of their errors of three quarters, one quarter and nothing.

    Seed 7 of the bits; fails by chance over seeds with probability below 1e-9, since each share is
    a sum over thousands of bits; the two that are held are some twenty errors from 0.
    """
    errors = _DECODED.standard_errors / N_USERS

    assert [True, True] == _DECODED.detected[:2].tolist()
    assert (np.abs(_DECODED.shares - [0.75, 0.25, 0.0]) <= 7 * errors).all()


@pytest.mark.parametrize(
    ("candidates", "error", "rule"),
    [
        (("x" * 65,), ValueRangeError, "at most 64 bytes"),
        ((), TaskError, "candidate"),
    ],
)
def test_candidates_that_no_device_sends_are_refused(
    candidates: tuple[str, ...], error: type[Exception], rule: str
) -> None:
    """A text that is too long; and nothing at all."""
    with pytest.raises(error, match=rule):
        decode_candidates(_TASK, bit_table(_TASK), candidates)


def test_a_task_for_numbers_has_nothing_to_decode() -> None:
    """It says which kind its mechanism is not for."""
    with pytest.raises(TaskError, match="is not for texts"):
        decode_candidates(kind_task("duchi"), bit_table(_TASK), CANDIDATES)


def test_a_table_has_the_largest_shares_first() -> None:
    """In a demo those that are largest in truth."""
    estimated = of_decoded(_DECODED, most=2)
    known = of_decoded(_DECODED, most=2, truth=np.array([0.1, 0.2, 0.7]))

    assert ["Ohio", "Utah"] == [line.name for line in estimated.lines]
    assert ["Alberta", "Utah"] == [line.name for line in known.lines]
    assert [0.7, 0.2] == [line.truth for line in known.lines]
    assert 3 == estimated.size


def test_a_table_tells_what_was_detected_and_what_is_unexplained() -> None:
    """In its notes, and yes or no a line."""
    table = of_decoded(_DECODED, most=3)

    assert f"{int(_DECODED.detected.sum())} of 3 candidates were detected" in table.notes[0]
    assert "Unexplained" in table.notes[1]
    assert "yes" == table.lines[0].more[1]


def test_what_is_unexplained_has_the_interval_that_shares_have() -> None:
    """An error of a twentieth of the users reaches 1.96 times as far to either side."""
    unsure = dataclasses.replace(
        _DECODED, unexplained=0.0625 * N_USERS, unexplained_error=0.05 * N_USERS
    )

    assert (
        "Unexplained: an estimated 6.25 % (95 % interval -3.55 % … 16.05 %) of the users hold a "
        "text that is no candidate."
    ) == of_decoded(unsure, most=3).notes[1]


def test_shares_of_json_are_in_the_order_of_the_candidates() -> None:
    """Errors are of shares, not of counts."""
    fields = decoded_as_json(_DECODED)

    assert list(CANDIDATES) == fields["candidates"]
    assert _DECODED.shares.tolist() == fields["shares"]
    assert (_DECODED.standard_errors / N_USERS).tolist() == fields["standard_errors"]
    assert fields["explained"] + fields["unexplained"] == pytest.approx(1)


def test_a_candidate_that_nothing_tells_apart_is_json_too() -> None:
    """Its error is infinite, which JSON has no number for."""
    blind = dataclasses.replace(_DECODED, standard_errors=np.array([1.0, np.inf, 1.0]))
    fields = json.loads(dumps(decoded_as_json(blind)))

    assert "inf" == fields["standard_errors"][1]


@pytest.mark.parametrize("candidates", [("a", "b", "c"), ("a", "b")])
def test_of_all_labels_nothing_is_unexplained(candidates: tuple[str, ...]) -> None:
    """Neither in words nor for programs; of some of them it is."""
    task = kind_task("rappor", labels=("a", "b", "c"), texts=None)
    rappor = rappor_of(task)
    cells = rappor.sample_cells(np.array([60, 30, 10]), task.labels, np.random.default_rng(1))
    table = BitTable(cohort_sizes=cells[:1], bit_counts=cells[1:].reshape(1, 3))
    decoded = decode_candidates(task, table, candidates)
    said, fields = of_decoded(decoded, most=3).notes[1], decoded_as_json(decoded)

    every = len(candidates) == 3
    assert every == ("what shares leave of 1 is noise" in said)
    assert every == ("Unexplained" not in said)
    for name in ("explained", "unexplained", "unexplained_standard_error"):
        assert every == (name not in fields)


def test_a_file_holds_every_figure_of_each_candidate(tmp_path: Path) -> None:
    """In the order of the candidates, in full precision; a text is no formula in CSV."""
    decoded = dataclasses.replace(_DECODED, candidates=("=1+1", "Utah", "Alberta"))
    columns = columns_of_decoded(decoded)
    write_csv(tmp_path / "decoded.csv", columns)
    write_parquet(tmp_path / "decoded.parquet", kind_collected("string").result, columns)
    with (tmp_path / "decoded.csv").open(encoding="utf-8", newline="") as file:
        heading, *rows = csv.reader(file)
    table = parquet.read_table(tmp_path / "decoded.parquet")

    errors = decoded.standard_errors / N_USERS
    assert list(_COLUMNS) == heading == table.column_names
    assert ["'=1+1", "Utah", "Alberta"] == [row[0] for row in rows]
    assert decoded.shares.tolist() == [float(row[1]) for row in rows]
    assert [str(found) for found in decoded.detected] == [row[6] for row in rows]
    assert list(decoded.candidates) == table["text"].to_pylist()
    assert decoded.detected.tolist() == table["detected"].to_pylist()
    assert decoded.p_values.tolist() == table["p_value"].to_pylist()
    assert errors.tolist() == table["standard_error"].to_pylist()
    low, high = (np.array(table[name]) for name in ("interval_low", "interval_high"))
    assert (high + low) / 2 == pytest.approx(decoded.shares)
    assert (high - low) / 2 == pytest.approx(1.959964 * errors)
    assert str(N_USERS).encode() == table.schema.metadata[b"n_users"]
