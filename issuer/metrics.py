"""Metrics of the issuer, defined in common/runtime/metrics.py."""

from collections import Counter
from collections.abc import Callable

from common.runtime.metrics import ProcessMetrics, TokenOutcome


class IssuanceMetrics:
    """Counts answers in whole windows of five minutes, which hides the times of single calls."""

    def __init__(self, process_metrics: ProcessMetrics, keys_held: Callable[[], int]) -> None:
        """`keys_held` counts the keys that the issuer holds."""
        self._metrics = process_metrics.metrics
        self._now = process_metrics.window
        self._keys_held = keys_held
        self._in_window: Counter[TokenOutcome] = Counter()
        self._window = self._now()
        self._metrics.on_collect(self._read)

    def record(self, outcome: TokenOutcome) -> None:
        """Record an answer."""
        self._show_last_window()
        self._in_window[outcome] += 1

    def _show_last_window(self) -> None:
        """Add the counts of a window that is over."""
        if self._window == self._now():
            return
        counts, self._in_window, self._window = self._in_window, Counter(), self._now()
        for outcome, count in counts.items():
            if outcome in {"issued", "repeated"}:
                self._metrics.add(f"shuffledp_tokens_{outcome}_total", count)
            else:
                self._metrics.add("shuffledp_tokens_refused_total", count, {"cause": outcome})

    def _read(self) -> None:
        self._show_last_window()
        self._metrics.set("shuffledp_token_keys", self._keys_held())
