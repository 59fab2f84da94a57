"""Any bytes give a value or an error of the family: nothing else, and within bounds."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.fuzz import MAX_RESIDENT_BYTES, failure, fed_in_bounds, given_seed, hostile
from tests.support.parsers import MODULES, parsers

_SHORT = 200
_LONG = 1_000_000
_SHARDS = min(2, os.cpu_count() or 1)


def _fuzz(inputs: int, *arguments: str) -> int:
    """Feed inputs in a process of its own, check every parser, and return their number."""
    outcome = subprocess.run(
        [
            *(sys.executable, "-m", "tests.fuzz.fuzz"),
            *("--seed", str(given_seed()), "--inputs", str(inputs), *arguments),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr[-2000:]
    return _checked(json.loads(outcome.stdout))


def _checked(found: dict[str, Any]) -> int:
    assert found["grown_bytes"] <= MAX_RESIDENT_BYTES
    assert [] == found["failures"]
    return int(found["inputs"])


@pytest.mark.parametrize("module", MODULES)
@seed(given_seed())
@settings(
    max_examples=15,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)
@given(raw=st.binary(max_size=300) | st.text(max_size=80).map(str.encode))
def test_any_bytes_are_a_value_or_a_foreseen_error(module: str, raw: bytes) -> None:
    """Every parser reads bytes without any structure, and text."""
    found = {name: failure(parser, raw) for name, parser in parsers(module).items()}

    assert {} == {name: broke for name, broke in found.items() if broke is not None}


def test_hostile_variants_of_valid_inputs_are_a_value_or_a_foreseen_error() -> None:
    """Two hundred run in limited memory, each within its time."""
    assert _checked(fed_in_bounds(hostile(_SHORT, 0, 1), given_seed())) >= _SHORT * 0.9


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(_SHARDS))
def test_a_million_hostile_variants_are_a_value_or_a_foreseen_error(shard: int) -> None:
    """Two processes share the inputs; SHUFFLEDP_FUZZ_SEED chooses other ones."""
    share = _LONG // _SHARDS
    assert _fuzz(share, "--shard", str(shard), "--shards", str(_SHARDS)) >= share * 0.99
