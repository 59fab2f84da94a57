import asyncio
import time
from contextlib import suppress

import pytest

from shuffledp.common.runtime.clock import SystemClock, repeat, retry_pause


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


@pytest.mark.parametrize("wait", [False, True])
async def test_work_goes_on_after_any_error(
    caplog: pytest.LogCaptureFixture, *, wait: bool
) -> None:
    """Each is logged, without its text; with `wait`, a pause comes first."""
    done: list[str] = []

    async def work() -> None:
        done.append("")
        if len(done) == 1:
            raise OSError("secret")

    with suppress(TimeoutError):
        async with asyncio.timeout(0):
            await repeat(work, 3600.0, "not done", wait=wait)
    assert len(done) == (not wait)
    done.clear()
    running = asyncio.create_task(repeat(work, 0.001, "not done", wait=wait))
    while len(done) < 3:
        await asyncio.sleep(0.001)
    running.cancel()
    assert {"not done"} == {record.getMessage() for record in caplog.records}
    assert "secret" not in caplog.text
