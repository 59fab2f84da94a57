import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shuffledp.deploy.datasets.sample_people import sample_people
from tests.support.command_line import shown


def test_the_demo_collects_and_writes_a_histogram(tmp_path: Path) -> None:
    """Four processes serve 600 people of seed 11; result.json has every field."""
    # The error ratio leaves .35 .. 3 by chance with probability below 1e-6 over runs.
    printed, result = _demo(tmp_path)

    assert "each of 58 values, the 15 largest in truth" in printed
    assert "California" in printed
    assert {"name": "local-hashing", "buckets": 53, "local_epsilon": 4.0} == result["mechanism"]
    assert (600, 1200, 600) == (result["n_users"], result["n_reports"], result["n_dummies"])
    assert 0 == sum(result["refused"].values())
    assert {"submit", "shuffle", "open", "estimate"} == set(result["seconds"])
    assert 0.35 < result["mse_vs_truth"] / result["mse_theory"] < 3
    assert sum(result["refined"]) == pytest.approx(1)
    central, local, *outsiders = result["guarantees"]
    assert (central["coalition"], local["coalition"]) == ("analyzer", "shuffler+analyzer")
    with_issuer, *outsiders = outsiders
    assert ("issuer+analyzer", 4.0) == (with_issuer["coalition"], with_issuer["epsilon"])
    assert ["shuffler", "issuer", "issuer+shuffler", "network"] == [
        row["coalition"] for row in outsiders
    ]
    assert all("computational" in row["theorem"] for row in outsiders)
    assert (central["delta"], local["epsilon"]) == (1e-6, 4.0)
    assert central["epsilon"] == pytest.approx(0.702, abs=0.01)
    page = (tmp_path / "result.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert result["task_digest"] in page
    assert (tmp_path / "result.html").as_uri() in printed
    shares = sample_people("categorical", 600, 11).truth
    error = np.mean((np.array(result["frequencies"]) - shares) ** 2)
    assert result["mse_vs_truth"] == pytest.approx(error)


@pytest.mark.slow
def test_the_demo_with_two_shufflers_names_both_and_the_coalitions_epsilon(tmp_path: Path) -> None:
    """Five processes serve the same people, with an error as in theory."""
    # The error ratio leaves .35 .. 3 by chance with probability below 1e-6 over runs.
    printed, result = _demo(tmp_path, "--two-shufflers")
    rows = {row["coalition"]: row["epsilon"] for row in result["guarantees"]}
    names = ["first.localhost", "second.localhost"]

    assert names == result["shufflers"]
    assert rows["analyzer"] == pytest.approx(0.9995, abs=1e-4)
    for coalition in ("analyzer+first-shuffler", "analyzer+second-shuffler"):
        assert result["coalition_epsilon"] == pytest.approx(rows[coalition], rel=1e-3)
    assert 0.35 < result["mse_vs_truth"] / result["mse_theory"] < 3
    assert "two organizations run a shuffler each" in printed
    assert "epsilon 1.157 against the analyzer with either shuffler." in printed
    assert "{} and then {}. Each is to add dummies".format(*names) in printed


def _demo(folder: Path, *more: str) -> tuple[str, dict[str, Any]]:
    """Run the demo in a folder; return what it prints, in one line, and its result."""
    written = folder / "result.json"
    printed = shown("demo --users 600 --seed 11 --output", str(written), *more)
    return " ".join(printed.split()), json.loads(written.read_text(encoding="utf-8"))
