"""The forecast of a series against the functions of the ledger and of devices."""

from dataclasses import replace
from pathlib import Path

import pytest

from shuffledp.analyzer.budgets import BudgetedRelease, population_budgets
from shuffledp.common.errors import BudgetError
from shuffledp.common.messages.batch import TaskState
from shuffledp.deploy.tasks.forecast import DEVICE_CAPS, check_budget, forecast, shortfall, show
from shuffledp.deploy.tasks.schedule import MAX_ROUNDS, read_series
from shuffledp.deploy.tasks.task_view import preview
from shuffledp.user_agent.policy import Claim, Policy, check_totals
from tests.support.chains import chain
from tests.support.keys import SHUFFLER
from tests.support.policies import generous
from tests.support.printing import printed
from tests.support.series import template
from tests.support.tasks import published


def _rounds_until_refused(policy: Policy, claim: Claim) -> int:
    answered: list[Claim] = []
    while True:
        try:
            check_totals(policy, answered, claim)
        except BudgetError:
            return len(answered)
        answered.append(claim)


def test_a_forecast_ends_where_ledger_and_device_refuse(tmp_path: Path) -> None:
    """The population's earlier releases count, at every budget that was promised."""
    series = read_series(template(tmp_path, budget_epsilon=0.4))
    task = preview(series.draft, now=0.0)
    earlier = preview(read_series(template(tmp_path, n_min=1500)).draft, now=0.0)
    spent = [BudgetedRelease.of(earlier, 1700, 3)] * 2
    own = BudgetedRelease.of(task, 1200, 0)
    rounds = series.rounds([], 0.0)
    caps = dict(zip(DEVICE_CAPS, (4.0, 4.0, 9.0, 100.0, 2.0, 1e-4), strict=True))
    costs, limits = forecast(task, rounds, 1200, spent, caps)

    composed = [
        next(
            budget.spent_epsilon
            for budget in population_budgets([*spent, *[own] * n])
            if budget.epsilon == 0.4
        )
        for n in range(1, 31)
    ]
    assert composed == [cost["composed_epsilon"] for cost in costs]
    within = sum(epsilon <= 0.4 for epsilon in composed)
    policy = generous(SHUFFLER.public_identity(), total_coalition_epsilon_cap=100.0)
    devices = [
        _rounds_until_refused(
            replace(policy, total_local_epsilon_cap=local, total_central_epsilon_cap=central),
            Claim.of(task),
        )
        for local, central in ((9.0, 100.0), (100.0, 2.0))
    ]
    assert [within, MAX_ROUNDS, *devices] == [limit["rounds"] for limit in limits]
    assert 0 < within < 30
    text = printed(lambda console: show(costs, limits, series.every, console))
    budget = "the population's budget_epsilon of 0.4 at delta 1e-05"
    assert f"{budget} lasts {within} days: {within} rounds." in text
    first = min(within, *devices)
    assert f"ends after {first} of 30 rounds." in text
    lasting = [limit | {"rounds": 30} for limit in limits]
    assert "All 30 rounds fit" in printed(lambda to: show(costs, lasting, series.every, to))
    later = [replace(each, state=TaskState.RELEASED) for each in rounds[:9]] + [*rounds[9:]]
    more, left = forecast(task, later, 1200, spent, caps)
    answered = ("round", "device_local_epsilon", "device_central_epsilon")
    assert [costs[9][name] for name in answered] == [more[0][name] for name in answered]
    assert [max(0, count - 9) for count in devices] == [limit["rounds"] for limit in left[2:]]
    keys = ("limit", "value", "rounds")
    _, refused = forecast(task, rounds, 1200, spent, caps | {"local_epsilon_cap": 1.9})
    assert ("local_epsilon_cap", 1.9, 0) == tuple(refused[1][key] for key in keys)
    with pytest.raises(BudgetError, match=r"ends after \d+ of 30 rounds; raise n_min"):
        check_budget(limits, len(costs))
    lasting[3]["rounds"] = 7
    check_budget(lasting, len(costs))
    assert "A device's total_central_ep" in (said := shortfall(lasting, len(costs)))
    assert said.endswith("ends after 7 of 30 rounds.")
    assert not shortfall(lasting, 7)
    lasting[1]["rounds"] = 0
    assert shortfall(lasting, len(costs)).startswith("No round fits a device's local_epsilon_cap")


def test_with_two_shufflers_the_coalition_epsilon_stands_for_the_local_one(tmp_path: Path) -> None:
    """It lasts as long as devices answer; nothing is said of both shufflers but that."""
    task = published(**chain(), n_min=1000, target_size=2000).task
    rounds = read_series(template(tmp_path)).rounds([], 0.0)[:3]
    caps = {**DEVICE_CAPS, "total_central_epsilon_cap": 50.0}
    costs, limits = forecast(task, rounds, 1200, [], caps)
    policy = replace(generous(SHUFFLER.public_identity()), total_central_epsilon_cap=50.0)

    assert "device_local_epsilon" not in costs[0]
    assert task.coalition_epsilon == pytest.approx(costs[0]["device_coalition_epsilon"])
    names = ["coalition_epsilon_cap", "total_coalition_epsilon_cap"]
    assert names == [limit["limit"] for limit in limits[1:3]]
    assert limits[2]["rounds"] == _rounds_until_refused(policy, Claim.of(task))
    text = printed(lambda console: show(costs, limits, 86400, console))
    assert "coalition (both with the analyzer: no bound)" in text


def test_a_forecast_says_that_delta_ends_first(tmp_path: Path) -> None:
    """Seven answers of δ = 1e-6 spend the cap; devices would count the next with their local ε."""
    series = read_series(template(tmp_path))
    task, rounds = preview(series.draft, now=0.0), series.rounds([], 0.0)
    caps = {**DEVICE_CAPS, "total_central_epsilon_cap": 5.0, "total_delta_cap": 7.5e-6}
    costs, limits = forecast(task, rounds, 1200, [], caps)
    text = printed(lambda console: show(costs, limits, series.every, console))
    policy = replace(
        generous(SHUFFLER.public_identity()),
        total_central_epsilon_cap=5.0,
        total_delta_cap=7.5e-6,
        total_local_epsilon_cap=100.0,
    )

    assert 7 == limits[-1]["rounds"] == _rounds_until_refused(policy, Claim.of(task))
    assert "a device's total_delta_cap of 7.5e-06 lasts 7 days: 7 rounds. After that" in text
    _, limits = forecast(task, rounds, 1200, [], caps | {"total_central_epsilon_cap": 0.5})
    assert "total_central_epsilon_cap" == limits[-1]["limit"]
    assert limits[-1]["rounds"] < 7
