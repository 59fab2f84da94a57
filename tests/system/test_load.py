"""The load generator at full size, on child processes."""

import math
import time
from pathlib import Path
from typing import Any, Final

import pytest
from rich.console import Console

from shuffledp.common.messages.result import Means
from shuffledp.common.task.draft import NumberDraft
from shuffledp.common.task.shuffler_spec import ShufflerSpec
from shuffledp.deploy.load.behaviour import MISBEHAVING, LoadPlan
from shuffledp.deploy.load.report import ProgressBars
from shuffledp.deploy.load.run import execute
from shuffledp.deploy.load.scenario import LoadTarget, Mode
from shuffledp.deploy.load.target import local
from shuffledp.deploy.tasks.drafts import as_toml
from tests.support.chains import FLANKS, chain
from tests.support.tasks import draft


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["users", "bulk"])
async def test_20000_users_with_a_tenth_misbehaving_are_counted_to_the_last(mode: Mode) -> None:
    """Every count of `shuffledp load --local` is exact, and the mean squared error as predicted."""
    # Fails by chance with probability below 1e-9: the ratio's standard deviation is below .05.
    plan = LoadPlan(mode=mode, n_users=20_000, shares=dict.fromkeys(MISBEHAVING, 1 / 60))
    with ProgressBars(Console(quiet=True)) as bars:
        finished = await execute(local(plan), plan, bars=bars)

    assert finished is not None
    assert finished.result is not None
    assert [] == [row for row in finished.rows if not row.holds]
    assert 19_000 <= finished.result.n_users == finished.tally.acknowledged
    assert 0.5 <= (finished.errors["mse_over_theory"] or 0.0) <= 1.5


@pytest.mark.slow
async def test_a_draft_with_two_shufflers_is_collected_over_both(tmp_path: Path) -> None:
    """Every count is exact, and the usage of both is reported."""
    # Fails by chance with probability below 1e-6: 100 items, as in the test above.
    file = tmp_path / "draft.toml"
    end = int(time.time()) + 3600
    wanted = draft(**chain(), n_min=200, target_size=500, deadline=end)
    file.write_text(as_toml(wanted), encoding="utf-8")
    plan = LoadPlan(mode="bulk", n_users=300, dataset="zipf:100")
    with ProgressBars(Console(quiet=True)) as bars:
        finished = await execute(local(plan, LoadTarget(draft=file)), plan, bars=bars)

    assert finished is not None
    assert [] == [row for row in finished.rows if not row.holds]
    assert {"shuffler", "relay", "analyzer"} <= {*finished.usage}
    assert 0.2 <= (finished.errors["mse_over_theory"] or 0.0) <= 2.5


_DIGITS: Final[dict[str, dict[str, Any]]] = {
    "users' dummies": {"protocol": "digits", "dummies_per_user": 4.0},
    "one shuffler": {"protocol": "geo-digits", "shuffler": ShufflerSpec(noise=FLANKS)},
    "two shufflers": chain() | {"protocol": "geo-digits"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", _DIGITS)
async def test_20000_numbers_are_collected_as_digits(name: str, tmp_path: Path) -> None:
    """Numbers drawn evenly over the range have its middle as their mean; every count is exact."""
    # Fails by chance with probability below 1e-11: seven standard deviations.
    users, file, end = 20_000, tmp_path / "draft.toml", int(time.time()) + 3600
    fields: dict[str, Any] = {
        "domain_size": 1,
        "buckets": 0,
        "dummies_per_user": 0.0,
        "local_epsilon": math.inf,
        "numbers": NumberDraft(low=0.0, high=24.0, radices=(3, 3, 3)),
        "n_min": users // 2,
        "target_size": 2 * users,
        "deadline": end,
    }
    file.write_text(as_toml(draft(**fields | _DIGITS[name])), encoding="utf-8")
    plan = LoadPlan(mode="bulk", n_users=users)
    with ProgressBars(Console(quiet=True)) as bars:
        finished = await execute(local(plan, LoadTarget(draft=file)), plan, bars=bars)

    assert finished is not None
    assert finished.result is not None
    assert [] == [row for row in finished.rows if not row.holds]
    means = finished.result.estimate
    assert isinstance(means, Means)
    assert users == finished.result.n_users
    spread = math.hypot(means.standard_errors[0], 24 / math.sqrt(12 * users))
    assert abs(means.means[0] - 12) <= 7 * spread
    assert 0 < means.rounding_error < means.standard_errors[0] < 0.2
