"""Runs in which nobody answers: what they say of it, and how they end."""

import asyncio
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from common.errors import PeerError
from common.runtime.metrics import Metrics, MetricsServer
from deploy.clients.analyzer import OperatorClient
from deploy.clients.shuffler import ShufflerClient
from deploy.commands.load import tell
from deploy.load.plan import Crowd, LoadPlan, Ramp
from deploy.load.report import Bars, Finished, as_json, show
from deploy.load.run import run
from deploy.load.sender import Destination
from deploy.load.target import Target
from deploy.load.usage import GENERATOR, PartyUsage, remote_source
from deploy.load.users import SealedUsers, seal
from tests.support.tasks import published

_NOWHERE = "127.0.0.1:1"
"""Nobody listens at this port: calls fail at once."""


def _prepared(n_users: int) -> SealedUsers:
    case = published(domain_size=30, buckets=5, n_min=2, target_size=n_users)
    return seal(case.signed, Crowd(n_users=n_users, dataset="zipf:30"), seed=1, processes=1)


def _target(
    prepared: SealedUsers,
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


async def _unanswered(
    *,
    operator: OperatorClient | None = None,
    shuffler: ShufflerClient | None = None,
) -> Finished:
    """Run for two users, who give up, and for counts that do not come."""
    prepared = _prepared(2)
    target = _target(prepared, operator=operator, shuffler=shuffler)
    return await run(
        LoadPlan(patience=0.0), target, prepared, Bars(Console(quiet=True)), result_seconds=0.1
    )


def _token(folder: Path) -> Path:
    file = folder / "token"
    file.write_text("secret")
    return file


@pytest.mark.parametrize(
    "plan",
    [
        {"mode": "users", "fetch_task": False},
        {"mode": "users", "fetch_task": True},
        {"mode": "bulk"},
    ],
)
async def test_a_ramp_does_not_hold_where_every_user_gave_up(
    plan: dict[str, Any],
) -> None:
    """Nobody was answered, all waited, and their waits are told."""
    ramp = Ramp(first=40, last=80, steps=2, seconds=0.5)
    prepared = _prepared(61)
    finished = await run(
        LoadPlan(ramp=ramp, patience=0.0, **plan),
        _target(prepared),
        prepared,
        Bars(Console(quiet=True)),
    )

    [step] = finished.steps
    assert (20, 0.0) == (step.users_given_up, step.achieved_users)
    assert step.p99_ms > 0
    assert "20 users gave up" == ramp.broken_by(step)


async def test_a_run_whose_counts_do_not_come_tells_the_rest(tmp_path: Path) -> None:
    """What the users saw; and what was awaited, and for how long."""
    async with ShufflerClient.connect(_NOWHERE, None, _token(tmp_path)) as shuffler:
        finished = await _unanswered(shuffler=shuffler)

    assert (2, 2) == (finished.n_users, finished.total.given_up)
    told = as_json(finished)
    assert re.match(r"the shuffler's counts .* within 0\.1 seconds", told["failure"])
    assert 2 == told["users_given_up"]


@pytest.mark.parametrize("json", [False, True])
async def test_a_run_whose_result_does_not_come_prints_the_rest_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, json: bool
) -> None:
    """As a table or as JSON; the command ends with what was awaited, and for how long."""
    async with OperatorClient.connect(_NOWHERE, None, _token(tmp_path)) as operator:
        finished = await _unanswered(operator=operator)
    with pytest.raises(PeerError, match=r"the analyzer's result .* within 0\.1 seconds"):
        tell(finished, json=json)

    assert ('"users_given_up": 2' if json else "users acknowledged") in capsys.readouterr().out


async def test_a_page_of_metrics_that_never_comes_is_told() -> None:
    """Of two services one has none; the other's page comes, and is not told."""
    prepared = _prepared(2)

    server = MetricsServer("127.0.0.1:0", Metrics("shuffler"))
    pages = [
        f"shuffler=http://{server.address}/metrics",
        f"analyzer=http://{_NOWHERE}/metrics",
    ]
    target = replace(
        _target(prepared), sources=(*map(remote_source, pages),), metered=("shuffler", "analyzer")
    )
    finished = await run(LoadPlan(patience=0.0), target, prepared, Bars(Console(quiet=True)))
    await asyncio.to_thread(server.stop)

    assert {GENERATOR, "shuffler"} == set(finished.usage)
    [note] = finished.notes
    assert note.startswith("The usage of analyzer is unknown")


async def test_what_services_say_steers_no_terminal() -> None:
    """In causes of failures, in notes, and in names: neither escapes nor markup."""
    prepared = _prepared(2)
    finished = await run(
        LoadPlan(patience=0.0), _target(prepared), prepared, Bars(Console(quiet=True))
    )
    hostile = "\x1b]0;x\x07[bold red]\u202e"
    finished.total.refusals[hostile] += 1
    finished.usage[hostile] = PartyUsage()
    finished.notes.append(hostile)
    written = io.StringIO()

    show(finished, Console(file=written, width=200))

    expected = "\\x1b]0;x\\x07[bold red]\\u202e"
    assert 3 == written.getvalue().count(expected)
    assert not set("\x1b\x07\u202e") & set(written.getvalue())
