"""What calls and background work run into, told by whole five minutes: no single call shows."""

from typing import Final

from common.errors import OverloadError, ShareError, StorageError
from common.runtime.clock import Clock
from common.runtime.metric_table import MetricName
from common.runtime.metrics import Metrics

WINDOW: Final = 300.0
"""Seconds: what happened in one of these is told for the whole of the next."""
_WHAT: Final[tuple[tuple[MetricName, type[Exception]], ...]] = (
    ("shuffledp_overloaded", OverloadError),
    ("shuffledp_storage_failing", StorageError),
)


class Incidents:
    """Remembers in which five minutes there was no room, or the disk failed."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._windows: dict[MetricName, set[int]] = {name: set() for name, _ in _WHAT}
        metrics.ask(self._read)

    def note(self, error: BaseException) -> None:
        """
        Take note of an error; most are none of these.

        One client that had its share is none, and neither is a call that no answer depends on.
        """
        if isinstance(error, ShareError):
            return
        for name, kind in _WHAT:
            if isinstance(error, kind):
                self._windows[name].add(self._window())

    async def _read(self) -> None:
        now = self._window()
        for name, windows in self._windows.items():
            windows -= {window for window in windows if window < now - 1}
            if self._metrics.tells(name):
                self._metrics.set(name, now - 1 in windows)

    def _window(self) -> int:
        return int(self._clock.elapsed() // WINDOW)
