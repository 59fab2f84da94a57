"""The load generator at full size, on child processes."""

import pytest
from rich.console import Console

from deploy.load.behaviour import shares_from
from deploy.load.plan import LoadPlan
from deploy.load.report import ProgressBars
from deploy.load.run import execute
from deploy.load.sending import Mode
from deploy.load.target import local


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["users", "bulk"])
async def test_20000_users_with_a_tenth_misbehaving_are_counted_to_the_last(mode: Mode) -> None:
    """Every count of `shuffledp load --local` is exact, and the mean squared error as predicted."""
    # Fails by chance with probability below 1e-9: the ratio's standard deviation is below .05.
    plan = LoadPlan(mode=mode, n_users=20_000, shares=shares_from("0.1"))
    with ProgressBars(Console(quiet=True)) as bars:
        finished = await execute(local(plan), plan, bars=bars)

    assert finished is not None
    assert finished.result is not None
    assert [] == [row for row in finished.rows if not row.holds]
    assert 19_000 <= finished.result.n_users == finished.tally.acknowledged
    assert 0.5 <= (finished.errors["mse_over_theory"] or 0.0) <= 1.5
