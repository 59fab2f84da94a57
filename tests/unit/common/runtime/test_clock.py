import time

from common.runtime.clock import SystemClock, retry_pause, utc


def test_durations_do_not_follow_the_time_that_is_set() -> None:
    """The monotonic clock measures them."""
    before = time.monotonic()

    assert before <= SystemClock().elapsed() <= time.monotonic()


def test_pauses_between_retries_double_up_to_a_minute() -> None:
    """The first pause is one second."""
    assert [1, 2, 4, 60, 60] == [retry_pause(previous) for previous in (0, 1, 2, 31, 60)]


def test_a_time_outside_the_calendar_is_written_in_seconds() -> None:
    """A clock may be anywhere."""
    assert "1970-01-01 00:00:00 UTC" == utc(0.0)
    assert "1000000000000000 seconds since 1970 UTC" == utc(1e15)
