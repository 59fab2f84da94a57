"""Runs in which nobody answers: what they say of it, and how they end."""

from pathlib import Path
from typing import Any

import pytest

from common.errors import PeerError
from deploy.load import prepared_file
from deploy.load.connection import Destination
from deploy.load.plan import Crowd, LoadPlan, Ramp
from deploy.load.prepared_file import Prepared
from deploy.load.run import run
from deploy.load.sealing import prepare
from deploy.load.tally import Tally
from deploy.load.target import Target
from deploy.operator_client import OperatorClient
from deploy.shuffler_client import ShufflerClient
from tests.support.tasks import published

_NOWHERE = "127.0.0.1:1"
"""Nobody listens at this port: calls fail at once."""


class Silent:
    """An `Observer` that remembers nothing."""

    def begins(self, what: str, users: int | None) -> None:
        """Do nothing."""

    def sees(self, tally: Tally) -> None:
        """Do nothing."""


def _prepared(folder: Path, n_users: int) -> Prepared:
    case = published(domain_size=30, buckets=5, n_min=2, target_size=n_users)
    crowd = Crowd(n_users=n_users)
    path = folder / "users"
    prepare(path, case.signed, crowd=crowd, dataset_name="zipf:30", seed=1, processes=1)
    return prepared_file.read(path)


def _target(
    prepared: Prepared,
    *,
    operator: OperatorClient | None = None,
    shuffler: ShufflerClient | None = None,
) -> Target:
    return Target(
        kind="services",
        to=Destination(address=_NOWHERE, authority=None),
        signed=prepared.signed,
        operator=operator,
        shuffler=shuffler,
    )


@pytest.mark.parametrize(
    "plan",
    [
        {"mode": "users", "fetch_task": False},
        {"mode": "users", "fetch_task": True},
        {"mode": "bulk"},
    ],
)
async def test_a_ramp_does_not_hold_where_every_user_gave_up(
    tmp_path: Path, plan: dict[str, Any]
) -> None:
    """Nobody was answered, all waited, and their waits are told."""
    ramp = Ramp(first=40, last=80, steps=2, seconds=0.5)
    prepared = _prepared(tmp_path, 61)
    finished = await run(
        LoadPlan(ramp=ramp, patience=0.0, **plan), _target(prepared), prepared, Silent()
    )

    [step] = finished.steps
    assert (20, 0.0) == (step.given_up, step.achieved)
    assert step.p99 > 0
    assert finished.verdict is not None
    assert finished.verdict.held is None
    assert "20 users gave up" == finished.verdict.reason


async def test_counts_of_the_shuffler_that_do_not_come_are_told_in_words(tmp_path: Path) -> None:
    """What was awaited, and for how long."""
    prepared, token = _prepared(tmp_path, 2), tmp_path / "token"
    token.write_text("secret")
    async with ShufflerClient.connect(_NOWHERE, None, token) as shuffler:
        with pytest.raises(PeerError, match=r"the shuffler's counts .* within 0\.1 seconds"):
            await run(
                LoadPlan(patience=0.0),
                _target(prepared, shuffler=shuffler),
                prepared,
                Silent(),
                result_seconds=0.1,
            )


async def test_a_result_that_does_not_come_is_told_in_words(tmp_path: Path) -> None:
    """What was awaited, and for how long."""
    prepared, token = _prepared(tmp_path, 2), tmp_path / "token"
    token.write_text("secret")
    async with OperatorClient.connect(_NOWHERE, None, token) as operator:
        with pytest.raises(PeerError, match=r"the analyzer's result .* within 0\.1 seconds"):
            await run(
                LoadPlan(patience=0.0),
                _target(prepared, operator=operator),
                prepared,
                Silent(),
                result_seconds=0.1,
            )
