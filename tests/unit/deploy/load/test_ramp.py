import pytest

from deploy.load.ramp import Step, broken_by, judge


def _step(offered: float, achieved: float, p99: float = 10.0) -> Step:
    return Step(offered=offered, achieved=achieved, p99=p99, failures=0)


@pytest.mark.parametrize(
    ("step", "holds"),
    [
        (_step(100, 100), True),
        (_step(100, 95), True),
        (_step(100, 94.9), False),
        (_step(100, 100, p99=500), True),
        (_step(100, 100, p99=501), False),
    ],
)
def test_a_step_holds_if_users_get_through_as_fast_as_they_come(step: Step, *, holds: bool) -> None:
    """At least 95 in 100, and within the limit of the waits."""
    assert holds == (broken_by(step, p99_limit=500) is None)


def test_a_step_breaks_when_somebody_gave_up() -> None:
    """However fast the others got through."""
    step = Step(offered=100, achieved=99, p99=10.0, failures=1, given_up=1)

    assert "1 user gave up" == broken_by(step)


def test_the_last_step_before_the_first_break_is_what_holds() -> None:
    """Whatever held after it: that was luck."""
    steps = [_step(10, 10), _step(20, 20), _step(30, 20), _step(40, 40)]
    verdict = judge(steps)

    assert (steps[1], steps[2]) == (verdict.held, verdict.broke)
    assert "broke at 30 users a second" in verdict.sentence
    assert "held was 20 a second" in verdict.sentence


def test_a_ramp_may_end_below_the_breaking_point_or_begin_above_it() -> None:
    """And the sentence says so."""
    assert "up to 20 a second: the breaking point is above" in judge([_step(20, 20)]).sentence
    assert "not even the first step held" in judge([_step(20, 2)]).sentence
