"""
A service's clock for steps that cannot be undone: closing batches, destroying keys and evidence.

One wrong reading of the wall clock must not cause such a step. While the service runs, the wall
clock is compared with the clock that counts from the boot, which nobody can set. The last reading
is stored; at a start it is compared with the new one. When they disagree, the clock stands still at
the earliest time that may be right, so that nothing becomes due by either: the stored time may be
the wrong one. It goes on when the wall clock returns, or when an operator confirms it.
"""

import asyncio
import json
import math
import os
import threading
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Final, Protocol

from shuffledp.common.dates import utc
from shuffledp.common.errors import SettingsError, ShuffleDpError
from shuffledp.common.runtime import logs
from shuffledp.common.runtime.clock import Clock, ComparedClock, Reading, repeat
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.validation import read_file

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
