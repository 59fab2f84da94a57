"""Simulated users against the three real servers: every count to the last submission."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from common.crypto.signing import SignedTask
from common.errors import PlanError, SettingsError
from common.messages.submission import Outcome
from common.task_digest import TaskDigest
from deploy.cli import app
from deploy.load.behaviour import MISBEHAVING, Behaviour
from deploy.load.plan import LoadPlan, Ramp
from deploy.load.report import Bars, Finished, as_json
from deploy.load.run import execute, run
from deploy.load.target import Target, connect
from deploy.load.users import SealedUsers, seal
from deploy.terminal.json_output import dumps
from tests.support.clients import envelopes, result_of, submit
from tests.support.services import Services

_USERS = 240
_STORED = 228
"""Of them: four misbehave in each way, and in three ways nothing of them is stored."""
_SHARES: dict[Behaviour, float] = dict.fromkeys(MISBEHAVING, 4 / _USERS)


class Begun(Bars):
    """Bars that show nothing and remember what began."""

    def __init__(self) -> None:
        super().__init__(Console(quiet=True))
        self.begun: list[str] = []

    def start_phase(self, what: str, users: int | None) -> None:
        """Remember it."""
        self.begun.append(what)
        super().start_phase(what, users)


def _connect(
    services: Services, digest: TaskDigest
) -> contextlib.AbstractAsyncContextManager[Target]:
    """Connect to the services with all their operators' files."""
    folder = services.directory
    return connect(
        "services",
        services.shuffler.address,
        digest,
        authority=folder / "tls" / "authority.pem",
        analyzer=services.analyzer.address,
        token_file=folder / "analyzer" / "operator.token",
        shuffler_token_file=folder / "shuffler" / "operator.token",
    )


async def _load(services: Services, *, stored: int, target_size: int = 0, **plan: Any) -> Finished:
    """Run for users of whom four misbehave in each way."""
    signed = await services.publish(n_min=stored, target_size=target_size or stored)
    fields: dict[str, Any] = {"n_users": _USERS, "shares": _SHARES, "dataset": "zipf:100"} | plan
    asked = LoadPlan(**fields)
    async with _connect(services, signed.digest()) as target:
        return await run(asked, target, seal(signed, asked), Begun())


async def _job(
    services: Services, signed: SignedTask, bars: Bars, **changes: Any
) -> Finished | None:
    """Run thirty users in bulk; changes are arguments of `execute`."""
    plan = LoadPlan(mode="bulk", n_users=30, dataset="zipf:100")
    return await execute(_connect(services, signed.digest()), plan, bars=bars, **changes)


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param({"fetch_task": True, "rate": 400.0, "seed": 1}, id="users"),
        pytest.param({"mode": "bulk", "concurrency": 2}, id="bulk", marks=pytest.mark.slow),
        pytest.param(
            {"processes": 3, "rate": 100.0, "pattern": "burst", "burst": 20},
            id="three processes",
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_every_count_is_what_it_must_be_with_a_tenth_misbehaving(
    services: Services, plan: dict[str, Any]
) -> None:
    """Malformed, oversized, repeated, conflicting, flooding and leaving users among honest ones."""
    finished = await _load(services, stored=_STORED, **plan)

    assert [] == [row for row in finished.rows if not row.holds]
    assert finished.result is not None
    assert _STORED == finished.result.n_users == finished.tally.acknowledged
    assert 4 == finished.tally.dropped
    assert {Outcome.STORED, Outcome.REPEATED, Outcome.CONFLICT, Outcome.MALFORMED} == set(
        finished.tally.answers
    )
    assert finished.tally.milliseconds()["max"] > 0
    assert {f"{cause}, by the shuffler" for cause in Outcome} <= {row.what for row in finished.rows}
    assert '"counts_match": true' in dumps(as_json(finished))


async def test_a_ramp_climbs_and_says_what_held(services: Services) -> None:
    """Two steps that any machine holds."""
    ramp = Ramp(first=10, last=20, steps=2, step_seconds=2.0)
    finished = await _load(services, stored=1, target_size=100, n_users=80, mode="bulk", ramp=ramp)

    assert [(10, True), (20, True)] == [
        (step["offered_users"], step["holds"]) for step in finished.steps
    ]
    assert 60 == finished.n_users
    assert finished.counts_match
    assert finished.result is None


async def test_more_users_than_the_batch_takes_are_refused_before_any_is_sent(
    services: Services,
) -> None:
    """The batch would close before the last of them, and nothing could be compared."""
    with pytest.raises(PlanError, match="close before the last"):
        await _load(services, stored=100)


@pytest.mark.parametrize(
    ("target_size", "sentence"),
    [
        (1000, "the batch holds 1 users; it must hold 0"),
        (1, "the batch is [a-z]+; it must be collecting"),
    ],
)
async def test_a_batch_that_real_users_are_in_is_left_alone(
    services: Services, target_size: int, sentence: str
) -> None:
    """With the shuffler's token that is seen before anybody is sealed; and that it has closed."""
    signed = await services.publish(n_min=1, target_size=target_size)
    await submit(services, signed, *envelopes(signed, 1))
    if target_size == 1:
        await result_of(services, signed)
    bars = Begun()
    with pytest.raises(PlanError, match=sentence):
        await _job(services, signed, bars)

    assert [] == bars.begun


async def test_what_was_prepared_is_replayed_and_the_batch_closed(
    services: Services, tmp_path: Path
) -> None:
    """By whoever holds both operators' tokens; and another task's file is refused."""
    path = tmp_path / "users"
    signed = await services.publish(n_min=5, target_size=1000)
    other = await services.publish(n_min=5, target_size=1000)
    with Begun() as bars:
        assert await _job(services, signed, bars, prepare=path) is None
        with pytest.raises(SettingsError, match="prepared for another task"):
            await _job(services, other, bars, replayed=SealedUsers.load(path))
        finished = await _job(services, signed, bars, replayed=SealedUsers.load(path), close=True)

    assert finished is not None
    assert finished.counts_match
    assert finished.result is not None
    assert 30 == finished.result.n_users


@pytest.mark.parametrize("mode", ["users", pytest.param("bulk", marks=pytest.mark.slow)])
def test_the_command_measures_itself_against_a_sink(mode: str) -> None:
    """With nothing but itself, and says what came of it as JSON."""
    asked = ["load", "--sink", "--users", "40", "--mode", mode, "--seed", "1", "--json"]
    result = CliRunner().invoke(app, [*asked, "--misbehaving", "oversized=0.1"])

    assert 0 == result.exit_code, result.output
    said = json.loads(result.stdout)
    assert {"stored": 36, "malformed": 4} == said["answers"]
    assert 36 == said["users_acknowledged"]
    assert {"load generator", "sink"} == set(said["services"])
