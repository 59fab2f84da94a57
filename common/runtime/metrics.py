"""The metrics of one process: numbers for the rows of `metric_table.py`, and for nothing else."""

from collections.abc import Awaitable, Callable, Iterator

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from common.runtime.metric_table import TABLE, Labels, MetricKind, MetricName, Party


class Metrics(Collector):
    """The metrics of one process, for a registry of its own. Used by one thread, the event loop."""

    def __init__(self, party: Party) -> None:
        self._rows = {row.name: row for row in TABLE if party in row.parties}
        self._values: dict[MetricName, dict[tuple[str, ...], float]] = {
            name: {} if row.absent else dict.fromkeys(row.series(), 0.0)
            for name, row in self._rows.items()
        }
        self._sources: list[Callable[[], Awaitable[None]]] = []
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def tells(self, name: MetricName) -> bool:
        """Say whether the table gives this party a metric."""
        return name in self._rows

    def set(self, name: MetricName, value: float, labels: Labels | None = None) -> None:
        """
        Say how large a gauge is.

        Raises:
            ValueError: The table has no such series, or it is a counter's.
        """
        values, series = self._known(name, labels, MetricKind.GAUGE)
        values[series] = value

    def add(self, name: MetricName, by: float = 1.0, labels: Labels | None = None) -> None:
        """
        Advance a counter.

        Raises:
            ValueError: The table has no such series, it is a gauge's, or the counter would fall.
        """
        values, series = self._known(name, labels, MetricKind.COUNTER)
        if not by >= 0:
            raise ValueError(f"{name} only grows, and was to grow by {by}")
        values[series] += by

    def advance_to(self, name: MetricName, total: float) -> None:
        """
        Advance a counter that something else counts; it never falls.

        Raises:
            ValueError: The table has no such counter.
        """
        values, series = self._known(name, None, MetricKind.COUNTER)
        values[series] = max(total, values[series])

    def ask(self, source: Callable[[], Awaitable[None]]) -> None:
        """Let what changes by itself be set before the metrics are read."""
        self._sources.append(source)

    async def page(self) -> bytes:
        """Give all of them in Prometheus's text format."""
        for source in self._sources:
            await source()
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Give all of them to the registry."""
        for row in self._rows.values():
            family = row.kind.value(row.name, row.help, labels=[label for label, _ in row.labels])
            for values, value in self._values[row.name].items():
                family.add_metric(values, value)
            yield family

    def _known(
        self, name: MetricName, labels: Labels | None, kind: MetricKind
    ) -> tuple[dict[tuple[str, ...], float], tuple[str, ...]]:
        """Find where a series is kept."""
        row, labels = self._rows.get(name), labels or {}
        if row is None:
            raise ValueError(f"this party has no metric {name}")
        series = tuple(labels.get(label, "") for label, _ in row.labels)
        if len(labels) != len(series) or series not in row.series():
            raise ValueError(f"{name} has no series {dict(labels)}")
        if row.kind is not kind:
            raise ValueError(f"{name} is no {kind.name.lower()}")
        return self._values[name], series
