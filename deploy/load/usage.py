"""Resource usage of the services during a load run: processor time and peak memory."""

import math
import multiprocessing
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from threading import Event, Thread
from typing import Final, Self
from urllib.request import ProxyHandler, build_opener

import psutil
from prometheus_client.parser import text_string_to_metric_families

from common.errors import SettingsError
from common.runtime.metrics import Usage, measure

GENERATOR: Final = "load generator"
SINK: Final = "sink"
_PERIOD: Final = 0.5
"""Seconds between samples; a shorter peak may be missed."""
_TIMEOUT: Final = 5.0
"""Timeout of a metrics page in seconds."""
_MAX_PAGE: Final = 2**20
_CPU: Final = "shuffledp_process_cpu_seconds_total"
_MEMORY: Final = "shuffledp_process_resident_memory_bytes"


@dataclass(slots=True)
class PartyUsage:
    """Resource usage of one party over a run."""

    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0


class Meter:
    """Samples this program, local processes and metrics pages at entry, at exit and in between."""

    def __init__(
        self, processes: Callable[[], Mapping[str, int]], pages: Mapping[str, str]
    ) -> None:
        self._processes = processes
        self._pages = pages
        self._last: dict[str, float] = {}
        self.usage: dict[str, PartyUsage] = {}

    def __enter__(self) -> Self:
        self._sample()
        self._ended = Event()
        self._sampling = Thread(target=self._repeat, daemon=True)
        self._sampling.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._sampling.join()
        self._sample()

    def _repeat(self) -> None:
        while not self._ended.wait(_PERIOD):
            self._sample()

    def _sample(self) -> None:
        self.record(GENERATOR, _measure_generator())
        for party, pid in self._processes().items():
            with suppress(psutil.Error):  # it has ended
                self.record(party, measure(pid))
        for party, url in self._pages.items():
            with suppress(OSError, ValueError, HTTPException, SettingsError):
                self.record(party, read_usage(url))

    def record(self, party: str, sample: Usage) -> None:
        """Add a sample; ignore a drop in processor time, as after a restart."""
        usage = self.usage.setdefault(party, PartyUsage())
        grown = sample.cpu_seconds - self._last.get(party, sample.cpu_seconds)
        usage.cpu_seconds += max(0.0, grown)
        usage.peak_memory_bytes = max(usage.peak_memory_bytes, sample.resident_bytes)
        self._last[party] = sample.cpu_seconds


def _measure_generator() -> Usage:
    """Sample this process and its sending processes, but not the services that it started."""
    others = [child.pid for child in multiprocessing.active_children() if child.name != SINK]
    cpu, resident = 0.0, 0
    for pid in (os.getpid(), *others):
        with suppress(psutil.Error):  # it has ended
            process = psutil.Process(pid)
            cpu += sum(process.cpu_times()[:2])
            resident += process.memory_info().rss
    return Usage(cpu_seconds=cpu, resident_bytes=resident)


def page_from(text: str) -> tuple[str, str]:
    """Parse PARTY=http://HOST:PORT/PATH, or raise SettingsError."""
    party, _, url = text.partition("=")
    if not (party and url.startswith("http://") and url.isascii() and url.isprintable()):
        raise SettingsError(f"metrics must be PARTY=http://HOST:PORT/PATH, not {text!r}")
    return party, url


def read_usage(url: str) -> Usage:
    """Read a metrics page without a proxy, or raise OSError or SettingsError."""
    with build_opener(ProxyHandler({})).open(url, timeout=_TIMEOUT) as answer:
        return usage_from(answer.read(_MAX_PAGE))


def usage_from(page: bytes) -> Usage:
    """Parse a service's metrics page, or raise SettingsError."""
    try:
        families = text_string_to_metric_families(page.decode("utf-8"))
        found = {sample.name: sample.value for family in families for sample in family.samples}
        usage = Usage(cpu_seconds=float(found[_CPU]), resident_bytes=int(found[_MEMORY]))
    except Exception as error:  # the parser raises many kinds
        raise SettingsError("a metrics page does not state the usage of its process") from error
    if not (0 <= usage.cpu_seconds < math.inf and usage.resident_bytes >= 0):
        raise SettingsError("a metrics page states a negative or infinite usage")
    return usage
