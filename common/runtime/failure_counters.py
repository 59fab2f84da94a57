"""Overload and failing disks, told by whole five minutes: no single call shows."""

from typing import Final

from common.errors import OverloadError, ShareError, StorageError
from common.runtime.clock import Clock
from common.runtime.metrics import Metrics

WINDOW: Final = 300.0
"""Seconds: failures in one window are told for the whole of the next."""
_WATCHED: Final[tuple[tuple[str, type[Exception]], ...]] = (
    ("shuffledp_overloaded", OverloadError),
    ("shuffledp_storage_failing", StorageError),
)


class FailureCounters:
    """Remembers the windows in which there was no room, or the disk failed."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._windows: dict[str, set[int]] = {
            name: set() for name, _ in _WATCHED if metrics.has(name)
        }
        metrics.ask(self._read)

    def note(self, error: BaseException) -> None:
        """Count an error of one of the watched kinds; a connection's own share is none."""
        for name, kind in _WATCHED:
            if isinstance(error, kind) and not isinstance(error, ShareError):
                self._windows.get(name, set()).add(self._window())

    def _read(self) -> None:
        now = self._window()
        for name, windows in self._windows.items():
            windows -= {window for window in set(windows) if window < now - 1}
            self._metrics.set(name, now - 1 in windows)

    def _window(self) -> int:
        return int(self._clock.elapsed() // WINDOW)
