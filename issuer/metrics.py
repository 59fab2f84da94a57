"""Metrics of the issuer: their allow-list, and counts of its answers."""

from collections import Counter
from collections.abc import Callable
from typing import Final, Literal, get_args

from shuffledp.common.runtime.metrics import OF_SERVERS, MetricRow, ProcessMetrics

_Refusal = Literal["credential", "second message", "key", "malformed", "cap"]
TokenOutcome = Literal["issued", "repeated", _Refusal]
"""Answers to requests for tokens."""

METRICS: Final = (
    *OF_SERVERS,
    MetricRow("shuffledp_token_keys", "Token keys held, one per task."),
    MetricRow("shuffledp_tokens_issued_total", "Tokens issued, in whole windows of five minutes."),
    MetricRow(
        "shuffledp_tokens_repeated_total",
        "Tokens issued again for the same message, in whole windows of five minutes.",
    ),
    MetricRow(
        "shuffledp_tokens_refused_total",
        "Requests for tokens that were refused, in whole windows of five minutes.",
        {"cause": get_args(_Refusal)},
    ),
)


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
