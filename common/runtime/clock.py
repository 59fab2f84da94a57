"""The clock interface, the system's clock, and the pauses between retries."""

import time
from typing import Final, Protocol


class Clock(Protocol):
    """A source of time; tests pass one that they control."""

    def now(self) -> float:
        """Return the seconds since 1970 UTC."""

    def elapsed(self) -> float:
        """Return the monotonic seconds since an arbitrary moment, for durations."""


class SystemClock:
    """The machine's clock; created in server.py and in deploy/ only."""

    def now(self) -> float:
        """Return the seconds since 1970 UTC."""
        return time.time()

    def elapsed(self) -> float:
        """Return the monotonic seconds since an arbitrary moment."""
        return time.monotonic()


_MIN_PAUSE: Final = 1.0
_MAX_PAUSE: Final = 60.0


def retry_pause(previous: float) -> float:
    """Return the seconds before the next retry: twice the previous pause, clamped to 1 .. 60."""
    return min(max(_MIN_PAUSE, 2 * previous), _MAX_PAUSE)
