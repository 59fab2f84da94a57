"""Options of a load run: rates, ramps, arrivals, and options that are refused."""

import re
from typing import Any

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from common.errors import PlanError, SettingsError
from deploy.cli import app
from deploy.load.behaviour import Behaviour
from deploy.load.plan import (
    Crowd,
    LoadPlan,
    Ramp,
    Step,
    TargetKind,
    arrivals,
    check_options,
    highest_held,
    ramp_from,
)

_DIGEST = "5b" * 32
_SERVICES = ["--shuffler", "127.0.0.1:1"]
_MINE = "--i-run-these-services"


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "single"},
        *({"rate": rate} for rate in (0.0, float("nan"), float("inf"))),
        {"concurrency": 0},
        {"burst": 0},
        {"patience": -1.0},
        {"patience": float("inf")},
        {"mode": "bulk", "fetch_task": True},
        {"rate": 1.0, "ramp": Ramp(first=1, last=2, steps=2)},
    ],
)
def test_an_invalid_plan_is_refused(wrong: dict[str, Any]) -> None:
    """Before anything is started."""
    with pytest.raises(PlanError):
        LoadPlan(**wrong)


@pytest.mark.parametrize("n_users", [0, 10**9 + 1])
def test_a_crowd_of_no_or_too_many_users_is_refused(n_users: int) -> None:
    """A task has at most 10^9 users."""
    with pytest.raises(PlanError):
        Crowd(n_users=n_users)


def test_a_crowd_without_an_honest_user_is_refused() -> None:
    """Nothing could be compared."""
    with pytest.raises(PlanError):
        Crowd(n_users=10, shares={Behaviour.FLOODING: 1.0})


def test_a_closed_loop_has_as_many_in_flight_as_one_shuffler_serves_well() -> None:
    """Users by themselves, or the calls that a connection may have at once."""
    assert 64 == LoadPlan().in_flight
    assert 4 == LoadPlan(mode="bulk").in_flight
    assert 5 == LoadPlan(concurrency=5).in_flight


@pytest.mark.parametrize(
    ("text", "rates", "users"),
    [
        ("100:400:4:2.5", [100, 200, 300, 400], [250, 500, 750, 1000]),
        ("100:200:2", [100, 200], [1000, 2000]),
        ("7:9:1", [7], [70]),
    ],
)
def test_a_ramp_climbs_evenly(text: str, rates: list[float], users: list[int]) -> None:
    """From the first rate to the last, ten seconds a step or as many as given."""
    ramp = ramp_from(text)

    assert rates == ramp.rates
    assert users == ramp.users


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "1:2", "a:b:c", "1:2:0", "2:1:3", "0:1:2", "1:inf:2", "nan:2:2"),
        *("1:2:3:0", "1:2:3:inf", "1:2:3:4:5"),
    ],
)
def test_an_invalid_ramp_is_refused(text: str) -> None:
    """With the form that it must have, or the range."""
    with pytest.raises(PlanError):
        ramp_from(text)


def _step(offered: float, achieved: float, p99: float = 10.0, given_up: int = 0) -> Step:
    return Step(
        offered=offered, achieved=achieved, p99=p99, failures=0, given_up=given_up, p99_limit=500
    )


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (_step(100, 95), None),
        (_step(100, 94.9), "95 a second where 100 were offered"),
        (_step(100, 100, p99=500), None),
        (_step(100, 100, p99=501), "the 99th percentile is 501 ms, above 500"),
        (_step(100, 99, given_up=1), "1 user gave up"),
    ],
)
def test_a_step_holds_if_users_get_through_as_fast_as_they_come(
    step: Step, reason: str | None
) -> None:
    """At least 95 in 100, within the limit of the waits, and all of them."""
    assert reason == step.broken_by


@pytest.mark.parametrize(
    ("steps", "held", "sentence"),
    [
        (
            [(10, 10), (20, 20), (30, 20), (40, 40)],
            20,
            r"broke at 30 .* last rate that held was 20",
        ),
        ([(20, 20)], 20, "up to 20 a second: the breaking point is above"),
        ([(20, 2)], None, "broke at 20 .* no step held"),
    ],
)
def test_the_last_step_before_the_first_break_is_what_holds(
    steps: list[tuple[float, float]], held: float | None, sentence: str
) -> None:
    """A step that holds after one that broke was lucky."""
    found, words = highest_held([_step(*step) for step in steps])

    assert held == found
    assert re.search(sentence, words), words


def test_steady_arrivals_keep_their_rate_and_are_independent() -> None:
    """
    Gaps of a Poisson process are exponential. Seed 5; fails by chance with probability 1e-7 over
    seeds.
    """
    moments, again = (arrivals(5000, 50.0, np.random.default_rng(5)) for _ in range(2))

    np.testing.assert_array_equal(moments, again)
    assert moments[-1] < 100
    assert (np.diff(moments) >= 0).all()
    assert stats.kstest(np.diff(moments), "expon", args=(0, 1 / 50)).pvalue > 1e-7


def test_bursts_come_at_once_and_keep_the_rate() -> None:
    """Three at a time, ten a second."""
    moments = arrivals(7, 10.0, np.random.default_rng(1), burst=3)

    np.testing.assert_allclose([0, 0, 0, 0.3, 0.3, 0.3, 0.6], moments)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--local", "--metrics", "x=http://127.0.0.1:1/m", "5b1f"], "leave TASK, --metrics out"),
        (["--local", "--analyzer", "a:1", "--token-file", "t"], "leave --analyzer, --token-file"),
        (["--sink", "--authority", "a.pem"], "leave --authority out"),
        (["--local", "--certificate", "c", "--key", "k"], "leave --certificate, --key out"),
        (["--local", _MINE], f"leave {_MINE} out"),
        (["--local", "--prepare", "u"], "leave --prepare out"),
        (["--local", "--replay", "u"], "leave --replay out"),
        (["--sink", "--close"], "leave --close out"),
        ([*_SERVICES, _DIGEST, "--draft", "d"], "leave --draft out"),
        ([*_SERVICES, _DIGEST, "--token-file", "t"], "leave --token-file out"),
        ([*_SERVICES, _DIGEST, "--prepare", "u", "--mode", "users"], "leave --mode out"),
        ([*_SERVICES, _DIGEST, "--prepare", "u", "--replay", "v"], "leave --replay out"),
        ([*_SERVICES, _DIGEST, "--shuffler-token-file", "t", _MINE], f"leave {_MINE} out"),
        ([*_SERVICES, "--replay", "u", "--users", "5"], "leave --users out"),
        (["--local", "--rate", "5", "--p99-limit", "9"], "leave --p99-limit out"),
        (["--local", "--burst", "9"], "leave --burst out"),
        (["--local", "--rate", "5", "--concurrency", "9"], "leave --concurrency out"),
        (["--local", "--sink"], "choose a target"),
        ([*_SERVICES, _MINE], "name the task"),
        ([*_SERVICES, _DIGEST, _MINE, "--analyzer", "a:1"], "--analyzer needs --token-file"),
        ([*_SERVICES, _DIGEST, _MINE, "--close"], "--close needs --shuffler-token-file"),
        ([*_SERVICES, _DIGEST, "--users", "5"], "--shuffler-token-file or --i-run-these-services"),
        ([*_SERVICES, "--replay", "u"], "--shuffler-token-file or --i-run-these-services"),
    ],
)
def test_an_option_without_effect_or_without_its_like_is_refused(
    given: list[str], message: str
) -> None:
    """By its name, before anything is read or started, also where it is the default."""
    result = CliRunner().invoke(app, ["load", *given])

    assert isinstance(result.exception, PlanError), result.output
    assert message in str(result.exception)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("services", "shuffler authority task users prepare seed dataset"),
        ("services", "shuffler replay task analyzer token_file metrics shuffler_token_file close"),
        ("services", "shuffler task i_run_these_services ramp p99_limit burst"),
        ("local", "local users rate misbehaving close draft"),
        ("sink", "sink replay mode concurrency"),
    ],
)
def test_options_that_have_an_effect_are_accepted(kind: TargetKind, given: str) -> None:
    """A task may be named beside a replayed file: then it must be that file's."""
    check_options(kind, given.split())


@pytest.mark.parametrize("given", [[_MINE], ["--shuffler-token-file", "t"], ["--prepare", "u"]])
def test_consent_is_a_word_or_a_token_and_preparing_needs_none(given: list[str]) -> None:
    """Then the next thing is looked at: here a file that does not exist."""
    asked = ["load", *_SERVICES, _DIGEST, "--authority", "nowhere/a.pem", *given]
    result = CliRunner().invoke(app, asked)

    assert isinstance(result.exception, SettingsError), result.output
    assert "cannot be read" in str(result.exception)
