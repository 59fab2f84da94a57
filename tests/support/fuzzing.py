"""Runs the fuzzer in a process of its own, with its memory limited."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fuzz.fuzz import MOST_RESIDENT_BYTES, given_seed

_ROOT = Path(__file__).parents[2]


def fuzz(inputs: int, *, shard: int = 0, shards: int = 1) -> dict[str, Any]:
    """Feed so many inputs, and check that every parser kept its promise."""
    outcome = subprocess.run(
        [
            *(sys.executable, "-m", "tests.fuzz.fuzz", "--seed", str(given_seed())),
            *("--inputs", str(inputs), "--shard", str(shard), "--shards", str(shards)),
        ],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr[-2000:]
    found: dict[str, Any] = json.loads(outcome.stdout)
    told = "\n".join(f"{f['error']}\n  {f['repeat']}\n  {f['input']}" for f in found["failures"])
    assert not found["failures"], f"{told}\nseed {found['seed']}"
    assert found["grown_bytes"] <= MOST_RESIDENT_BYTES, f"seed {found['seed']}"
    return found
