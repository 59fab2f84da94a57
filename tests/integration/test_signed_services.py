"""The protocol `signed` over the three services, with twenty thousand users."""

import math

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.task.task import Task
from shuffledp.deploy.load.behaviour import LoadPlan
from shuffledp.deploy.load.report import ProgressBars
from shuffledp.deploy.load.run import execute
from shuffledp.lab.planning.requirements import Requirements
from shuffledp.lab.simulate.collection import collect, estimate_histogram
from tests.support.requirements import designed
from tests.support.services import Services

_USERS = 20_000
_BATCHES = 300


@pytest.mark.slow
async def test_a_planned_task_has_the_simulators_errors_and_the_tasks_lengths(
    services: Services,
) -> None:
    """
    Errors of the released shares, and lengths of submissions for every group of values.

    Seeds 6 and 7; each of five tests fails by chance with probability 1e-7.
    """
    wanted = Requirements(
        n_users=_USERS,
        n_min=_USERS,
        domain_size=100,
        central_epsilon=1.0,
        delta=1e-6,
        messages_cap=4.0,
    )
    design = designed("signed", wanted)
    signed = await services.publish(
        protocol="signed",
        local_epsilon=math.inf,
        buckets=0,
        dummies_per_user=0.0,
        dummies=design.unclaimed.dummies,
        n_min=_USERS,
        target_size=_USERS,
    )
    task = Task.from_bytes(signed.task_bytes)
    plan = LoadPlan(n_users=_USERS, dataset="zipf:100", mode="bulk", seed=6)
    finished = await execute(
        services.load_target(signed), plan, bars=ProgressBars(Console(quiet=True))
    )

    assert finished is not None
    assert finished.counts_match
    assert finished.result is not None
    assert () == finished.result.warnings
    assert task.central_epsilon <= 1

    users = np.bincount(finished.users.values, minlength=100)
    errors = finished.result.histogram.frequencies - users / _USERS
    mechanism, rng = mechanism_of(task), np.random.default_rng(7)
    simulated = [collect(task, mechanism, users, rng, one_by_one=False) for _ in range(_BATCHES)]
    expected = [
        estimate_histogram(task, mechanism, counts, _USERS)[0].frequencies - users / _USERS
        for counts in simulated
    ]
    assert stats.ks_2samp(errors, np.concatenate(expected)).pvalue > 1e-7

    sizes, values = finished.users.sizes, finished.users.values
    assert set(sizes.tolist()) == set(task.envelope_sizes)
    places = np.searchsorted(task.envelope_sizes, sizes)
    for group in (values == 0, values % 2 == 0, values % 2 == 1, values >= 50):
        seen = np.bincount(places[group], minlength=len(task.lengths))
        chances = task.dummies.length_probabilities() * group.sum()
        assert stats.chisquare(seen, chances).pvalue > 1e-7
