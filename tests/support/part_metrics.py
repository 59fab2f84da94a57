"""Metrics of parts, for executors in tests."""

from audit.harness.clock import ManualClock
from common.runtime.executor import PartMetrics
from common.runtime.metrics import ProcessMetrics


def part_metrics() -> PartMetrics:
    """Return the metrics of an analyzer's parts."""
    clock = ManualClock()
    return PartMetrics(ProcessMetrics("analyzer", clock).metrics, clock)
