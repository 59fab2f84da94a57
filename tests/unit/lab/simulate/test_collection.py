"""Simulating every report and drawing cell counts give the same distribution."""

import math
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from shuffledp.analyzer.finalize import mixture_of
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.mechanisms.support import SupportCounting
from shuffledp.common.task.domain_spec import EdgesSpec
from shuffledp.common.task.dummies import EXTRA_WEIGHT_SUM
from shuffledp.common.task.named_dummies import ItemDummies
from shuffledp.common.task.shuffler_spec import KEEP_SUM, RATIO_SUM, GeometricNoise, ShufflerSpec
from shuffledp.common.task.task import Task
from shuffledp.common.task.uniform_dummies import NegativeBinomialDummies
from shuffledp.lab.simulate.collection import (
    ONE_BY_ONE,
    collect,
    estimate_histogram,
    few_enough_reports,
)
from tests.support.moments import largest_deviation, moments
from tests.support.protocol_tasks import protocol_task
from tests.support.requirements import designed, small_requirements
from tests.support.tasks import published

_USERS: Final = np.array([6, 1, 0, 4])
_RUNS: Final = 500
_LIMIT: Final = 7.0
_QUARTER: Final = EXTRA_WEIGHT_SUM // 4
_FLANKS: Final = GeometricNoise(
    peak=3, left_weight=RATIO_SUM // 2, right_weight=RATIO_SUM // 3, most=20
)
_EACH: Final = ItemDummies(trials=4, most=4, extra_weight=_QUARTER)
_NEGATIVE: Final = NegativeBinomialDummies(per_user=0, trials=2, most=3, extra_weight=_QUARTER)
_CHAINS: Final = (("sageo", 1.0, 1.157), ("sageo", 0.1, 1.0), ("sbin", 0.5, 4.0))
"""Two shufflers: their protocol, central ε and coalition ε."""
_WANTED: Final[dict[str, dict[str, Any]]] = {
    "shuffler sampling": {
        "protocol": "sageo",
        "shuffler": ShufflerSpec(keep_weight=KEEP_SUM // 2, noise=_FLANKS),
    },
    "noise of both": {
        "protocol": "hybrid",
        "local_epsilon": 1.0,
        "shuffler": ShufflerSpec(noise=_FLANKS),
    },
    "a dummy of each item": {"protocol": "aue", "dummies": _EACH},
    "fractional": {"protocol": "puredump", "dummies_per_user": 0.25},
    "hierarchy": {
        "protocol": "hierarchy",
        "domain_size": 1,
        "buckets": 2,
        "dummies_per_user": 2.25,
        "edges": EdgesSpec(low=0.0, high=4.0, buckets=4),
    },
    "hashed": {"protocol": "od-hp", "local_epsilon": 1.0, "buckets": 2, "dummies": _NEGATIVE},
}


def _task(name: str) -> Task:
    plain = {"domain_size": 4, "buckets": 0, "dummies_per_user": 0, "local_epsilon": math.inf}
    limits = {"delta": 0.1, "n_min": 50, "target_size": 60}
    return published(**plain | limits | _WANTED[name]).task


def _collected(task: Task, seed: int, *, one_by_one: bool) -> NDArray[np.float64]:
    """Return support, or nodes, and numbers of reports; check that estimates are unbiased."""
    mechanism, rng, truth = mechanism_of(task), np.random.default_rng(seed), _USERS / _USERS.sum()
    rows, estimates, spreads = [], [], []
    for _ in range(_RUNS):
        counted = collect(task, mechanism, _USERS, rng, one_by_one=one_by_one)
        mixture = mixture_of(task, int(_USERS.sum()), counted=counted.n_reports)
        support = counted.cells
        if isinstance(mechanism, SupportCounting):
            support = mechanism.support_counts(counted.cells)
        rows.append(np.append(support, counted.n_reports))
        estimates.append(mechanism.debias(counted.cells, mixture))
        spreads.append(mechanism.variance(truth, mixture))
    error = np.sqrt(np.mean(spreads, axis=0) / _RUNS)
    assert (np.abs(np.mean(estimates, axis=0) - truth) < _LIMIT * error).all()
    return np.array(rows, dtype=np.float64)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in {"hashed", "noise of both"} else ())
        for name in _WANTED
    ],
)
def test_drawn_counts_have_the_distribution_of_simulated_reports(name: str) -> None:
    """Means and covariances of the items' support and of the number of reports agree."""
    # Seeds 1 and 2; fails by chance with probability below 1e-9.
    task = _task(name)
    made = _collected(task, 1, one_by_one=True)
    drawn = _collected(task, 2, one_by_one=False)
    centre = made.mean(axis=0)

    assert largest_deviation(moments(made, centre), moments(drawn, centre)) < _LIMIT


def test_only_small_collections_simulate_every_report() -> None:
    """The limit is thirty megabytes of reports; a dummy of each item is always drawn."""
    task = _task("fractional")
    messages = ONE_BY_ONE / task.mechanism.report_bytes / 1.25

    assert few_enough_reports(task, math.floor(messages))
    assert not few_enough_reports(task, math.ceil(messages) + 1)
    assert not few_enough_reports(_task("a dummy of each item"), 1)


def test_null_reports_of_clusters_are_not_counted() -> None:
    """One by one as in one draw: every counted report names an item."""
    task = protocol_task("signed")
    users = np.full(task.domain_size, 20)
    found = collect(task, mechanism_of(task), users, np.random.default_rng(3), one_by_one=True)

    assert users.sum() <= found.n_reports == found.cells.sum()


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "central", "coalition"), _CHAINS)
def test_two_shufflers_err_as_predicted(protocol: str, central: float, coalition: float) -> None:
    """
    The squared error of 200 batches of 915 items is within 3 % of the plan's, as of the analyzer's.

    Seed 5: the mean of 183,000 squared errors, of kurtosis up to 6, has a relative standard
    error of at most .53 %; it fails by chance with probability below 1e-7 over seeds.
    """
    target = small_requirements(
        domain_size=915, shufflers=2, central_epsilon=central, coalition_epsilon=coalition
    )
    design = designed(protocol, target)
    task, rng = design.task, np.random.default_rng(5)
    mechanism, users = mechanism_of(task), rng.multinomial(target.n_users, np.full(915, 1 / 915))
    errors, stated = [], []
    for _ in range(200):
        counts = collect(task, mechanism, users, rng, one_by_one=False)
        found, _ = estimate_histogram(task, mechanism, counts, target.n_users)
        errors.append(np.mean((found.frequencies - users / target.n_users) ** 2))
        stated.append(found.mse_theory)

    assert np.mean(errors) == pytest.approx(design.mse, rel=0.03)
    assert np.mean(stated) == pytest.approx(design.mse, rel=1e-3)
