import asyncio
from contextlib import suppress

import pytest

from common.runtime.repeat import repeat


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
