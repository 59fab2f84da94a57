"""Metrics of parts, for executors in tests."""

from shuffledp.analyzer.metrics import METRICS
from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.runtime.metrics import Metrics
from shuffledp.common.runtime.parts.executor import PartMetrics


def part_metrics() -> PartMetrics:
    """Return the metrics of an analyzer's parts."""
    clock = ManualClock()
    return PartMetrics(Metrics(METRICS), clock)
