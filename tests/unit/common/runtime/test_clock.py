import time

from common.runtime.clock import SystemClock, retry_pause


def test_durations_do_not_follow_the_time_that_is_set() -> None:
    """The monotonic clock measures them."""
    before = time.monotonic()

    assert before <= SystemClock().elapsed() <= time.monotonic()


def test_pauses_between_retries_double_up_to_a_minute() -> None:
    """The first pause is one second."""
    assert [1, 2, 4, 60, 60] == [retry_pause(previous) for previous in (0, 1, 2, 31, 60)]


def test_a_reading_has_the_wall_clock_and_the_time_since_the_boot() -> None:
    """Suspended time counts, so it is at least the monotonic time."""
    before, reading, after = time.time(), SystemClock().reading(), time.time()

    assert before <= reading.wall <= after
    assert time.monotonic() - 1 <= reading.since_boot
    assert reading.boot == SystemClock().reading().boot != ""
