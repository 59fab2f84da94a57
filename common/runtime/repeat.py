"""Work that a service repeats while it runs, and waits between."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from common.runtime import logs


async def repeat(
    work: Callable[[], Awaitable[object]], seconds: float, failure: str, *, wait: bool = False
) -> None:
    """Do `work` every `seconds`, with `wait` not at once; log each error as the event `failure`."""
    if wait:
        await asyncio.sleep(seconds)
    while True:
        try:
            await work()
        except Exception as error:  # noqa: BLE001  # it may succeed the next time
            logs.event(failure, logs.error_fields(error), level="ERROR")
        await asyncio.sleep(seconds)


async def wait_for_change(changed: asyncio.Event, seconds: float) -> None:
    """Wait until `changed` is set, for at most `seconds`, and clear it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await changed.wait()
    changed.clear()
