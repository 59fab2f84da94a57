"""Metrics of a store in PostgreSQL."""

from common.runtime.metrics import ProcessMetrics


class StoreMetrics:
    """Measures the connection to the store."""

    def __init__(self, process_metrics: ProcessMetrics) -> None:
        self._metrics = process_metrics.metrics
        self._window = process_metrics.window
        self._slowest: dict[int, float] = {}
        """Seconds of the slowest transaction of each window."""
        self._committed = False
        """Whether there has been a transaction."""
        self._metrics.on_collect(self._measure_slowest)

    def record_connection(self, *, connected: bool) -> None:
        """Record that the server is connected, or that the connection is lost."""
        self._metrics.set("shuffledp_store_connected", int(connected))

    def record_commit(self, seconds: float) -> None:
        """Record a committed transaction, reading ones included."""
        window = self._window()
        self._committed = True
        self._slowest[window] = max(seconds, self._slowest.get(window, 0.0))

    def _measure_slowest(self) -> None:
        now = self._window()
        if self._committed:
            slowest = self._slowest.get(now - 1, 0.0)
            self._metrics.set("shuffledp_store_commit_seconds", slowest)
        for window in list(self._slowest):
            if window < now - 1:
                self._slowest.pop(window, None)
