"""The load generator against the three servers: all counts are exact."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import PlanError, SettingsError
from shuffledp.common.messages.submission import Outcome
from shuffledp.deploy.load.behaviour import MISBEHAVING, LoadPlan
from shuffledp.deploy.load.report import LoadReport, ProgressBars, as_json
from shuffledp.deploy.load.run import execute
from shuffledp.deploy.load.scenario import SHIPPED, Ramp
from shuffledp.deploy.load.users import SealedUsers
from shuffledp.deploy.terminal.json_output import dumps
from tests.support.clients import envelopes, result_of, submit
from tests.support.command_line import shown_json
from tests.support.services import Services

_STORED = 228
"""Of 240 users; four misbehave in each way, and in three ways nothing is stored."""
_PLAN = LoadPlan(n_users=240, shares=dict.fromkeys(MISBEHAVING, 1 / 60), dataset="zipf:100", seed=4)
_HONEST = LoadPlan(n_users=30, dataset="zipf:100", mode="bulk")


async def _run(
    services: Services, signed: SignedTask, plan: LoadPlan, **changes: Any
) -> LoadReport | None:
    """Run with both operators' tokens; changes are arguments of `execute`."""
    bars = ProgressBars(Console(quiet=True))
    return await execute(services.load_target(signed), plan, **{"bars": bars} | changes)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"fetch_task": True, "rate": 400.0}, id="users"),
        pytest.param({"mode": "bulk", "concurrency": 2}, id="bulk", marks=pytest.mark.slow),
        pytest.param(
            {"processes": 3, "rate": 100.0, "burst": 20},
            id="three processes",
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_every_count_is_exact_with_a_tenth_misbehaving(
    services: Services, changes: dict[str, Any]
) -> None:
    """Malformed, oversized, repeated, conflicting, flooding and leaving users join honest ones."""
    signed = await services.publish(n_min=_STORED, target_size=_STORED)
    finished = await _run(services, signed, replace(_PLAN, **changes))

    assert finished is not None
    assert [] == [row for row in finished.rows if not row.holds]
    assert finished.result is not None
    assert _STORED == finished.result.n_users == finished.tally.acknowledged
    assert 4 == finished.tally.dropped
    assert {"stored", "repeated", "conflict", "malformed"} == {*finished.tally.answers}
    assert finished.tally.milliseconds()["max"] > 0
    assert {f"{cause}, by the shuffler" for cause in Outcome} <= {row.what for row in finished.rows}
    assert '"counts_match": true' in dumps(as_json(finished))


@pytest.mark.slow
async def test_a_ramp_reports_the_rate_that_held(services: Services) -> None:
    """Any machine holds the rates of both steps."""
    ramp = Ramp(first=10, last=20, steps=2, step_seconds=2.0)
    signed = await services.publish(n_min=1, target_size=100)
    finished = await _run(services, signed, replace(_PLAN, n_users=80, mode="bulk", ramp=ramp))

    assert finished is not None
    report = as_json(finished)["ramp"]
    assert (20, None) == (report["held_users_per_second"], report["broke"])
    assert [(10, True), (20, True)] == [
        (step["offered_users"], step["holds"]) for step in report["steps"]
    ]
    assert 60 == finished.n_users
    assert finished.counts_match
    assert finished.result is None


async def test_a_batch_whose_counts_cannot_be_compared_is_refused(services: Services) -> None:
    """The batch would close early, holds users, is closed, or could not be closed."""
    small = await services.publish(n_min=1, target_size=20)
    taken = await services.publish(n_min=1, target_size=1000)
    closed = await services.publish(n_min=1, target_size=1)
    large = await services.publish(n_min=31, target_size=40)
    for signed in (taken, closed):
        await submit(services, signed, *envelopes(signed, 1))
    await result_of(services, closed)
    for signed, sentence in (
        (small, "30 users .* allow 1 to 20: use --users"),
        (taken, "the batch holds 1 users; it must be empty"),
        (closed, "the batch is [a-z]+; it must be collecting"),
        (large, "30 users would be stored; .* allow 31 to 40: use --users"),
    ):
        with pytest.raises(PlanError, match=sentence):
            await _run(services, signed, _HONEST, close=True)


async def test_prepared_users_are_replayed_and_the_batch_is_closed(
    services: Services, tmp_path: Path
) -> None:
    """Users prepared for another task are refused."""
    path = tmp_path / "users"
    signed = await services.publish(n_min=5, target_size=1000)
    other = await services.publish(n_min=5, target_size=1000)
    assert await _run(services, signed, _HONEST, prepare=path) is None
    prepared = SealedUsers.load(path)
    with pytest.raises(SettingsError, match="prepared for another task"):
        await _run(services, other, _HONEST, replayed=prepared)
    finished = await _run(services, signed, _HONEST, replayed=prepared, close=True)

    assert finished is not None
    assert finished.counts_match
    assert finished.result is not None
    assert 30 == finished.result.n_users


@pytest.mark.parametrize("mode", ["users", pytest.param("bulk", marks=pytest.mark.slow)])
def test_the_command_measures_itself_against_a_sink(mode: str, tmp_path: Path) -> None:
    """No service is needed, and the report is JSON."""
    scenario = tmp_path / "mine.toml"
    scenario.write_text(f"target.sink = true\nsending.mode = '{mode}'\nmisbehaving.oversized = 0.1")
    said = shown_json("load", str(scenario), "--users", "40")

    assert {"stored": 36, "malformed": 4} == said["answers"]
    assert 36 == said["users_acknowledged"]
    assert {"load generator", "sink"} == set(said["services"])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*SHIPPED} - {"containers"}))  # has a test with containers
def test_a_shipped_scenario_runs(name: str) -> None:
    """Its counts match; a ramp's first step is 250 users."""
    said = shown_json("load", name, "--users", "251")

    assert 250 <= said["users"]
    assert said["counts_match"]
