"""Batches larger than memory, without encryption: see tests/benchmarks/bench_large_batches.py."""

import json
import subprocess
import sys
from typing import Any

import pytest


def _measured(party: str, n_reports: int, seconds: int) -> dict[str, Any]:
    """Run one case in its own process; a lost report or an unknown repeat fails it."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_large_batches", party, str(n_reports)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds)
    assert 0 == done.returncode, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


@pytest.mark.slow
@pytest.mark.parametrize("how", ["shuffler", "restart"], ids=["in bulk", "one by one"])
def test_a_shuffler_starts_fast_on_a_million_submissions(how: str) -> None:
    """Within ten seconds it has started and recognized a repeat."""
    assert _measured(how, 1_000_000, 900)["restart_s"] < 10


@pytest.mark.slow
@pytest.mark.parametrize("party", ["shuffler", "relay", "analyzer"])
def test_ten_million_reports_fit_into_a_gibibyte(party: str) -> None:
    """600 MB of sealed reports are stored, recognized after a restart, permuted and delivered."""
    assert _measured(party, 10_000_000, 1800)["peak_mib"] < 1024
