"""Runs in which no service answers: what they report, and how they end."""

import asyncio
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from shuffledp.common.errors import (
    ForeignReplyError,
    PeerError,
    PeerRefusalError,
    PeerUnableError,
    ShuffleDpError,
)
from shuffledp.common.runtime.metrics import OF_ALL, Metrics, MetricsServer
from shuffledp.deploy.clients.analyzer import OperatorClient
from shuffledp.deploy.clients.shuffler import ShufflerClient
from shuffledp.deploy.commands.load import print_report
from shuffledp.deploy.load.behaviour import Behaviour, LoadPlan
from shuffledp.deploy.load.report import LoadReport, ProgressBars, as_json, show
from shuffledp.deploy.load.run import _answer, run
from shuffledp.deploy.load.scenario import Ramp
from shuffledp.deploy.load.sender import Destination
from shuffledp.deploy.load.target import GENERATOR, PartyUsage, Target
from shuffledp.deploy.load.users import seal
from tests.support.printing import printed
from tests.support.tasks import published

_NOWHERE = "127.0.0.1:1"
"""No service listens here: calls fail at once."""


async def _run(plan: LoadPlan, n_users: int = 2, **target: Any) -> LoadReport:
    """Run for users who give up, without counts or a result."""
    case = published(domain_size=30, buckets=5, n_min=2, target_size=n_users)
    users = seal(case.signed, replace(plan, n_users=n_users, dataset="zipf:30"))
    to = Destination(address=_NOWHERE, authority=None)
    asked = Target(kind="services", to=to, signed=users.signed, **target)
    return await run(plan, asked, users, ProgressBars(Console(quiet=True)))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shuffledp.deploy.load.run._ANSWER_SECONDS", 0.1)
    monkeypatch.setattr("shuffledp.common.runtime.rpc._RETRIES", "{}")


async def test_failures_of_flooding_copies_are_told_apart() -> None:
    """They fail on purpose, and are no part of the failures beside the progress bar."""
    plan = LoadPlan(patience=0.0, shares={Behaviour.FLOODING: 0.5})
    finished = await _run(plan)
    bars = ProgressBars(Console(quiet=True))
    bars.start_phase("Users", 2)
    bars.show_tally(finished.tally)

    assert 0 < finished.tally.shed < finished.tally.failures.total()
    shed = f"{finished.tally.shed} are copies that flooding users sent on purpose."
    assert shed in " ".join(printed(partial(show, finished, details=False), 80).split())
    assert "2 failed" == bars.tasks[0].fields["seen"]


@pytest.mark.parametrize("options", [{}, {"fetch_task": True}, {"mode": "bulk"}])
async def test_a_rate_at_which_users_give_up_does_not_hold(options: dict[str, Any]) -> None:
    """The waits of these users are recorded too."""
    ramp = Ramp(first=40, last=80, steps=2, step_seconds=0.5)
    finished = await _run(LoadPlan(ramp=ramp, patience=0.0, **options), 61)

    found = as_json(finished)["ramp"]
    assert (None, "users gave up: 20") == (found["held_users_per_second"], found["broke"])
    [step] = found["steps"]
    assert (20, 0.0, False) == (step["users_given_up"], step["achieved_users"], step["holds"])
    assert step["p99_ms"] > 0


async def test_a_run_without_counts_or_result_prints_the_rest_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Table and JSON are printed; the error names what did not come, and the seconds."""
    token = tmp_path / "token"
    token.write_text("secret")
    async with (
        ShufflerClient.connect(_NOWHERE, None, token) as shuffler,
        OperatorClient.connect(_NOWHERE, None, token) as operator,
    ):
        uncounted = await _run(LoadPlan(patience=0.0), shuffler=shuffler)
        finished = await _run(LoadPlan(patience=0.0), operator=operator)
    for json, text in ((False, "2 users, closed loop"), (True, '"users_given_up": 2')):
        with pytest.raises(PeerError, match=r"the analyzer's result .* within 0\.1 seconds"):
            print_report(finished, json=json)
        assert text in capsys.readouterr().out
    fields = as_json(uncounted)
    assert (2, 2) == (fields["users"], fields["users_given_up"])
    assert re.match(r"the shuffler's counts .* within 0\.1 seconds", fields["failure"])


_FOREIGN, _PASSING = ForeignReplyError("from a proxy"), PeerUnableError("its disk is full")
_REFUSED = PeerRefusalError("NOT_FOUND", "no task has this digest")


@pytest.mark.parametrize(
    ("errors", "raised"),
    [
        ([_FOREIGN, _PASSING, _FOREIGN, PeerError("down")], None),
        ([_FOREIGN, _FOREIGN], _FOREIGN),
        ([_REFUSED], _REFUSED),
    ],
)
async def test_a_service_that_restarts_is_asked_again_and_a_refusal_ends_the_wait(
    errors: list[ShuffleDpError], raised: ShuffleDpError | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refusals by a proxy are final only if many come without another error in between."""
    monkeypatch.setattr("shuffledp.deploy.load.run._PAUSE", 0)
    monkeypatch.setattr("shuffledp.deploy.load.run._FOREIGN_REPLIES", 2)
    left = iter(errors)

    async def ask() -> str:
        for error in left:
            raise error
        return "counts"

    answer = _answer(ask, "the counts")
    if raised is None:
        assert "counts" == await answer
        return
    with pytest.raises(type(raised), match=str(raised)):
        await answer


async def test_a_page_of_metrics_that_never_comes_is_reported_and_steers_no_terminal() -> None:
    """Pages that come are not mentioned; text of services is neither escapes nor markup."""
    server = MetricsServer("127.0.0.1:0", Metrics(OF_ALL))
    pages = {
        "shuffler": f"http://{server.address}/metrics",
        "analyzer": f"http://{_NOWHERE}/metrics",
    }
    finished = await _run(LoadPlan(patience=0.0), pages=pages)
    await asyncio.to_thread(server.stop)

    assert {GENERATOR, "shuffler"} == set(finished.usage)
    assert ["Usage unknown, without a metrics page: analyzer."] == finished.notes
    hostile = "\x1b]0;x\x07[bold red]\u202e"
    finished.tally.refusals[hostile] += 1
    finished.usage[hostile] = PartyUsage()
    finished.notes.append(hostile)
    shown = printed(partial(show, finished, details=True), width=200)
    assert 3 == shown.count("\\x1b]0;x\\x07[bold red]\\u202e")
    assert not set("\x1b\x07\u202e") & set(shown)
