"""The metrics of one process: a collector for prometheus_client, and the page that serves it."""

import threading
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Metric, start_wsgi_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from common.errors import SettingsError
from common.runtime.metric_definitions import DEFINITIONS, Party


class Metrics(Collector):
    """
    Numbers for the party's definitions, and for nothing else.

    The event loop sets them; threads of the metrics page read them.
    """

    def __init__(self, party: Party) -> None:
        self._definitions = {metric.name: metric for metric in DEFINITIONS[party]}
        self._values: dict[str, dict[tuple[str, ...], float]] = {
            name: {} if metric.absent else dict.fromkeys(metric.series(), 0.0)
            for name, metric in self._definitions.items()
        }
        self._sources: list[Callable[[], None]] = []
        self._one_reader = threading.Lock()
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def has(self, name: str) -> bool:
        """Return whether this party has a metric."""
        return name in self._definitions

    def set(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Set a gauge; raise ValueError if the party has no such series, or it is a counter's."""
        values, series = self._find(name, labels or {}, counter=False)
        values[series] = value

    def add(self, name: str, by: float = 1.0, labels: Mapping[str, str] | None = None) -> None:
        """Advance a counter; raise ValueError if there is no such series, or it would fall."""
        values, series = self._find(name, labels or {}, counter=True)
        if not by >= 0:
            raise ValueError(f"{name} only grows, and was to grow by {by}")
        values[series] += by

    def advance_to(self, name: str, total: float) -> None:
        """Advance a counter to a total that is measured elsewhere; it never falls."""
        values, series = self._find(name, {}, counter=True)
        values[series] = max(total, values[series])

    def ask(self, source: Callable[[], None]) -> Callable[[], None]:
        """Call `source` before each reading, in the reader's thread, to set what has changed."""
        self._sources.append(source)
        return source

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, for the registry."""
        with self._one_reader:
            for source in self._sources:
                source()
            for name, metric in self._definitions.items():
                kind = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
                family = kind(name, metric.help, labels=list(metric.labels))
                for series, value in dict(self._values[name]).items():
                    family.add_metric(series, value)
                yield family

    def _find(
        self, name: str, labels: Mapping[str, str], *, counter: bool
    ) -> tuple[dict[tuple[str, ...], float], tuple[str, ...]]:
        """Return the metric's values, and the key of one series."""
        metric = self._definitions.get(name)
        if metric is None:
            raise ValueError(f"this party has no metric {name}")
        series = tuple(labels.get(label, "") for label in metric.labels)
        if len(labels) != len(series) or series not in metric.series():
            raise ValueError(f"{name} has no series {dict(labels)}")
        if metric.is_counter is not counter:
            raise ValueError(f"{name} is no {'counter' if counter else 'gauge'}")
        return self._values[name], series


class MetricsServer:
    """
    prometheus_client's HTTP server, in threads of its own.

    It has no TLS, no password and no limit on connections: serve it on a private network only.
    """

    def __init__(self, listen: str, metrics: Metrics) -> None:
        """Listen on host:port, or raise SettingsError; `address` names the port taken for 0."""
        host, _, port = listen.rpartition(":")
        try:
            self._server, self._thread = start_wsgi_server(
                int(port), host.strip("[]"), metrics.registry
            )
        except OSError as error:
            raise SettingsError(
                f"cannot serve metrics on {listen}: it is taken, or none of this machine's "
                "addresses"
            ) from error
        self.address = f"{host}:{self._server.server_port}"

    def stop(self) -> None:
        """Stop listening. Blocks for up to half a second: not for the event loop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
