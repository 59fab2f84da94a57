"""Resource usage of the services during a load run: processor time and peak memory."""

import asyncio
import math
import multiprocessing
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Final, Self
from urllib.request import ProxyHandler, build_opener

import psutil
from prometheus_client.parser import text_string_to_metric_families

from common.errors import SettingsError
from common.runtime.process_metrics import Usage, measure

GENERATOR: Final = "load generator"
SINK: Final = "sink"
"""Name of the sink's process."""
_PERIOD: Final = 0.5
"""Seconds between samples; a shorter peak may be missed."""
_TIMEOUT: Final = 5.0
"""Seconds without a byte of a metrics page."""
_MAX_PAGE: Final = 2**20
_CPU: Final = "shuffledp_process_cpu_seconds_total"
_MEMORY: Final = "shuffledp_process_resident_memory_bytes"

Source = Callable[[], Mapping[str, Usage]]
"""Samples each party that can be reached at the moment. Called beside the event loop."""


@dataclass(slots=True)
class PartyUsage:
    """Resource usage of one party over a run."""

    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0


class Meter:
    """Samples all parties before, during and after the block."""

    def __init__(self, *sources: Source) -> None:
        self._sources = sources
        self._last: dict[str, float] = {}
        self.usage: dict[str, PartyUsage] = {}

    async def __aenter__(self) -> Self:
        await self._sample()
        self._sampling = asyncio.create_task(self._repeat())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._sampling.cancel()
        await asyncio.gather(self._sampling, return_exceptions=True)
        if kind is None:
            await self._sample()

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(_PERIOD)
            await self._sample()

    async def _sample(self) -> None:
        found = await asyncio.gather(*(asyncio.to_thread(source) for source in self._sources))
        for party, sample in (item for samples in found for item in samples.items()):
            self.record(party, sample)

    def record(self, party: str, sample: Usage) -> None:
        """Add a sample; a restarted party counts from zero again."""
        usage = self.usage.setdefault(party, PartyUsage())
        last = self._last.get(party, sample.cpu_seconds)
        grown, restarted = sample.cpu_seconds - last, sample.cpu_seconds < last / 2
        usage.cpu_seconds += sample.cpu_seconds if restarted else max(0.0, grown)
        usage.peak_memory_bytes = max(usage.peak_memory_bytes, sample.resident_bytes)
        self._last[party] = sample.cpu_seconds


def own_source() -> Mapping[str, Usage]:
    """Sample this process and those that send for it, without services that it may have started."""
    others = [child.pid for child in multiprocessing.active_children() if child.name != SINK]
    cpu, resident = 0.0, 0
    for pid in (os.getpid(), *others):
        with suppress(psutil.Error):  # it has ended
            process = psutil.Process(pid)
            cpu += sum(process.cpu_times()[:2])
            resident += process.memory_info().rss
    return {GENERATOR: Usage(cpu_seconds=cpu, resident_bytes=resident)}


def local_source(processes: Callable[[], Mapping[str, int]]) -> Source:
    """Sample processes of this machine with their workers: by party, restarted ones included."""

    def sample() -> Mapping[str, Usage]:
        found: dict[str, Usage] = {}
        for party, pid in processes().items():
            with suppress(psutil.Error):  # it has ended
                found[party] = measure(pid)
        return found

    return sample


def remote_source(page: str) -> Source:
    """
    Sample a service's metrics page, PARTY=http://HOST:PORT/PATH; nothing while it is not reached.

    Raises:
        SettingsError: The text is not of that form.
    """
    party, _, url = page.partition("=")
    if not (party and url.startswith("http://") and url.isascii() and url.isprintable()):
        raise SettingsError(f"metrics are named PARTY=http://HOST:PORT/PATH, not {page!r}")

    def sample() -> Mapping[str, Usage]:
        direct = build_opener(ProxyHandler({}))
        try:
            with direct.open(url, timeout=_TIMEOUT) as answer:
                return {party: usage_from(answer.read(_MAX_PAGE))}
        except (OSError, ValueError, HTTPException, SettingsError):
            return {}

    return sample


def usage_from(page: bytes) -> Usage:
    """
    Parse a service's metrics page.

    Raises:
        SettingsError: It is no such page, or lacks the process's usage.
    """
    found: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(page.decode("utf-8")):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0.0) + float(sample.value)
        usage = Usage(cpu_seconds=found[_CPU], resident_bytes=int(found[_MEMORY]))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise SettingsError("a metrics page does not state the usage of its process") from error
    if not (0 <= usage.cpu_seconds < math.inf and usage.resident_bytes >= 0):
        raise SettingsError("a metrics page states an impossible usage")
    return usage
