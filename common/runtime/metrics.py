"""
Metrics of a process: an allow-list of names, labels and label values.

Each party's own metrics are in its metrics.py. Review what a metric reveals before adding it. No
label names a user, a peer, a connection or a submission, which the shuffler forgets; nor a task, a
batch or a population, which are unbounded and logged. Nothing changes while a batch collects,
however many submit: counters advance when a batch changes its state, and failures show in whole
windows of five minutes. The exceptions are processor time, memory and disk space, which change with
single calls, as in the machine's process list. So serve /metrics on a private network, to the
process's own operator only.
"""

import asyncio
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Final, Literal, get_args

import psutil
from prometheus_client import CollectorRegistry, Metric, start_wsgi_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from shuffledp.common.crypto.key_ring import KeyRing, KeyState
from shuffledp.common.errors import OverloadError, SettingsError, ShareError, StorageError
from shuffledp.common.runtime.certificates import Certificate
from shuffledp.common.runtime.clock import Clock
from shuffledp.common.runtime.tls import TlsFiles, Trust
from shuffledp.common.version import VERSION

Party = Literal["analyzer", "shuffler", "issuer", "user_agent", "witness"]
PARTIES: Final[tuple[Party, ...]] = get_args(Party)


@dataclass(frozen=True, slots=True)
class MetricRow:
    """A metric: a counter if its name ends in _total, otherwise a gauge."""

    name: str
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Each label with all its allowed values."""
    absent: bool = False
    """Whether the metric is hidden until its value is known; if not, it starts at 0."""

    @property
    def is_counter(self) -> bool:
        """Whether the metric only increases, from 0 at each start."""
        return self.name.endswith("_total")

    def series(self) -> Iterable[tuple[str, ...]]:
        """Return every combination of label values, each in the labels' order."""
        return product(*self.labels.values())


OF_ALL: Final = (
    MetricRow(
        "shuffledp_up",
        "1 while the service runs.",
        {"party": PARTIES, "version": (VERSION,)},
        absent=True,
    ),
    MetricRow(
        "shuffledp_certificate_days_left",
        "Whole days until a certificate expires; negative afterwards.",
        {"certificate": ("own", "authority", "internal own", "internal authority", "http own")},
        absent=True,
    ),
    MetricRow(
        "shuffledp_process_cpu_seconds_total",
        "CPU seconds of the process and its workers, finished ones included.",
    ),
    MetricRow(
        "shuffledp_process_resident_memory_bytes",
        "Resident memory of the process and its workers; shared pages count for each.",
    ),
    MetricRow(
        "shuffledp_memory_limit_bytes",
        "Memory of the machine, or the container's limit if that is lower.",
        absent=True,
    ),
)
OF_SERVERS: Final = (
    *OF_ALL,
    MetricRow(
        "shuffledp_state_free_bytes",
        "Free space of the state directory's disk, rounded down to a hundredth of its size.",
        absent=True,
    ),
    MetricRow("shuffledp_state_size_bytes", "Size of the state directory's disk.", absent=True),
    MetricRow(
        "shuffledp_overloaded",
        "1 if a call was refused for overload in the last whole five minutes.",
    ),
    MetricRow(
        "shuffledp_shares_exceeded",
        "1 if a call beyond its connection's or address's share was refused in the last whole five "
        "minutes.",
    ),
    MetricRow(
        "shuffledp_storage_failing",
        "1 if the disk was full, read-only, failing or damaged in the last whole five minutes.",
    ),
)
OF_KEY_HOLDERS: Final = (
    *OF_SERVERS,
    MetricRow(
        "shuffledp_keys",
        "Encryption keys by state.",
        {"state": tuple(state.value for state in KeyState)},
    ),
)


class Metrics(Collector):
    """The values of a party's metrics, set by the event loop and read by the server's threads."""

    def __init__(self, definitions: Iterable[MetricRow]) -> None:
        self._definitions = {metric.name: metric for metric in definitions}
        self._values: dict[str, dict[tuple[str, ...], float]] = {
            name: {} if metric.absent else dict.fromkeys(metric.series(), 0.0)
            for name, metric in self._definitions.items()
        }
        self._callbacks: list[Callable[[], None]] = []
        self._one_reader = threading.Lock()
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def has(self, name: str) -> bool:
        """Return whether this party has a metric."""
        return name in self._definitions

    def set(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Set a gauge; raise ValueError for an undefined series or a counter."""
        values, series = self._find(name, labels or {}, counter=False)
        values[series] = value

    def add(self, name: str, by: float = 1.0, labels: Mapping[str, str] | None = None) -> None:
        """Advance a counter; raise ValueError for an undefined series or a negative amount."""
        values, series = self._find(name, labels or {}, counter=True)
        if not by >= 0:
            raise ValueError(f"{name} is a counter; it cannot change by {by}")
        values[series] += by

    def advance_to(self, name: str, total: float) -> None:
        """Advance a counter to a total measured elsewhere, unless that is lower."""
        values, series = self._find(name, {}, counter=True)
        values[series] = max(total, values[series])

    def on_collect(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` before each reading, in the reader's thread. Usable as a decorator."""
        self._callbacks.append(callback)
        return callback

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, for the registry."""
        with self._one_reader:
            for callback in self._callbacks:
                callback()
            for name, metric in self._definitions.items():
                kind = CounterMetricFamily if metric.is_counter else GaugeMetricFamily
                family = kind(name, metric.help, labels=list(metric.labels))
                for series, value in dict(self._values[name]).items():
                    family.add_metric(series, value)
                yield family

    def _find(
        self, name: str, labels: Mapping[str, str], *, counter: bool
    ) -> tuple[dict[tuple[str, ...], float], tuple[str, ...]]:
        """Return a metric's values and the key of one series; raise ValueError if undefined."""
        metric = self._definitions.get(name)
        if metric is None:
            raise ValueError(f"this party has no metric {name}")
        series = tuple(labels.get(label, "") for label in metric.labels)
        if len(labels) != len(series) or series not in metric.series():
            raise ValueError(f"{name} has no series {dict(labels)}")
        if metric.is_counter is not counter:
            raise ValueError(f"{name} is not a {'counter' if counter else 'gauge'}")
        return self._values[name], series


class MetricsServer:
    """
    prometheus_client's HTTP server, in its own threads.

    It has no TLS, password or limit on connections: serve it on a private network only.
    """

    def __init__(self, listen: str, metrics: Metrics) -> None:
        """Listen on host:port, or raise SettingsError; `address` has the chosen port for port 0."""
        host, _, port = listen.rpartition(":")
        try:
            place = int(port), host.strip("[]")
            self._server, self._thread = start_wsgi_server(*place, metrics.registry)
        except OSError as error:
            raise SettingsError(
                f"cannot serve metrics on {listen}: the address is in use, or not this machine's"
            ) from error
        self.address = f"{host}:{self._server.server_port}"

    def stop(self) -> None:
        """Stop listening. Blocks for up to half a second; do not call it in the event loop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


_CONTAINER_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Processor time and memory at one moment."""

    cpu_seconds: float
    """CPU seconds of the process and its workers, finished ones included. May fall a little: a
    worker that ends during a measurement is missed once."""
    resident_bytes: int


def measure(pid: int | None = None) -> Usage:
    """
    Return CPU time and resident memory of a process, by default this one, and of its workers.

    Raises psutil.Error if the process cannot be read.

    Cost: reads the process table, a few milliseconds; do not call it in the event loop.
    """
    process = psutil.Process(pid)
    # Before the workers, since the system adds an ended worker's time to its parent: one that ends
    # in between is then missed once, not counted twice.
    cpu = _cpu_seconds(process)
    resident = process.memory_info().rss
    for worker in process.children(recursive=True):
        with suppress(psutil.Error):  # the worker has ended
            cpu += _cpu_seconds(worker)
            resident += worker.memory_info().rss
    return Usage(cpu_seconds=cpu, resident_bytes=resident)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system + times.children_user + times.children_system


def memory_limit(container_limit: Path = _CONTAINER_LIMIT) -> int:
    """Return the memory of the machine, or of the container if that has less, in bytes."""
    machine = psutil.virtual_memory().total
    try:
        container = container_limit.read_text(encoding="ascii").strip()
    except OSError:
        return machine
    return min(machine, int(container)) if container.isdecimal() else machine


WINDOW: Final = 300.0
"""Length in seconds. Failures in one window show throughout the next, which hides single calls."""
_WATCHED: Final[tuple[tuple[str, type[Exception]], ...]] = (
    ("shuffledp_shares_exceeded", ShareError),  # before OverloadError, a wider class
    ("shuffledp_overloaded", OverloadError),
    ("shuffledp_storage_failing", StorageError),
)


_DISK_STEPS: Final = 100
"""Free space is rounded down to one of this many steps, to hide single submissions."""


class ProcessMetrics:
    """One process's metrics, and methods that measure those common to several services."""

    def __init__(self, party: Party, definitions: Iterable[MetricRow], clock: Clock) -> None:
        self._clock = clock
        self.metrics: Final = Metrics(definitions)
        self._failed: dict[str, set[int]] = {
            name: set() for name, _ in _WATCHED if self.metrics.has(name)
        }
        """Windows with failures, by metric."""
        self.metrics.set("shuffledp_up", 1, {"party": party, "version": VERSION})
        self.metrics.set("shuffledp_memory_limit_bytes", memory_limit())
        self.metrics.on_collect(self._measure)

    def now(self) -> float:
        """Return the seconds since 1970 UTC."""
        return self._clock.now()

    def window(self) -> int:
        """Return the number of the present window."""
        return int(self._clock.elapsed() // WINDOW)

    def note_failure(self, error: BaseException) -> None:
        """Record an overload, a call beyond its share or a disk failure, as one of them."""
        for name, kind in _WATCHED:
            if isinstance(error, kind):
                self._failed.get(name, set()).add(self.window())
                return

    def watch_loop(self, loop: asyncio.AbstractEventLoop, patience: float = 5.0) -> None:
        """Make readings fail if the event loop hangs for `patience` seconds, for alerts."""

        @self.metrics.on_collect
        def check_loop() -> None:
            responded = threading.Event()
            loop.call_soon_threadsafe(responded.set)
            if not responded.wait(patience):
                raise TimeoutError(f"the event loop has not responded for {patience:g} seconds")

    def watch_keys(self, ring: Callable[[], KeyRing]) -> None:
        """Count the keys of a ring, by state, at each reading."""

        @self.metrics.on_collect
        def count_keys() -> None:
            states = [entry.state for entry in ring().entries]
            for state in KeyState:
                self.metrics.set("shuffledp_keys", states.count(state), {"state": state.value})

    def watch_certificates(self, files: TlsFiles, prefix: str = "") -> None:
        """Measure the certificates' remaining time at each reading, since they may be renewed."""

        @self.metrics.on_collect
        def measure_days_left() -> None:
            for name, path in (("own", files.certificate), ("authority", files.authority)):
                # The last value stays if a file cannot be read.
                with suppress(SettingsError):
                    if path is not None:
                        trusted = name == "authority" and Trust.read(path).authorities.values()
                        days = min(
                            each.days_left(self._clock.now())
                            for each in trusted or [Certificate.read(path)]
                        )
                        self.metrics.set(
                            "shuffledp_certificate_days_left", days, {"certificate": prefix + name}
                        )

    def watch_disks(self, *directories: Path) -> None:
        """Measure the fullest disk's free space and size, if the party has these metrics."""
        if not self.metrics.has("shuffledp_state_free_bytes"):
            return

        @self.metrics.on_collect
        def measure_space() -> None:
            with suppress(OSError):
                disks = map(shutil.disk_usage, directories)
                found = min(disks, key=lambda disk: disk.free / disk.total)
                step = max(1, found.total // _DISK_STEPS)
                self.metrics.set("shuffledp_state_free_bytes", found.free // step * step)
                self.metrics.set("shuffledp_state_size_bytes", found.total)

    def _measure(self) -> None:
        """Measure the process and its workers, and show the failures of the last whole window."""
        last = self.window() - 1
        for name, windows in self._failed.items():
            windows -= {window for window in set(windows) if window < last}
            self.metrics.set(name, last in windows)
        usage = measure()
        self.metrics.advance_to("shuffledp_process_cpu_seconds_total", usage.cpu_seconds)
        self.metrics.set("shuffledp_process_resident_memory_bytes", usage.resident_bytes)
