import csv
import io
import json
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from common.errors import ShuffleDpError
from deploy.cli import app

_SMALL: Final = [
    "simulate", "--dataset", "uniform:12", "--users", "3000", "--repeat", "2",
    "--central-epsilon", "1.0", "--protocol", "murs", "--protocol", "sageo",
]  # fmt: skip


def _rows(*more: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, [*_SMALL, "--json", *more])
    assert 0 == result.exit_code, result.exception
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


@pytest.mark.slow
def test_the_same_seed_gives_the_same_rows(tmp_path: Path) -> None:
    """But for the seconds; repeats have seeds of their own. CSV, JSON and figure go together."""
    picture, table = tmp_path / "picture", tmp_path / "rows.csv"
    first = _rows("--csv", str(table), "--plot", str(picture))
    second = _rows()
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
    """With the data set, a line a protocol, what was refused, and where all figures are."""
    result = CliRunner().invoke(
        app,
        [
            "simulate", "--dataset", "zipf:2,1.5", "--users", "500", "--repeat", "1",
            "--protocol", "ddps", "--protocol", "aue", "--central-epsilon", "0.1",
            "--accounting", "published", "--csv", str(tmp_path / "all.csv"),
        ],
    )  # fmt: skip

    assert 0 == result.exit_code, result.exception
    assert "Zipf law of exponent 1.5" in result.stdout
    assert "500 users, 2 values" in result.stdout
    assert f"Written to {tmp_path / 'all.csv'}." in result.stdout
    assert "left out, aue's bound asks for a chance of" in result.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--protocol", "OD-HP"], "there is no protocol 'OD-HP'"),
        (["--accounting", "loose"], "accounting must be published, tight or both"),
        (["--figure", "6"], "figure is 6; there are 3, 4 and 5"),
        (["--plot", "nowhere/picture"], "nowhere/picture cannot be written"),
        (["--csv", "nowhere/rows.csv"], "its folder is not there"),
        (["--dataset", "ipums1940_city", "--users", "700000"], "users is 700000"),
        (["--dataset", "zipf:many"], "are not numbers"),
        (["--dataset", "nothing"], "there is no such data set"),
        (["--users", "0"], "users is 0"),
        (["--local-cap", "low"], "the local cap must be a number"),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_what_cannot_be_simulated_is_refused_before_anything_is_run(
    arguments: list[str], message: str
) -> None:
    """In one sentence."""
    result = CliRunner().invoke(app, ["simulate", "--dataset", "uniform:5", *arguments])

    assert 1 == result.exit_code
    assert isinstance(result.exception, ShuffleDpError)
    assert message in str(result.exception)
