"""Options of a load run: rates, ramps, arrivals, and options that are refused."""

import math
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
    ramp_from,
)

_DIGEST = "5b" * 32
_SERVICES = ["--shuffler", "127.0.0.1:1"]
_MINE = "--i-run-these-services"


@pytest.mark.parametrize(
    "wrong",
    [
        *({"rate": rate} for rate in (0.0, float("nan"), float("inf"))),
        {"concurrency": 0},
        {"pattern": "burst"},
        {"rate": 5.0, "pattern": "burst", "burst": 0},
        {"processes": 0},
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


@pytest.mark.parametrize(
    "wrong",
    [{"n_users": 0}, {"n_users": 10**9 + 1}, {"n_users": 10, "shares": {Behaviour.FLOODING: 1.0}}],
)
def test_an_invalid_crowd_is_refused(wrong: dict[str, Any]) -> None:
    """No users, more than a task may have, or no honest one."""
    with pytest.raises(PlanError):
        Crowd(**wrong)


def test_a_closed_loop_has_as_many_in_flight_as_one_shuffler_serves_well() -> None:
    """Users by themselves, or the calls that a connection may have at once."""
    assert 64 == LoadPlan().in_flight
    assert 4 == LoadPlan(mode="bulk").in_flight
    assert 8 == LoadPlan(mode="bulk", processes=2).in_flight
    assert 5 == LoadPlan(concurrency=5).in_flight


@pytest.mark.parametrize(
    ("text", "seconds", "rates", "users"),
    [
        ("100:400:4", 2.5, [100, 200, 300, 400], [250, 500, 750, 1000]),
        ("7:9:1", 10.0, [7], [70]),
    ],
)
def test_a_ramp_climbs_evenly(
    text: str, seconds: float, rates: list[float], users: list[int]
) -> None:
    """From the first rate to the last."""
    ramp = ramp_from(text, seconds=seconds)

    assert rates == ramp.rates
    assert users == ramp.users


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        *((text, {}) for text in ("", "1", "1:2", "a:b:c", "1:2:3:4", "1:2:0", "2:1:3")),
        *((text, {}) for text in ("0:1:2", "1:inf:2", "nan:2:2")),
        *(("1:2:3", {name: 0.0}) for name in ("seconds", "p99_limit")),
        ("1:2:3", {"seconds": math.inf}),
        ("1:2:3", {"p99_limit": math.nan}),
    ],
)
def test_an_invalid_ramp_is_refused(text: str, changes: dict[str, float]) -> None:
    """With the form that it must have, or the range."""
    with pytest.raises(PlanError):
        ramp_from(text, **changes)


def _step(offered: float, achieved: float, p99: float = 10.0, given_up: int = 0) -> Step:
    return Step(
        offered_users=offered,
        achieved_users=achieved,
        p99_ms=p99,
        failed_attempts=0,
        users_given_up=given_up,
    )


_RAMP = Ramp(first=10, last=40, steps=4, p99_limit=500)


@pytest.mark.parametrize(
    ("steps", "held", "broke", "sentence"),
    [
        ([_step(100, 95, p99=500)], 100, None, "up to 100 a second: the breaking point is above"),
        ([_step(100, 94.9)], None, "95 a second where 100 were offered", "no step held"),
        ([_step(100, 100, p99=501)], None, "the 99th percentile is 501 ms, above 500", "at 100"),
        ([_step(100, 99, given_up=1)], None, "1 user gave up", "broke at 100"),
        (
            [_step(10, 10), _step(20, 20), _step(30, 20), _step(40, 40)],
            20,
            "20 a second where 30 were offered",
            "broke at 30 .* last rate that held was 20",
        ),
    ],
)
def test_a_ramp_holds_up_to_the_last_step_before_the_first_break(
    steps: list[Step], held: float | None, broke: str | None, sentence: str
) -> None:
    """95 in 100 users a second, within the limit of waits, and nobody gives up."""
    *found, words = _RAMP.verdict(steps)

    assert [held, broke] == found
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
        (["--local", "--rate", "5", "--step-seconds", "9"], "leave --step-seconds out"),
        (["--local", "--rate", "5", "--burst", "9"], "leave --burst out"),
        ([*_SERVICES, _DIGEST, "--prepare", "u", "--processes", "2"], "leave --processes out"),
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
        ("services", "shuffler task i_run_these_services ramp step_seconds p99_limit processes"),
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
