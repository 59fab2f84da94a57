"""Metrics of parts, for executors in tests."""

from analyzer.metrics import METRICS
from audit.harness.clock import ManualClock
from common.runtime.metrics import Metrics
from common.runtime.parts.executor import PartMetrics


def part_metrics() -> PartMetrics:
    """Return the metrics of an analyzer's parts."""
    clock = ManualClock()
    return PartMetrics(Metrics(METRICS), clock)
