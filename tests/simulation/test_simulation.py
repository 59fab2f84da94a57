"""Random lists of operations, in the manner of Janus's simulation tests."""

import asyncio
import tempfile
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.operations import Operation, play

_LOSSES = st.sampled_from([None, None, None, "request", "response"])
_CRASHES = st.one_of(st.none(), st.none(), st.integers(0, 25))
_NUMBERS = st.integers(0, 15)
_OPERATIONS = st.lists(
    st.builds(
        Operation,
        act=st.sampled_from(
            ["contribute"] * 6
            + ["advance"] * 3
            + ["publish", "resend", "malformed", "stranger", "wait", "restart", "replay batch"]
            + ["rotate", "ask"]
        ),
        what=_NUMBERS,
        who=_NUMBERS,
        lost=_LOSSES,
        crash=_CRASHES,
    ),
    max_size=30,
)


def _play(operations: list[Operation]) -> None:
    with tempfile.TemporaryDirectory() as path:
        asyncio.run(play(Path(path), operations))


_PROFILE: Final = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@given(_OPERATIONS)
@settings(_PROFILE, max_examples=25, derandomize=True)
def test_nothing_is_lost_and_nothing_counted_twice(operations: list[Operation]) -> None:
    """After any operations in any order, World.check and World.check_end hold."""
    _play(operations)


@pytest.mark.slow
@given(_OPERATIONS)
@settings(_PROFILE, max_examples=1500)
def test_nothing_is_lost_and_nothing_counted_twice_at_length(operations: list[Operation]) -> None:
    """With other lists each time."""
    _play(operations)


@pytest.mark.parametrize("way", range(3))
def test_a_replayed_batch_changes_nothing(way: int) -> None:
    """Unchanged it is acknowledged again; under another id or size it is refused."""
    answers = [Operation("contribute", who=person) for person in range(3)]
    _play([*answers, Operation("advance"), Operation("replay batch", what=way)])
