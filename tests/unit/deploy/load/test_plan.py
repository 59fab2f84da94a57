import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common.errors import PlanError
from deploy.load.behaviour import Behaviour
from deploy.load.job import Job, Remote
from deploy.load.plan import Crowd, LoadPlan, Ramp, ramp_from


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "single"},
        {"pattern": "waves", "rate": 1.0},
        {"rate": 0.0},
        {"rate": float("nan")},
        {"rate": float("inf")},
        {"pattern": "burst"},
        {"concurrency": 0},
        {"burst": 0},
        {"processes": 0},
        {"processes": 10_000},
        {"patience": -1.0},
        {"mode": "bulk", "fetch_task": True},
        {"rate": 1.0, "ramp": Ramp(first=1, last=2, steps=2)},
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    """Before anything is started."""
    with pytest.raises(PlanError):
        LoadPlan(**wrong)


@pytest.mark.parametrize(
    "plan",
    [
        lambda: LoadPlan(rate=math.inf),
        lambda: LoadPlan(patience=math.inf),
        lambda: Ramp(first=1, last=math.inf, steps=2),
        lambda: Ramp(first=1, last=2, steps=2, seconds=math.inf),
    ],
)
def test_what_has_no_end_is_refused_for_that(plan: Callable[[], object]) -> None:
    """It is above 0; the rule that it breaks is another."""
    with pytest.raises(PlanError, match=r"inf.* finite"):
        plan()


def test_a_closed_loop_has_as_many_under_way_as_one_shuffler_serves_well() -> None:
    """Users by themselves, or the calls that a connection may have at once."""
    assert 64 == LoadPlan().at_once
    assert 8 == LoadPlan(mode="bulk", processes=2).at_once
    assert 5 == LoadPlan(concurrency=5).at_once


def test_a_ramp_climbs_evenly_for_so_many_seconds_a_step() -> None:
    """From, to, and all between."""
    ramp = ramp_from("100:400:4", seconds=2.5, p99_limit=900)

    assert [100, 200, 300, 400] == ramp.rates
    assert [250, 500, 750, 1000] == ramp.users


def test_a_ramp_of_one_step_is_its_first_rate() -> None:
    """And not a division by nothing."""
    assert [7] == Ramp(first=7, last=9, steps=1).rates


@pytest.mark.parametrize(
    "text", ["", "1", "1:2", "a:b:c", "1:2:0", "2:1:3", "0:1:2", "1:inf:2", "1:2:3:4", "nan:2:2"]
)
def test_what_is_no_ramp_is_refused(text: str) -> None:
    """With the form that it must have."""
    with pytest.raises(PlanError):
        ramp_from(text, seconds=1, p99_limit=1)


@pytest.mark.parametrize("n_users", [0, 10**9 + 1])
def test_a_crowd_of_nobody_or_of_too_many_is_refused(n_users: int) -> None:
    """A task has at most 10^9 users."""
    with pytest.raises(PlanError):
        Crowd(n_users=n_users)


def test_a_crowd_in_which_nobody_is_honest_is_refused() -> None:
    """Nothing could be compared."""
    with pytest.raises(PlanError):
        Crowd(n_users=10, shares={Behaviour.FLOODING: 1.0})


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "local", "prepare": Path("a")},
        {"kind": "local", "replay": Path("a"), "crowd": None},
        {"kind": "services", "prepare": Path("a"), "replay": Path("b"), "crowd": None},
        {"kind": "sink", "replay": Path("a")},
        {"kind": "sink", "crowd": None},
        {"kind": "services", "draft": Path("a")},
        {"kind": "services", "close": True},
    ],
)
def test_options_that_exclude_each_other_are_refused(wrong: dict[str, Any]) -> None:
    """Before a service is started."""
    fields: dict[str, Any] = {"plan": LoadPlan(), "crowd": Crowd(n_users=5)} | wrong
    with pytest.raises(PlanError):
        Job(**fields)


def test_an_analyzer_without_a_token_is_refused() -> None:
    """Nobody else may read a result."""
    with pytest.raises(PlanError, match="together"):
        Remote(shuffler="127.0.0.1:1", analyzer="127.0.0.1:2")
