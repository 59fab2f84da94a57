"""Simulated users against the three real servers: every count to the last submission."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from common.crypto.signing import SignedTask
from common.errors import PlanError, SettingsError
from common.messages.submission import Outcome
from deploy.cli import app
from deploy.load.behaviour import MISBEHAVING, Behaviour
from deploy.load.plan import Crowd, LoadPlan, Ramp
from deploy.load.report import Bars, Finished, as_json
from deploy.load.run import execute
from deploy.load.target import connect
from deploy.terminal.json_output import dumps
from tests.support.clients import envelopes, submit
from tests.support.services import Services

_USERS = 240
_STORED = 228
"""Of them: four misbehave in each way, and in three ways nothing of them is stored."""


async def _load(
    services: Services, signed: SignedTask, plan: LoadPlan, users: int, **changes: Any
) -> Finished | None:
    """Run a load with all operators' files; changes are arguments of `execute`."""
    folder = services.directory
    shares: dict[Behaviour, float] = dict.fromkeys(MISBEHAVING, 4 / _USERS)
    fields: dict[str, Any] = {
        "digest": signed.digest(),
        "services": lambda digest: connect(
            "services",
            services.shuffler.address,
            digest,
            authority=folder / "tls" / "authority.pem",
            analyzer=services.analyzer.address,
            token_file=folder / "analyzer" / "operator.token",
            shuffler_token_file=folder / "shuffler" / "operator.token",
        ),
    }
    crowd = Crowd(n_users=users, shares=shares if users == _USERS else {}, dataset="zipf:100")
    with Bars(Console(quiet=True)) as bars:
        return await execute("services", plan, crowd, bars=bars, **fields | changes)


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(LoadPlan(fetch_task=True, rate=400.0, seed=1), id="users"),
        pytest.param(LoadPlan(mode="bulk", concurrency=2), id="bulk", marks=pytest.mark.slow),
        pytest.param(
            LoadPlan(processes=3, rate=100.0, pattern="burst", burst=20),
            id="three processes",
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_every_count_is_what_it_must_be_with_a_tenth_misbehaving(
    services: Services, plan: LoadPlan
) -> None:
    """Malformed, oversized, repeated, conflicting, flooding and leaving users among honest ones."""
    signed = await services.publish(n_min=_STORED, target_size=_STORED)
    finished = await _load(services, signed, plan, _USERS)

    assert finished is not None
    assert finished.result is not None
    assert [] == [row for row in finished.rows if not row.holds]
    assert _STORED == finished.result.n_users == finished.total.acknowledged
    assert 4 == finished.total.dropped
    assert {Outcome.STORED, Outcome.REPEATED, Outcome.CONFLICT, Outcome.MALFORMED} == set(
        finished.total.answers
    )
    assert finished.seen.milliseconds()["max"] > 0
    assert {f"{cause}, by the shuffler" for cause in Outcome} <= {row.what for row in finished.rows}
    assert '"counts_match": true' in dumps(as_json(finished))


async def test_a_ramp_climbs_and_says_what_held(services: Services) -> None:
    """Two steps that any machine holds."""
    signed = await services.publish(n_min=1, target_size=100)
    plan = LoadPlan(mode="bulk", ramp=Ramp(first=10, last=20, steps=2, step_seconds=2.0))
    finished = await _load(services, signed, plan, 80)

    assert finished is not None
    assert [10, 20] == [step.offered_users for step in finished.steps], finished.steps
    assert 60 == finished.n_users
    assert finished.counts_match
    assert finished.result is None


async def test_a_batch_whose_counts_cannot_be_compared_is_left_alone(services: Services) -> None:
    """It would close before the last user, or real users are in it, or have filled it."""
    small = await services.publish(n_min=1, target_size=20)
    taken = await services.publish(n_min=1, target_size=1000)
    closed = await services.publish(n_min=1, target_size=1)
    for signed in (taken, closed):
        await submit(services, signed, *envelopes(signed, 1))
    for signed, sentence in (
        (small, "close before the last"),
        (taken, "the batch holds 1 users; it must hold 0"),
        (closed, "the batch is [a-z]+; it must be collecting"),
    ):
        with pytest.raises(PlanError, match=sentence):
            await _load(services, signed, LoadPlan(mode="bulk"), 30)


async def test_what_was_prepared_is_replayed_and_the_batch_closed(
    services: Services, tmp_path: Path
) -> None:
    """By whoever holds both operators' tokens; and another task's file is refused."""
    path, plan = tmp_path / "users", LoadPlan(mode="bulk")
    signed = await services.publish(n_min=5, target_size=1000)
    other = await services.publish(n_min=5, target_size=1000)
    assert await _load(services, signed, plan, 30, prepare=path) is None
    with pytest.raises(SettingsError, match="prepared for another task"):
        await _load(services, other, plan, 30, replay=path)
    finished = await _load(services, signed, plan, 30, digest=None, replay=path, close=True)

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
