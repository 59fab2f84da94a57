"""
Clocks: the system's, and one for steps that cannot be undone; and background work.

One wrong reading of the wall clock must not close a batch, or destroy keys or evidence. While a
service runs, the wall clock is compared with the clock that counts from the boot, which nobody can
set. The last reading is stored; at a start it is compared with the new one. When they disagree, the
clock stands still at the earliest time that may be right, so that nothing becomes due by either:
the stored time may be the wrong one. It goes on when the wall clock returns, or when an operator
confirms it.
"""

import asyncio
import json
import math
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Protocol

from shuffledp.common.dates import utc
from shuffledp.common.errors import SettingsError, ShuffleDpError
from shuffledp.common.runtime import logs
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.validation import read_file

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


TOLERANCE: Final = 60.0
"""Seconds by which the wall clock may be stepped between two stored readings. Time servers correct
a running clock by less; an hour, as by a wrong time zone, is far more."""
LONGEST_STOP: Final = 1800.0
"""Seconds for which a service's machine may be off. Less than the hour of a wrong time zone."""
_FILE: Final = "clock.json"
_MAX_BYTES: Final = 4096
_SAVE_SECONDS: Final = 600.0
"""Seconds between two writes of the time; also between two reports of a clock that disagrees."""
_CHECK_SECONDS: Final = 1.0


class MachineClock(Clock, Protocol):
    """The clocks of a machine."""

    def reading(self) -> Reading:
        """Read the wall clock, and the clock that counts from the boot."""


class ConfirmedClock(ComparedClock):
    """A clock that stands still while the machine's clock is not confirmed. Thread-safe."""

    def __init__(
        self, state: StateDirectory, machine: MachineClock, longest_stop: float = LONGEST_STOP
    ) -> None:
        """
        Compare the machine's clock with the reading that an earlier run stored in `state`.

        Without one, the machine's clock is taken as right. After a boot, at most `longest_stop`
        seconds may have passed since the stored reading.

        Raises SettingsError if the stored reading is damaged, StorageError if none can be stored.
        """
        self._state, self._machine, self._longest_stop = state, machine, longest_stop
        self._lock = threading.Lock()
        self._told_at: float | None = None
        """When the present disagreement was last logged, in seconds since the boot."""
        self._save_at = 0.0
        """When the time is next stored, in seconds since the boot."""
        self._stored = stored_reading(state)
        found = machine.reading()
        self._compare_with(self._stored or found, found)
        self.check()

    def now(self) -> float:
        """Return the seconds since 1970 UTC; the earliest possible while the clock disagrees."""
        with self._lock:
            self._compare(self._machine.reading())
            return self._last

    def confirmed_now(self) -> float | None:
        with self._lock:
            return self._last if self._compare(self._machine.reading()) else None

    def elapsed(self) -> float:
        return self._machine.elapsed()

    def check(self, *, stopping: bool = False) -> None:
        """
        Compare the clocks; store a confirmed time every ten minutes, and when `stopping`.

        Raises StorageError if it cannot be stored, as on a full disk; tried again after as long.
        """
        with self._lock:
            found = self._machine.reading()
            if not self._agrees(found):
                self._take_confirmed(found)
            due = self._compare(found) and (stopping or found.since_boot >= self._save_at)
            stored = self._stored
            due = due and (stored is None or found.wall > stored.wall)
            if due:
                self._save_at = found.since_boot + _SAVE_SECONDS
        if due:
            _store(self._state, found)  # nobody waits for the disk
            with self._lock:
                if self._stored is stored:  # no operator has confirmed another time meanwhile
                    self._stored = found
                    self._compare_with(found, found)

    def close(self) -> None:
        """Store the time at which the service stops."""
        self.check(stopping=True)

    async def run(self) -> None:
        """Check the clock for as long as the service runs."""
        await repeat(partial(asyncio.to_thread, self.check), _CHECK_SECONDS, "time not stored")

    def _compare_with(self, right: Reading, found: Reading) -> None:
        """Take a reading, perhaps of an earlier boot, as right, and compare later ones with it."""
        same = right is found or "" != right.boot == found.boot  # a sandbox may hide the boot
        known = same and right.since_boot <= found.since_boot
        self._right = right if known else replace(found, wall=right.wall)
        self._longest_off = 0.0 if known else self._longest_stop
        """Seconds for which the machine may have been off since the right reading."""
        self._last = right.wall
        """The time to show: while the clock disagrees, the least of this and what it showed."""

    def _compare(self, found: Reading) -> bool:
        """Set the last confirmed time if a reading agrees with the right one; log a change."""
        if self._agrees(found):
            if self._longest_off:
                self._compare_with(found, found)
            self._last = found.wall
            if self._told_at is not None:
                self._tell("clock agrees again", found, "INFO")
            self._told_at = None
            return True
        self._last = min(self._last, found.wall)
        if self._told_at is None or found.since_boot > self._told_at + _SAVE_SECONDS:
            self._told_at = found.since_boot
            event = "clock disagrees: nothing is closed or destroyed until it is confirmed"
            self._tell(event, found, "ERROR")
        return False

    def _tell(self, event: str, found: Reading, level: logs.Level) -> None:
        expected = found.wall - self._error(found)
        logs.event(event, {"clock": utc(found.wall), "expected": utc(expected)}, level=level)

    def _error(self, found: Reading) -> float:
        return (found.wall - self._right.wall) - (found.since_boot - self._right.since_boot)

    def _agrees(self, found: Reading) -> bool:
        return -TOLERANCE <= self._error(found) <= TOLERANCE + self._longest_off

    def _take_confirmed(self, found: Reading) -> None:
        """Take the stored reading as right if an operator has replaced it."""
        with suppress(ShuffleDpError):
            stored = stored_reading(self._state)
            if stored not in (None, self._stored):
                self._stored = stored
                self._compare_with(stored, found)
                if self._told_at is not None:
                    self._told_at = -math.inf  # a further jump is told at once


def confirm(state: StateDirectory, reading: Reading) -> None:
    """
    Store a reading as right. Run by an operator; a running service notices it within a second.

    Raises SettingsError if no service has stored a reading in this directory.
    """
    if not os.path.lexists(state.path / _FILE):
        raise SettingsError(f"{state.path} has no {_FILE}: it is not a service's state directory")
    _store(state, reading)


def stored_reading(state: StateDirectory) -> Reading | None:
    """Return the reading in a state directory; None if there is none, SettingsError if damaged."""
    path = state.path / _FILE
    if not os.path.lexists(path):
        return None
    try:
        return Reading(**json.loads(read_file(path, _MAX_BYTES)))
    except (SettingsError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise SettingsError(
            f"{path} is damaged or cannot be read: check the machine's clock, then run shuffledp "
            f"keys confirm-clock {state.path} or, if it is a folder, remove it"
        ) from error


def _store(state: StateDirectory, reading: Reading) -> None:
    state.publish(_FILE, json.dumps(asdict(reading)) + "\n")
