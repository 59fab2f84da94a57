import math

import pytest

from shuffledp.deploy.terminal.durations import (
    format_duration,
    format_range,
    format_time,
    format_times,
)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "0 seconds"),
        (1.9, "1 second"),
        (61, "1 minute 1 second"),
        (125, "2 minutes"),
        (3600, "1 hour"),
        (3900, "1 hour 5 minutes"),
        (86400 * 3 + 7200, "3 days"),
    ],
)
def test_a_duration_is_written_in_its_largest_unit(seconds: float, expected: str) -> None:
    """The next smaller unit is added if the count of the largest is 1."""
    assert expected == format_duration(seconds)


@pytest.mark.parametrize(
    ("soonest", "latest", "expected"),
    [
        (0, 0, "0 seconds"),
        (1.2, 1.9, "1 to 2 seconds"),
        (130, 290, "2 to 5 minutes"),
        (3500, 86400 * 2, "0 to 2 days"),
        (600, math.inf, "10 minutes or much more"),
        (1e9, math.inf, "more than a year"),
    ],
)
def test_a_range_is_rounded_outwards(soonest: float, latest: float, expected: str) -> None:
    """The printed range is never narrower than the forecast."""
    assert expected == format_range(soonest, latest)


def test_a_moment_beyond_the_calendar_is_written() -> None:
    """A task may have a deadline in the year 36812."""
    assert "1 January 2030, 00:00 UTC" == format_time(1_893_456_000)
    assert "1,099,511,627,776 seconds after 1970" == format_time(2**40)


@pytest.mark.parametrize(
    ("moments", "clocks"),
    [
        ([0, 60], ["00:00 UTC", "00:01 UTC"]),
        ([0, 0], ["00:00 UTC", "00:00 UTC"]),
        ([10, 70], ["00:00 UTC", "00:01 UTC"]),
        ([10, 40, 70], ["00:00:10 UTC", "00:00:40 UTC", "00:01:10 UTC"]),
        ([], []),
    ],
)
def test_times_have_seconds_where_these_tell_them_apart(
    moments: list[int], clocks: list[str]
) -> None:
    """All of a list have them, or none."""
    assert [f"1 January 1970, {clock}" for clock in clocks] == format_times(moments)
