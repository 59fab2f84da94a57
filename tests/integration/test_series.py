"""A series of thirty rounds over three real servers."""

import asyncio
import json
import math
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from shuffledp.common.messages.ledger_entry import LedgerEntry
from shuffledp.common.task.draft import TaskDraft
from shuffledp.common.task.task import Task
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.commands.rounds import publish_due
from shuffledp.deploy.tasks.schedule import read_series
from shuffledp.user_agent.contribution import Contributor
from tests.support import clients
from tests.support.command_line import run_command
from tests.support.faked_time import FakedTime
from tests.support.series import template
from tests.support.services import Services

_USERS: Final = 120
_ROUNDS: Final = 31
_MISSED: Final = 3


def _template(folder: Path, **changes: Any) -> Path:
    """Write a template for a few users, whose first round has just opened."""
    few: dict[str, Any] = {"n_min": _USERS, "target_size": _USERS, "rounds": _ROUNDS}
    return template(folder, **{**few, "first": int(time.time()), **changes})


async def _publish(services: Services, path: Path, *options: str) -> tuple[int | None, str, str]:
    """Run the command by the real clock."""
    key = services.directory / "shuffler" / "envelope.pub"
    return await clients.run_as_operator(
        services, *("series", "publish", str(path), "--shuffler-key", str(key), "--json", *options)
    )


@pytest.mark.slow
@pytest.mark.own_services
async def test_the_ledger_of_thirty_rounds_equals_the_forecast(
    services: Services, tmp_path: Path
) -> None:
    """Each round is published once, the third never. All figures agree to the last digit."""
    path = _template(tmp_path)
    series = read_series(path)

    def complete(number: int) -> TaskDraft:
        return replace(series.draft_of(number), shuffler_key=services.shuffler_key)

    _, foreseen, _ = await run_command("series", "forecast", str(path), "--json")
    forecast = [row["composed_epsilon"] for row in json.loads(foreseen)["rounds"]]
    (_, first, _), (_, again, _) = [await _publish(services, path) for _ in range(2)]
    assert ["published", "already published"] == [json.loads(o)["state"] for o in (first, again)]
    warnings = [json.loads(output)["warning"] for output in (first, again)]
    assert warnings[0].startswith("A device's total_central_epsilon_cap of 1 at a total_delta_cap")
    assert not warnings[1]
    for number in range(1, _ROUNDS + 1):
        if number == _MISSED:
            continue
        async with services.operator() as operator:
            now = series.deadline(number) - series.every / 2
            reports = [(await publish_due(series, complete, now, operator))[0] for _ in range(2)]
            digest = TaskDigest(bytes.fromhex(reports[0]["task_digest"]))
            signed, _ = await operator.describe(digest)
        states = ["already published"] * 2 if number == 1 else ["published", "already published"]
        assert states == [report["state"] for report in reports]
        assert digest.hex() == reports[1]["task_digest"]
        assert [_MISSED] * (number > _MISSED) == reports[1]["missed"]
        await clients.collect(services, signed, _USERS)
    async with services.operator() as operator:
        entries, _ = await operator.ledger()
    page = tmp_path / "daily.html"
    options = ("series", "show", str(path), "--json", "--top", "2", "--html", str(page))
    shown = json.loads(await clients.command(services, *options))
    left = json.loads(await clients.command(services, "series", "forecast", str(path), "--json"))

    assert _ROUNDS - 1 == len(entries) == 30
    composed = [entry.composed_epsilon for entry in entries if isinstance(entry, LedgerEntry)]
    assert forecast[:-1] == composed
    assert forecast[-1:] == [row["composed_epsilon"] for row in left["rounds"]]
    assert 1 < forecast[-1] < 6
    rounds = shown["rounds"]
    assert composed == [row["composed_epsilon"] for row in rounds if row["n_users"] == _USERS]
    assert ["planned"] == [row["state"] for row in rounds if row["n_users"] is None]
    assert 2 * 30 == len(shown["values"]["smoothed"])
    assert ["0"] * 30 == shown["values"]["label"][:30]
    [budget] = shown["population_budgets"]["budgets"]
    assert (composed[-1], 6.0) == (budget["spent_epsilon"], budget["budget_epsilon"])
    assert 2 == page.read_text(encoding="utf-8").count("<polyline")


@pytest.mark.parametrize("minutes", [35, pytest.param(-35, marks=pytest.mark.slow)])
async def test_a_publisher_whose_clock_is_wrong_opens_no_round(
    services: Services, tmp_path: Path, minutes: int
) -> None:
    """The refusal has both times. A round is not published while the last one collects."""
    faked, path = FakedTime(tmp_path), _template(tmp_path, population='"wrong clock"')
    faked.shift(60 * minutes)
    status, _, complaint = await asyncio.to_thread(
        faked.run,
        *("series", "publish", str(path)),
        *("--shuffler-key", str(services.directory / "shuffler" / "envelope.pub")),
        *clients.credentials(services),
    )

    assert 1 == status
    assert re.search(r"clock says 20\S+ \S+ UTC, the analyzer's 20\S+ \S+ UTC", complaint)
    async with services.operator() as operator:
        assert [] == [task for task in await operator.tasks() if task.population == "wrong clock"]


async def test_a_series_that_outruns_the_budget_is_refused(
    services: Services, tmp_path: Path
) -> None:
    """Nothing is published; the message says after how many rounds the budget ends."""
    path = _template(tmp_path, population='"other"', budget_epsilon=1.0)
    status, _, complaint = await _publish(services, path)

    assert 1 == status
    assert "the population's budget_epsilon of 1 at delta 1e-05 ends after" in complaint
    assert "of 31 rounds" in complaint
    async with services.operator() as operator:
        assert [] == [task for task in await operator.tasks() if task.population == "other"]


async def test_a_round_is_published_once_from_two_machines(
    services: Services, tmp_path: Path
) -> None:
    """Each has a copy of the template; the analyzer refuses the second, which then finds the first.

    The report is that of `task create`, with its warnings: there is no token and no witness.
    """
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    paths = [_template(folder, population='"twice"') for folder in folders]
    done = await asyncio.gather(*(_publish(services, path) for path in paths))
    reports = [json.loads(output) for _, output, _ in done]
    draft = tmp_path / "draft.toml"
    draft.write_text(paths[0].read_text("utf-8").partition("[schedule]")[0], encoding="utf-8")
    draft.write_text(f"deadline = 2_000_000_000\n{draft.read_text('utf-8')}", encoding="utf-8")
    key = services.directory / "shuffler" / "envelope.pub"
    options = ("task", "create", str(draft), "--shuffler-key", str(key), "--json")
    _, created, _ = await clients.run_as_operator(services, *options)
    _, text, _ = await clients.run_as_operator(
        services, "series", "publish", str(paths[1]), "--shuffler-key", str(key)
    )

    assert [0, 0] == [status for status, _, _ in done]
    assert ["already published", "published"] == sorted(each["state"] for each in reports)
    assert 1 == len({each["task_digest"] for each in reports})
    async with services.operator() as operator:
        tasks = [task for task in await operator.tasks() if task.population == "twice"]
    assert 2 == len(tasks)
    first = next(each for each in reports if each["state"] == "published")
    assert set(json.loads(created)) <= set(first)
    assert json.loads(created)["warnings"] == first["warnings"]
    assert "has no tokens" in " ".join(first["warnings"])
    assert "has no tokens" in text


@pytest.mark.slow
async def test_a_second_series_of_a_population_is_not_taken_for_the_first(
    services: Services, tmp_path: Path
) -> None:
    """With the same times and sizes and other labels, it is published and checked by itself."""
    labels = "[" + ", ".join(f'"{number}"' for number in range(20)) + "]"
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    first = int(time.time())
    plain = _template(folders[0], population='"two"', first=first)
    named = _template(folders[1], population='"two"', first=first, labels=labels)
    reports = [json.loads((await _publish(services, path))[1]) for path in (plain, named)]

    assert ["published", "published"] == [each["state"] for each in reports]
    assert 2 == len({each["task_digest"] for each in reports})
    assert all(each["warning"] for each in reports)


@pytest.mark.slow
async def test_a_lasting_question_is_charged_its_permanent_epsilon(
    services: Services, tmp_path: Path
) -> None:
    """Four rounds with the same texts; all figures agree, and say what they assume."""
    path = _template(
        tmp_path,
        protocol='"rappor"',
        domain_size=None,
        buckets=None,
        local_epsilon=None,
        dummies_per_user=None,
        population='"lasting"',
        budget_epsilon=9.0,
        texts='{question = "state", bits = 32, hashes = 2, cohorts = 8}',
    )
    series, rng = read_series(path), np.random.default_rng(1)
    for number in range(1, 5):
        wanted = replace(series.draft_of(number), shuffler_key=services.shuffler_key)
        async with services.operator() as operator:
            signed, _ = await operator.publish_task(wanted)
        task = Task.from_bytes(signed.task_bytes)
        device = Contributor(task, signed.digest(), bytes(32))
        sealed = [device.prepare("Ohio", rng).envelope for _ in range(_USERS)]
        await clients.submit_bulk(services, signed, sealed)
        await clients.result_of(services, signed)
    most = 2 * 2 * math.log(3)
    ledger = json.loads(await clients.command(services, "ledger", "--json"))
    [found] = [each for each in ledger["populations"] if each["population"] == "lasting"]
    shown = json.loads(await clients.command(services, "series", "show", str(path), "--json"))
    forecast = json.loads(
        await clients.command(services, "series", "forecast", str(path), "--json")
    )

    assert most == pytest.approx(found["budgets"][0]["spent_epsilon"])
    assert found == shown["population_budgets"]
    assert most == pytest.approx(ledger["entries"][-1]["composed_epsilon"])
    assert most == pytest.approx(forecast["rounds"][-1]["composed_epsilon"])
    for basis in (found["basis"], forecast["basis"]):
        assert "if each person's text stays the same" in basis
