"""`shuffledp simulate`: options, the user's files, and output."""

import csv
import io
import re
from pathlib import Path
from typing import Final

import pytest

from shuffledp.common.errors import ShuffleDpError
from tests.support.command_line import run_command, shown, shown_json

_SMALL: Final = (
    *("--dataset", "uniform:12", "--users", "3000", "--repeat", "5", "--central-epsilon", "1.0"),
    *("--protocol", "murs", "--protocol", "sageo"),
)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_rows(tmp_path: Path) -> None:
    """Only the seconds differ; CSV, JSON and figure are written together."""
    picture, table = tmp_path / "picture", tmp_path / "rows.csv"
    first = shown_json("simulate", *_SMALL, "--csv", str(table), "--plot", str(picture))
    second = shown_json("simulate", *_SMALL)
    for row in [*first, *second]:
        row.pop("seconds")
    lines = list(csv.DictReader(io.StringIO(table.read_text())))

    assert first == second
    assert ["murs", "sageo"] == [row["protocol"] for row in first]
    assert all(row["mse_se"] > 0 for row in first)
    assert [str(row["mse"]) for row in first] == [line["mse"] for line in lines]
    assert picture.with_suffix(".png").stat().st_size > 0
    assert picture.with_suffix(".svg").stat().st_size > 0


def test_a_table_is_shown_without_json(tmp_path: Path) -> None:
    """The output has the data set, a row per protocol, skipped settings and each value's share."""
    text = shown(
        "simulate",
        *("--dataset", "zipf:2,1.5", "--users", "500", "--repeat", "1", "--protocol", "ddps"),
        *("--protocol", "aue", "--central-epsilon", "0.1", "--accounting", "published"),
        *("--csv", str(tmp_path / "all.csv")),
    )

    assert "Zipf with exponent 1.5" in text
    assert "500 users, 2 values" in text
    assert "item 1" in text
    assert f"Written to {tmp_path / 'all.csv'}." in text
    assert "aue (paper) is skipped: aue cannot meet a central epsilon" in text.replace("\n", " ")


@pytest.mark.parametrize(
    ("kind", "cells", "truth"),
    [
        ("categorical", ("red", "blue"), {"red": 0.75, "blue": 0.25}),
        pytest.param(
            *("string", ("red", "blue"), {"red": 0.75, "blue": 0.25}), marks=pytest.mark.slow
        ),
        pytest.param("mean", ("1.5", "7.5"), {"mean": 3.0}, marks=pytest.mark.slow),
        pytest.param(
            *("vector", ('"0, 2"', '"4, 6"'), {"number 0": 1.0, "number 1": 3.0}),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *("key-value", ('"0:1"', '"0:3, 1:2"'), {"key 0": 1.0, "key 1": 0.25}),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_users_file_is_read_for_every_kind(
    tmp_path: Path, kind: str, cells: tuple[str, str], truth: dict[str, float]
) -> None:
    """The named column is read, with true figures and estimates by value."""
    path = tmp_path / "mine.csv"
    lines = [f"{number},{cells[number % 4 == 3]}" for number in range(2000)]
    path.write_text("\n".join(["id,answer", *lines]), encoding="utf-8")
    protocol = {"categorical": "sh", "mean": "duchi", "vector": "harmony"}.get(kind)
    rows = shown_json(
        "simulate",
        *("--dataset", str(path), "--column", "answer", "--task-kind", kind, "--repeat", "1"),
        *("--central-epsilon", "1", "--local-cap", "1", "--by-value"),
        *(("--protocol", protocol) if protocol else ()),
    )
    found = {each["value"]: each for each in rows[0]["by_value"]}

    assert truth == pytest.approx({name: each["truth"] for name, each in found.items()})
    for each in found.values():
        # Of one repeat: eight standard errors, which chance passes with probability 1e-15.
        assert abs(each["estimate"] - each["truth"]) < 8 * each["standard_error"]


_REFUSED: Final = """
--coalition-epsilon 2 | --coalition-epsilon is for two shufflers
--task-kind string --shufflers 2 | --shufflers is for data of these kinds
--protocol OD-HP | there is no protocol 'OD-HP'
--protocol duchi | the protocol duchi is not for categorical data
--accounting loose | accounting must be published, tight or both
--figure 6 | figure is 6; it must be 3, 4 or 5
--plot nowhere/picture | nowhere/picture cannot be written
--csv nowhere/rows.csv | its folder does not exist
--column age | the column is age; only
--local-cap low | --local-cap must be a number
--task-kind mean --accounting tight | --accounting is for data of these kinds: categorical
--task-kind ordered --accounting tight | --accounting is for data of these kinds: categorical
--task-kind mean --figure 3 | --figure is for data of these kinds: categorical
--buckets 64 | --buckets is for data of these kinds: ordered; this is categorical data
--task-kind ordered --protocol duchi | duchi is not for ordered data
--task-kind mean --dataset zipf:9 | cannot be drawn from zipf:9,1.1
--task-kind mean --range 8 | --range must be two numbers, such as 18:65
--task-kind table --attribute-sizes 3,4 | is for synthetic people; a data set has its own
"""


@pytest.mark.parametrize("line", _REFUSED.strip().splitlines())
def test_invalid_options_are_refused_before_anything_runs(line: str) -> None:
    """The error is one sentence."""
    options, _, message = line.partition(" | ")
    with pytest.raises(ShuffleDpError, match=re.escape(message)):
        shown(f"simulate --dataset uniform:5 {options}")


def test_two_shufflers_are_for_protocols_with_which_each_adds_noise() -> None:
    """Those are the default; others are skipped with the reason."""
    two = (
        "simulate",
        "--dataset",
        "uniform:5",
        "--users",
        "200",
        "--shufflers",
        "2",
        "--seed",
        "3",
    )
    [refused] = shown_json(*two, "--protocol", "murs")
    rows = shown_json(*two, "--central-epsilon", "1", "--coalition-epsilon", "2", "--repeat", "1")
    fields = {row["protocol"]: row for row in rows}

    assert "murs is for one shuffler" in refused["refusal"]
    assert {"sageo", "sbin"} <= fields.keys()
    assert fields["sageo"]["coalition_epsilon"] == pytest.approx(2, rel=1e-3)


async def test_an_unknown_protocol_ends_as_a_wrong_option() -> None:
    """The status is 2, as of any option that is none."""
    status, _, said = await run_command("simulate", "--protocol", "nonsense")

    assert (2, True) == (status, "there is no protocol 'nonsense'" in said)
