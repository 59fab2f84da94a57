import time

from common.runtime.clock import SystemClock


def test_durations_do_not_follow_the_time_that_is_set() -> None:
    """They are measured by the monotonic clock."""
    before = time.monotonic()

    assert before <= SystemClock().elapsed() <= time.monotonic()
