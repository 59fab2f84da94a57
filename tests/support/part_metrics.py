"""Metrics of parts, for executors in tests."""

from analyzer.metrics import METRICS
from audit.harness.clock import ManualClock
from common.runtime.executor import PartMetrics
from common.runtime.metrics import Metrics


def part_metrics() -> PartMetrics:
    """Return the metrics of an analyzer's parts."""
    clock = ManualClock()
    return PartMetrics(Metrics(METRICS), clock)
