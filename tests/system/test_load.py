"""Load runs against services that run as child processes, and that are killed meanwhile."""

import asyncio
import time

import numpy as np
import pytest
from rich.console import Console

from common.messages.submission import Outcome
from common.task.draft import TaskDraft
from deploy.clients.local_cluster import Cluster
from deploy.load.behaviour import assign, expected_answers, shares_from
from deploy.load.plan import Crowd, LoadPlan, Mode
from deploy.load.report import Bars, Finished
from deploy.load.run import LoadJob, execute, run
from deploy.load.sender import Tally
from deploy.load.target import serving
from deploy.load.users import seal


class Waiting(Bars):
    """Bars that know how many users are acknowledged."""

    acknowledged = 0

    def show_tally(self, tally: Tally) -> None:
        """Take note."""
        self.acknowledged = max(self.acknowledged, tally.acknowledged)
        super().show_tally(tally)


async def _under_kills(cluster: Cluster, plan: LoadPlan, n_users: int) -> Finished:
    """Kill both services while users are coming, one after the other, and start them again."""
    shares = shares_from("0.1")
    kinds = assign(n_users, shares, np.random.default_rng(plan.seed))
    stored = expected_answers(kinds)[Outcome.STORED]
    draft = TaskDraft(
        domain_size=100,
        buckets=13,
        dummies_per_user=1,
        local_epsilon=4.0,
        delta=1e-6,
        n_min=stored,
        target_size=stored,
        deadline=int(time.time()) + 3600,
        shuffler_key=cluster.shuffler_key,
    )
    async with serving(cluster, draft) as target:
        crowd = Crowd(n_users=n_users, shares=shares, dataset="zipf:100")
        users = seal(target.signed, crowd, seed=plan.seed)
        watched = Waiting(Console(quiet=True))
        running = asyncio.create_task(run(plan, target, users, watched))
        while watched.acknowledged < stored / 4 and not running.done():
            await asyncio.sleep(0.02)
        address = cluster.shuffler.address
        await cluster.shuffler.kill()
        await cluster.start_shuffler(address)
        address = cluster.analyzer.address
        await cluster.analyzer.kill()
        await cluster.start_analyzer(address)
        assert not running.done(), "it was over before a service was killed"
        return await running


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "rate"), [("users", 60.0), pytest.param("bulk", 2000.0, marks=pytest.mark.slow)]
)
async def test_no_user_is_lost_when_services_are_killed(
    cluster: Cluster, mode: Mode, rate: float
) -> None:
    """
    Everybody honest is acknowledged in the end, and counted once: what is not answered is sent
    again, the same bytes.
    """
    plan = LoadPlan(mode=mode, rate=rate, seed=2)
    finished = await _under_kills(cluster, plan, n_users=int(12 * rate))

    assert [] == [row for row in finished.rows if not row.holds]
    assert finished.result is not None
    assert finished.total.retries > 0
    assert finished.total.acknowledged == finished.result.n_users


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["users", "bulk"])
async def test_20000_users_with_a_tenth_misbehaving_are_counted_to_the_last(mode: Mode) -> None:
    """
    By `shuffledp load --local`; and the error is what theory says: over 915 items the ratio is
    within a half with certainty, as far as tests are concerned (its standard deviation is below
    .05, so this fails by chance with probability far below 1e-9).
    """
    job = LoadJob(
        kind="local",
        plan=LoadPlan(mode=mode),
        crowd=Crowd(n_users=20_000, shares=shares_from("0.1")),
    )
    with Bars(Console(quiet=True)) as bars:
        finished = await execute(job, bars)

    assert finished is not None
    assert finished.result is not None
    assert [] == [row for row in finished.rows if not row.holds]
    assert 19_000 <= finished.result.n_users == finished.total.acknowledged
    assert 0.5 <= (finished.errors["mse_over_theory"] or 0.0) <= 1.5
