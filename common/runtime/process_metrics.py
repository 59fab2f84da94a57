"""Metrics of a process and its workers: processor time, memory, certificates, disk, failures."""

import asyncio
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from common.crypto.key_ring import KeyRing, KeyState
from common.errors import OverloadError, SettingsError, ShareError, StorageError
from common.runtime.certificates import Certificate
from common.runtime.clock import Clock
from common.runtime.metrics import Metrics, Party
from common.runtime.tls import TlsFiles
from common.version import VERSION

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
    Measure a process of this machine, by default this one, and its workers, or raise psutil.Error.

    Cost: reads the process table, some milliseconds; do not call it in the event loop.
    """
    own = psutil.Process(pid)
    # First, so that a worker that ends in between is missed once, not counted twice: the system
    # adds an ended worker to its parent.
    cpu = _cpu_seconds(own)
    resident = own.memory_info().rss
    for worker in own.children(recursive=True):
        with suppress(psutil.Error):  # it has ended
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
"""Seconds. Failures in one window show throughout the next, which hides single calls."""
_WATCHED: Final[tuple[tuple[str, type[Exception]], ...]] = (
    ("shuffledp_overloaded", OverloadError),
    ("shuffledp_storage_failing", StorageError),
)


class FailureCounters:
    """Sets the failure metrics: whether the last whole window had overload or disk failures."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._windows: dict[str, set[int]] = {
            name: set() for name, _ in _WATCHED if metrics.has(name)
        }
        metrics.on_collect(self._read)

    def note(self, error: BaseException) -> None:
        """Record an overload or a disk failure. A connection's own limit does not count."""
        for name, kind in _WATCHED:
            if isinstance(error, kind) and not isinstance(error, ShareError):
                self._windows.get(name, set()).add(self._window())

    def _read(self) -> None:
        now = self._window()
        for name, windows in self._windows.items():
            windows -= {window for window in set(windows) if window < now - 1}
            self._metrics.set(name, now - 1 in windows)

    def _window(self) -> int:
        return int(self._clock.elapsed() // WINDOW)


_DISK_STEPS: Final = 100
"""Free space is rounded to this share of the disk, so that it hides single submissions."""


class ProcessMetrics:
    """The metrics of one process, with those common to all services."""

    def __init__(self, party: Party, clock: Clock) -> None:
        self._clock = clock
        self.metrics: Final = Metrics(party)
        self.failures: Final = FailureCounters(self.metrics, clock)
        self.metrics.set("shuffledp_up", 1, {"party": party, "version": VERSION})
        self.metrics.set("shuffledp_memory_limit_bytes", memory_limit())
        self.metrics.on_collect(self._measure_processes)

    def now(self) -> float:
        """Return the seconds since 1970 UTC."""
        return self._clock.now()

    def watch_loop(self, loop: asyncio.AbstractEventLoop, patience: float = 5.0) -> None:
        """Make readings fail while the event loop hangs: alerts watch for failed scrapes."""

        @self.metrics.on_collect
        def check_loop() -> None:
            responded = threading.Event()
            loop.call_soon_threadsafe(responded.set)
            if not responded.wait(patience):
                raise TimeoutError(f"the service has done nothing for {patience:g} seconds")

    def watch_keys(self, ring: Callable[[], KeyRing]) -> None:
        """Count the keys of a ring at each reading."""

        @self.metrics.on_collect
        def count_keys() -> None:
            states = [entry.state for entry in ring().entries]
            for state in KeyState:
                self.metrics.set("shuffledp_keys", states.count(state), {"state": state.value})

    def watch_certificates(self, files: TlsFiles) -> None:
        """Measure the certificates' remaining time at each reading, since they may be renewed."""

        @self.metrics.on_collect
        def measure_days_left() -> None:
            for name, path in (("own", files.certificate), ("authority", files.authority)):
                # An unreadable file leaves the last value; using it logs the error.
                with suppress(SettingsError):
                    if path is not None:
                        days = Certificate.read(path).days_left(self._clock.now())
                        self.metrics.set(
                            "shuffledp_certificate_days_left", days, {"certificate": name}
                        )

    def watch_disk(self, directory: Path) -> None:
        """Measure the free disk space at each reading."""
        if not self.metrics.has("shuffledp_state_free_bytes"):
            return

        @self.metrics.on_collect
        def measure_space() -> None:
            with suppress(OSError):
                found = shutil.disk_usage(directory)
                step = max(1, found.total // _DISK_STEPS)
                self.metrics.set("shuffledp_state_free_bytes", found.free // step * step)
                self.metrics.set("shuffledp_state_size_bytes", found.total)

    def _measure_processes(self) -> None:
        usage = measure()
        self.metrics.advance_to("shuffledp_process_cpu_seconds_total", usage.cpu_seconds)
        self.metrics.set("shuffledp_process_resident_memory_bytes", usage.resident_bytes)
