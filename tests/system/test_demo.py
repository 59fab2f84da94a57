import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deploy.datasets.sample_people import sample_people


def test_the_demo_collects_and_writes_a_histogram(tmp_path: Path) -> None:
    """Four processes serve 600 people of seed 11; result.json has every field."""
    # The error ratio leaves .35 .. 3 by chance with probability below 1e-6 over runs.
    program = "from deploy.cli import main; main()"
    outcome = subprocess.run(
        [sys.executable, "-c", program, "demo", "--users", "600", "--seed", "11"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert 0 == outcome.returncode, outcome.stderr
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))

    assert "each of 58 values, the 15 largest in truth" in " ".join(outcome.stdout.split())
    assert "California" in outcome.stdout
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
    assert (tmp_path / "result.html").as_uri() in outcome.stdout
    shares = sample_people("categorical", 600, 11).truth
    error = np.mean((np.array(result["frequencies"]) - shares) ** 2)
    assert result["mse_vs_truth"] == pytest.approx(error)
