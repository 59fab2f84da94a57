"""The interface to the time, and the system's clock."""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of the time. Tests pass one that they set."""

    def now(self) -> float:
        """Seconds since 1970 UTC."""

    def elapsed(self) -> float:
        """Monotonic seconds since an arbitrary moment, for durations."""


class SystemClock:
    """The machine's own clock; made in server.py and in deploy/ only."""

    def now(self) -> float:
        """Seconds since 1970 UTC."""
        return time.time()

    def elapsed(self) -> float:
        """Monotonic seconds since an arbitrary moment."""
        return time.monotonic()
