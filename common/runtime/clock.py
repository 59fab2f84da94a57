"""The clock interface, the system's clock, and background work: its repetition and its end."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

from shuffledp.common.runtime import logs

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """A source of time; tests pass one that they control."""

    def now(self) -> float:
        """Return the seconds since 1970 UTC."""

    def elapsed(self) -> float:
        """Return the monotonic seconds since an arbitrary moment, for durations."""


class ComparedClock(Clock, Protocol):
    """A clock that is compared with another one, and stands still while they disagree."""

    def confirmed_now(self) -> float | None:
        """Return the seconds since 1970 UTC; None while the clocks disagree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One reading of a machine's two clocks."""

    wall: float
    """Seconds since 1970 UTC, by the wall clock, which can be set."""
    since_boot: float
    """Seconds since the boot, suspended ones included, by a clock that nobody can set."""
    boot: str
    """Random name of this boot of the machine; empty if a sandbox hides it."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.wall) and math.isfinite(self.since_boot)):
            raise ValueError("the times of a reading must be finite")


class SystemClock(ComparedClock):
    """The machine's clock; created in server.py and in deploy/ only."""

    def now(self) -> float:
        return time.time()

    def confirmed_now(self) -> float:
        """Return the same as `now`: there is nothing to compare it with."""
        return time.time()

    def elapsed(self) -> float:
        return time.monotonic()

    def reading(self) -> Reading:
        """Read the wall clock, and the clock that counts from the boot."""
        since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
        return Reading(wall=time.time(), since_boot=since_boot, boot=_boot_id())


@cache
def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:  # hidden by a sandbox
        return ""


_MIN_PAUSE: Final = 1.0
_MAX_PAUSE: Final = 60.0


def retry_pause(previous: float) -> float:
    """Return the seconds before the next retry: twice the previous pause, clamped to 1 .. 60."""
    return min(max(_MIN_PAUSE, 2 * previous), _MAX_PAUSE)


async def repeat(
    work: Callable[[], Awaitable[object]], seconds: float, failure: str, *, wait: bool = False
) -> None:
    """
    Run `work` every `seconds` until cancelled; first after a pause if `wait`.

    Its errors are logged as the event `failure`.
    """
    if wait:
        await asyncio.sleep(seconds)
    while True:
        try:
            await work()
        except Exception as error:  # noqa: BLE001  # it may succeed the next time
            logs.event(failure, logs.error_fields(error), level="ERROR")
        await asyncio.sleep(seconds)


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel background work, and wait for its end."""
    running = list(tasks)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def wait_for_change(changed: asyncio.Event, seconds: float) -> None:
    """Wait until `changed` is set, for at most `seconds`, and clear it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await changed.wait()
    changed.clear()
