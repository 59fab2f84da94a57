"""
A service's clock for steps that cannot be undone: closing batches, destroying keys and evidence.

One wrong reading of the wall clock must not cause such a step. While the service runs, the wall
clock is compared with the clock that counts from the boot, which nobody can set. The last reading
is stored; at a start it is compared with the new one. When they disagree, the clock stands still:
nothing becomes due that was not due before. It goes on when the wall clock returns, or when an
operator confirms it.
"""

import asyncio
import json
import threading
from dataclasses import asdict
from functools import partial
from typing import Final, Protocol

from common.errors import SettingsError, ShuffleDpError
from common.runtime import logs
from common.runtime.clock import Clock, Reading, utc
from common.runtime.database import storage_failures
from common.runtime.repeat import repeat
from common.runtime.state_directory import StateDirectory

TOLERANCE: Final = 60.0
"""Seconds by which the wall clock may be stepped between two stored readings. Time servers correct
a running clock by less; an hour, as by a wrong time zone, is far more."""
LONGEST_STOP: Final = 1800.0
"""Seconds for which a service's machine may be off. Less than the hour of a wrong time zone."""
_FILE: Final = "clock.json"
_SAVE_SECONDS: Final = 600.0
"""Seconds between two writes of the time; also between two reports of a clock that disagrees."""
_CHECK_SECONDS: Final = 1.0


class MachineClock(Clock, Protocol):
    """The clocks of a machine."""

    def reading(self) -> Reading:
        """Read the wall clock, and the clock that counts from the boot."""


class ConfirmedClock:
    """A clock that stands still while the machine's clock is not confirmed. Thread-safe."""

    def __init__(
        self, state: StateDirectory, machine: MachineClock, longest_stop: float = LONGEST_STOP
    ) -> None:
        """
        Compare the machine's clock with the reading that an earlier run stored in `state`.

        Without one, the machine's clock is taken as right. After a boot, at most `longest_stop`
        seconds may have passed since the stored reading.

        Raises SettingsError if the stored reading is damaged.
        """
        self._state, self._machine, self._longest_stop = state, machine, longest_stop
        self._lock = threading.Lock()
        self._told_at: float | None = None
        """When the present disagreement was last logged, in seconds since the boot."""
        self._stored = stored_reading(state)
        """The content of the file."""
        found = machine.reading()
        self._trust(found)
        if self._stored is not None:
            self._compare_with(self._stored, found)
        self.check()

    def now(self) -> float:
        """Return the seconds since 1970 UTC; the last confirmed ones while the clock disagrees."""
        with self._lock:
            return self._now(self._machine.reading())

    def elapsed(self) -> float:
        """Return the monotonic seconds since an arbitrary moment."""
        return self._machine.elapsed()

    def check(self, oldest: float = _SAVE_SECONDS) -> None:
        """Compare the clocks; store a confirmed time if the stored one is older than `oldest`."""
        with self._lock:
            found = self._machine.reading()
            self._now(found)
            due = self._told_at is None and self._is_due(found, oldest)
        if due:
            _store(self._state, found)  # nobody waits for the disk
            with self._lock:
                self._stored = found
                self._trust(found)

    def close(self) -> None:
        """Store the time at which the service stops."""
        self.check(oldest=0.0)

    async def run(self) -> None:
        """Check the clock for as long as the service runs."""
        await repeat(partial(asyncio.to_thread, self.check), _CHECK_SECONDS, "time not stored")

    def _is_due(self, found: Reading, oldest: float) -> bool:
        stored = self._stored
        if stored is None:
            return True
        rebooted = stored.boot != found.boot or stored.since_boot > found.since_boot
        return found.wall > stored.wall + (0.0 if rebooted else oldest)

    def _now(self, found: Reading) -> float:
        if not self._agrees(found):
            self._find_confirmation(found)
        if self._agrees(found):
            self._last = found.wall
            if self._slack:
                self._trust(found)
            if self._told_at is not None:
                self._told_at = None
                logs.event("clock agrees again", self._times(found))
        elif self._told_at is None or found.since_boot > self._told_at + _SAVE_SECONDS:
            self._told_at = found.since_boot
            logs.event(
                "clock disagrees: nothing is closed or destroyed until it is confirmed",
                self._times(found),
                level="ERROR",
            )
        return self._last

    def _trust(self, found: Reading) -> None:
        """Take a reading as right, and compare later ones with it."""
        self._wall, self._since_boot, self._slack = found.wall, found.since_boot, 0.0
        self._last = found.wall

    def _compare_with(self, stored: Reading, found: Reading) -> None:
        """Compare readings with a stored one, which may be of an earlier boot."""
        self._trust(stored)
        known = stored.boot == found.boot != "" and stored.since_boot <= found.since_boot
        if not known:
            self._since_boot, self._slack = found.since_boot, self._longest_stop

    def _expected(self, found: Reading) -> float:
        return self._wall + found.since_boot - self._since_boot

    def _agrees(self, found: Reading) -> bool:
        return -TOLERANCE <= found.wall - self._expected(found) <= TOLERANCE + self._slack

    def _find_confirmation(self, found: Reading) -> None:
        """Compare with the stored reading if an operator replaced it."""
        try:
            stored = stored_reading(self._state)
        except ShuffleDpError:
            return
        if stored is not None and stored != self._stored:
            self._stored = stored
            self._compare_with(stored, found)

    def _times(self, found: Reading) -> dict[logs.Field, str]:
        return {"clock": utc(found.wall), "expected": utc(self._expected(found))}


def confirm(state: StateDirectory, reading: Reading) -> Reading | None:
    """
    Store a reading as right; return the one stored before. Run by an operator.

    A running service notices it within a second. Raises SettingsError if no service has stored a
    reading in this directory.
    """
    if not (state.path / _FILE).exists():
        raise SettingsError(f"{state.path} has no {_FILE}: it is not a service's state directory")
    try:
        before = stored_reading(state)
    except SettingsError:  # damaged: it is replaced
        before = None
    _store(state, reading)
    return before


def stored_reading(state: StateDirectory) -> Reading | None:
    """Return the reading in a state directory; None if there is none, SettingsError if damaged."""
    path = state.path / _FILE
    with storage_failures():
        content = path.read_bytes() if path.exists() else None
    if content is None:
        return None
    try:
        fields = json.loads(content)
        return Reading(
            wall=float(fields["wall"]),
            since_boot=float(fields["since_boot"]),
            boot=str(fields["boot"]),
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise SettingsError(
            f"{path} is damaged: check the machine's clock, then run shuffledp keys confirm-clock "
            f"{state.path}"
        ) from error


def _store(state: StateDirectory, reading: Reading) -> None:
    state.publish(_FILE, json.dumps(asdict(reading)) + "\n")
