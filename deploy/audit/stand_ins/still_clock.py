"""Time that stands still until it is moved: a rehearsal waits for nothing."""

from dataclasses import dataclass
from typing import Final

START: Final = 1_000_000_000.0
"""Seconds since 1970 UTC; before every deadline that a rehearsal has."""


@dataclass(slots=True)
class StillClock:
    """A clock that somebody moves on."""

    seconds: float = START

    def now(self) -> float:
        """Seconds since 1970 UTC."""
        return self.seconds

    def elapsed(self) -> float:
        """Seconds that it was moved on, and where it began."""
        return self.seconds
