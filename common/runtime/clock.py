"""Time as an argument."""

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time. Doubles in tests stand still or jump."""

    def now(self) -> float:
        """Seconds since 1970 UTC."""

    def elapsed(self) -> float:
        """Seconds since some moment; for pauses, whatever the time is set to."""


class SystemClock:
    """The machine's own clock; made in server.py and in deploy/ only."""

    def now(self) -> float:
        """Seconds since 1970 UTC."""
        return time.time()

    def elapsed(self) -> float:
        """Seconds since some moment; never goes back."""
        return time.monotonic()
