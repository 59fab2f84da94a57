"""The search for the least noise that meets a target."""

import math

import pytest

from shuffledp.lab.planning.calibration import least_noise, log_excess

_SLACK = 1e-3


@pytest.mark.parametrize("start", [-3.0, -0.1, 0.0, 0.3, 2.0])
@pytest.mark.parametrize("slope", [0.4, 1.0, 2.5])
def test_few_attempts_find_a_level_just_below_the_target(start: float, slope: float) -> None:
    """For an excess that is nearly linear; within the slack, and never above."""
    tried: list[float] = []

    def attempt(level: float) -> tuple[str, float]:
        tried.append(level)
        return f"{level}", slope * level + 0.01 * level**2

    found = least_noise(attempt, start=start, slack=_SLACK, max_step=1.5)

    assert found is not None
    design, level = found
    assert f"{level}" == design
    assert -_SLACK <= slope * level + 0.01 * level**2 <= 0
    assert len(tried) <= 9


def test_the_least_noise_that_passed_is_kept() -> None:
    """Where the target lies between two steps of a staircase, the step below it is found."""
    found = least_noise(
        lambda level: (round(level, 1), round(level, 1) - 0.25),
        start=0.0,
        slack=_SLACK,
        max_step=1.5,
    )

    assert found is not None
    assert found[0] == 0.2


@pytest.mark.parametrize("excess", [0.5, math.inf])
def test_a_target_that_no_noise_meets_has_no_design(excess: float) -> None:
    """Nor has one that only impossible noise would meet."""
    assert None is least_noise(lambda _: ("", excess), start=0.0, slack=_SLACK, max_step=1.5)
    assert None is least_noise(
        lambda level: (None, -math.inf) if level < -1 else ("", 0.5),
        start=0.0,
        slack=_SLACK,
        max_step=1.5,
    )


def test_the_sign_follows_the_accountant() -> None:
    """Rounding of μ neither passes what misses nor fails what meets the target."""
    assert 0.0 == log_excess((1.0, 1e-6), (1.0, 1e-6))
    assert log_excess((1.0, math.nextafter(1e-6, 1)), (1.0, 1e-6)) > 0
    assert log_excess((math.nextafter(1.0, 2), 1e-6), (1.0, 1e-6)) > 0
    assert -math.inf == log_excess((1.0, 0.0), (1.0, 1e-6))
    assert math.inf == log_excess((math.inf, 1e-6), (1.0, 1e-6))
