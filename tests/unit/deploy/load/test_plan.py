"""Options of a load run: rates, ramps, arrivals, and options that are refused."""

from typing import Any

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from common.errors import PlanError, SettingsError
from deploy.cli import app
from deploy.load.plan import (
    LoadPlan,
    Ramp,
    Step,
    arrivals,
    ramp_from,
)

_DIGEST = "5b" * 32
_SERVICES = ["--shuffler", "127.0.0.1:1"]
_MINE = "--i-run-these-services"


@pytest.mark.parametrize(
    "wrong",
    [
        {"pattern": "burst"},
        {"mode": "bulk", "fetch_task": True},
        {"rate": 1.0, "ramp": Ramp(first=1, last=2, steps=2)},
    ],
)
def test_options_that_exclude_each_other_are_refused(wrong: dict[str, Any]) -> None:
    """A rate and a ramp, bursts without a rate, tasks fetched in bulk."""
    with pytest.raises(PlanError):
        LoadPlan(**wrong)


def test_a_closed_loop_has_as_many_in_flight_as_one_shuffler_serves_well() -> None:
    """Users by themselves, or the calls that a connection may have at once."""
    assert 64 == LoadPlan().in_flight
    assert 4 == LoadPlan(mode="bulk").in_flight
    assert 8 == LoadPlan(mode="bulk", processes=2).in_flight
    assert 5 == LoadPlan(concurrency=5).in_flight


def test_a_ramp_climbs_evenly() -> None:
    """From the first rate to the last."""
    ramp = ramp_from("100:400:4", step_seconds=2.5)

    assert [100, 200, 300, 400] == ramp.rates
    assert [250, 500, 750, 1000] == ramp.users


@pytest.mark.parametrize(
    "text",
    ["", "1", "1:2", "a:b:c", "1:2:3:4", "1:2:0", "2:1:3", "0:1:2", "1:inf:2", "nan:2:2"],
)
def test_an_invalid_ramp_is_refused(text: str) -> None:
    """Another form, or numbers out of range."""
    with pytest.raises(PlanError):
        ramp_from(text)


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
    ("steps", "held", "broke"),
    [
        ([_step(100, 95, p99=500)], 100, None),
        ([_step(100, 94.9)], None, "95 a second where 100 were offered"),
        ([_step(100, 100, p99=501)], None, "the 99th percentile is 501 ms, above 500"),
        ([_step(100, 99, given_up=1)], None, "users gave up: 1"),
        (
            [_step(10, 10), _step(20, 20), _step(30, 20), _step(40, 40)],
            20,
            "20 a second where 30 were offered",
        ),
    ],
)
def test_a_ramp_holds_up_to_the_last_step_before_the_first_break(
    steps: list[Step], held: float | None, broke: str | None
) -> None:
    """95 of 100 users a second, within the limit of waits, and no user gives up."""
    assert (held, broke) == _RAMP.verdict(steps)


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
        (["--local", "--replay", "u"], "leave --replay out"),
        (["--sink", "--close"], "leave --close out"),
        ([*_SERVICES, _DIGEST, "--draft", "d"], "leave --draft out"),
        ([*_SERVICES, _DIGEST, "--token-file", "t"], "leave --token-file out"),
        ([*_SERVICES, _DIGEST, "--prepare", "u", "--mode", "users"], "leave --mode out"),
        ([*_SERVICES, _DIGEST, "--shuffler-token-file", "t", _MINE], f"leave {_MINE} out"),
        ([*_SERVICES, "--replay", "u", "--users", "5"], "leave --users out"),
        (["--local", "--rate", "5", "--p99-limit", "9"], "leave --p99-limit out"),
        (["--local", "--rate", "5", "--burst", "9"], "leave --burst out"),
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


@pytest.mark.parametrize("given", [[_MINE], ["--shuffler-token-file", "t"], ["--prepare", "u"]])
def test_consent_is_a_word_or_a_token_and_preparing_needs_none(given: list[str]) -> None:
    """The next failure is a file that does not exist."""
    asked = ["load", *_SERVICES, _DIGEST, "--authority", "nowhere/a.pem", *given]
    result = CliRunner().invoke(app, asked)

    assert isinstance(result.exception, SettingsError), result.output
    assert "cannot be read" in str(result.exception)
