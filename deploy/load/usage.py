"""Resource usage of the services during a load run: processor time and peak memory."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Final, Self
from urllib.request import ProxyHandler, build_opener

import psutil
from prometheus_client.parser import text_string_to_metric_families

from common.errors import SettingsError
from common.runtime.process_metrics import measure

GENERATOR: Final = "load generator"
_PERIOD: Final = 0.5
"""Seconds between samples; a shorter peak may be missed."""
_TIMEOUT: Final = 5.0
"""Seconds without a byte of a metrics page."""
_MAX_PAGE: Final = 2**20
_CPU: Final = "shuffledp_process_cpu_seconds_total"
_MEMORY: Final = "shuffledp_process_resident_memory_bytes"


@dataclass(frozen=True, slots=True)
class Sample:
    """PartyUsage of one party at one moment."""

    cpu_seconds: float
    """Since its start, its workers included."""
    memory_bytes: int
    """Resident, its workers included; shared pages count for each."""


Source = Callable[[], Awaitable[Mapping[str, Sample]]]
"""Samples each party that can be reached at the moment."""


@dataclass(slots=True)
class PartyUsage:
    """PartyUsage of one party over a run; a restarted one counts from zero again."""

    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    last_cpu_seconds: float | None = None
    """As the process counted last."""

    def record(self, sample: Sample) -> None:
        """Add a sample."""
        if self.last_cpu_seconds is not None:
            restarted = sample.cpu_seconds < self.last_cpu_seconds / 2
            grown = sample.cpu_seconds - self.last_cpu_seconds
            self.cpu_seconds += sample.cpu_seconds if restarted else max(0.0, grown)
        self.last_cpu_seconds = sample.cpu_seconds
        self.peak_memory_bytes = max(self.peak_memory_bytes, sample.memory_bytes)


class Meter:
    """Samples all parties before, during and after the block."""

    def __init__(self, *sources: Source) -> None:
        self._sources = sources
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
        for source in self._sources:
            for party, sample in (await source()).items():
                self.usage.setdefault(party, PartyUsage()).record(sample)


async def own_source() -> Mapping[str, Sample]:
    """Sample this process, without the services that it may have started."""
    return {GENERATOR: Sample(time.process_time(), psutil.Process().memory_info().rss)}


def local_source(processes: Callable[[], Mapping[str, int]]) -> Source:
    """Sample processes of this machine with their workers: by party, restarted ones included."""

    def sample() -> Mapping[str, Sample]:
        found: dict[str, Sample] = {}
        for party, pid in processes().items():
            with suppress(psutil.Error):  # it has ended
                usage = measure(pid)
                found[party] = Sample(usage.cpu_seconds, usage.resident_bytes)
        return found

    return lambda: asyncio.to_thread(sample)


def remote_source(pages: Sequence[str]) -> Source:
    """
    Sample services' metrics pages, PARTY=http://HOST:PORT/PATH, leaving out those not reached.

    Raises:
        SettingsError: A text is not of that form.
    """
    urls: dict[str, str] = {}
    for page in pages:
        party, _, url = page.partition("=")
        if not (party and url.startswith("http://") and url.isascii() and url.isprintable()):
            raise SettingsError(f"metrics are named PARTY=http://HOST:PORT/PATH, not {page!r}")
        urls[party] = url

    async def sample() -> Mapping[str, Sample]:
        found = await asyncio.gather(*(asyncio.to_thread(_sample, url) for url in urls.values()))
        return {party: one for party, one in zip(urls, found, strict=True) if one is not None}

    return sample


def _sample(url: str) -> Sample | None:
    direct = build_opener(ProxyHandler({}))
    try:
        with direct.open(url, timeout=_TIMEOUT) as page:
            return sample_from(page.read(_MAX_PAGE))
    except (OSError, ValueError, HTTPException, SettingsError):
        return None


def sample_from(page: bytes) -> Sample:
    """
    Parse a service's metrics page.

    Raises:
        SettingsError: It is no such page, or lacks the process's usage.
    """
    found: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(page.decode("utf-8")):
            for sample in family.samples:
                if sample.name in {_CPU, _MEMORY}:
                    found[sample.name] = found.get(sample.name, 0.0) + float(sample.value)
        usage = Sample(found[_CPU], int(found[_MEMORY]))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise SettingsError("a metrics page does not state the usage of its process") from error
    if not (0 <= usage.cpu_seconds < math.inf and usage.memory_bytes >= 0):
        raise SettingsError("a metrics page states an impossible usage")
    return usage
