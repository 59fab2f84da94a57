"""Time that stands still until it is moved: a rehearsal waits for nothing."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final
from unittest.mock import patch

START: Final = 1_000_000_000.0
"""Seconds since 1970 UTC; before every deadline that a rehearsal has."""
_CLOCKS: Final = ("time", "monotonic", "perf_counter", "process_time", "thread_time")


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


@contextmanager
def clocks_at(seconds: Callable[[], float]) -> Iterator[None]:
    """Let all of Python's clocks tell what is said here while a block runs."""
    with ExitStack() as stack:
        for clock in _CLOCKS:
            stack.enter_context(patch.object(time, clock, seconds))
            nanoseconds = patch.object(time, f"{clock}_ns", lambda: int(seconds() * 1e9))
            stack.enter_context(nanoseconds)
        yield
