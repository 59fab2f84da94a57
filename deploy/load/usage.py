"""What each service took while it was loaded: processor time, and memory at its peak."""

import asyncio
import math
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTP_PORT, HTTPConnection, HTTPException
from threading import Event, Timer
from typing import Final, Protocol, Self
from urllib.parse import urlsplit

import psutil
from prometheus_client.parser import text_string_to_metric_families

from common.errors import SettingsError
from common.runtime.process_metrics import measure

_PERIOD: Final = 0.5
"""Seconds between looks: a peak that is shorter may be missed."""
_TIMEOUT: Final = 5.0
"""Seconds to connect, and again for the whole page, however steadily it trickles."""
_MOST_BYTES: Final = 2**20
"""Of a page; it is cut there."""
_CPU: Final = "shuffledp_process_cpu_seconds_total"
_MEMORY: Final = "shuffledp_process_resident_memory_bytes"


@dataclass(frozen=True, slots=True)
class Look:
    """One party at one moment."""

    cpu_seconds: float
    """Since its start, with its workers."""
    memory_bytes: int
    """Resident, with its workers; pages that they share count for each."""


class Source(Protocol):
    """Where looks come from. Called beside the event loop."""

    def __call__(self) -> Mapping[str, Look]:
        """Look at each party that can be seen at the moment."""


@dataclass(slots=True)
class Taken:
    """What one party took over a run. One that is started again counts from nothing again."""

    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    _last: float | None = None

    def take(self, look: Look) -> None:
        """Take note of a look."""
        if self._last is not None:
            started_again = look.cpu_seconds < self._last / 2
            grown = look.cpu_seconds - self._last
            self.cpu_seconds += look.cpu_seconds if started_again else max(0.0, grown)
        self._last = look.cpu_seconds
        self.peak_memory_bytes = max(self.peak_memory_bytes, look.memory_bytes)


class Meter:
    """Looks at all parties, before, during and after the block."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.usage: dict[str, Taken] = {}

    async def __aenter__(self) -> Self:
        await self.look()
        self._looking = asyncio.create_task(self._repeat())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._looking.cancel()
        await asyncio.gather(self._looking, return_exceptions=True)
        if kind is None:
            await self.look()

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(_PERIOD)
            await self.look()

    async def look(self) -> None:
        """Look now."""
        for party, look in (await asyncio.to_thread(self._source)).items():
            self.usage.setdefault(party, Taken()).take(look)


def local_source(processes: Callable[[], Mapping[str, Sequence[int]]]) -> Source:
    """Look at processes of this machine, by party; they may be others after a restart."""

    def look() -> Mapping[str, Look]:
        found: dict[str, Look] = {}
        for party, pids in processes().items():
            usages = []
            for pid in pids:
                with suppress(psutil.Error):  # it has ended
                    usages.append(measure(pid))
            if usages:
                found[party] = Look(
                    sum(one.cpu_seconds for one in usages),
                    sum(one.resident_bytes for one in usages),
                )
        return found

    return look


def together(*sources: Source) -> Source:
    """Look at what several sources look at."""

    def look() -> Mapping[str, Look]:
        return {party: seen for source in sources for party, seen in source().items()}

    return look


def remote_source(pages: Mapping[str, str]) -> Source:
    """
    Look at services' pages of metrics, by party, all at once. One that does not come in time is
    left out.

    Raises:
        SettingsError: An address is not http://…
    """
    places = {party: _place(url) for party, url in pages.items()}

    def look_at(place: tuple[str, int, str]) -> Look | None:
        with suppress(OSError, HTTPException, SettingsError):
            return look_from(_page(*place))
        return None

    def look() -> Mapping[str, Look]:
        with ThreadPoolExecutor(max(1, len(places))) as pool:
            found = zip(places, pool.map(look_at, places.values()), strict=True)
            return {party: seen for party, seen in found if seen is not None}

    return look


def _place(url: str) -> tuple[str, int, str]:
    """Take an address apart: host, port, path."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # also a port that is none
        host, port = None, None
    # No "?" without a query: a page at exactly this path is what a service gives.
    query = f"?{parts.query}" if host and parts.query else ""
    path = f"{parts.path or '/'}{query}" if host else ""
    if not host or parts.scheme != "http" or not (path + host).isprintable() or " " in path + host:
        raise SettingsError(f"metrics are read from http://HOST:PORT/PATH, not from {url!r}")
    return host, port or HTTP_PORT, path


def _page(host: str, port: int, path: str) -> bytes:
    """Read a page as it is there: redirected to nowhere, and through no proxy."""
    connection = HTTPConnection(host, port, timeout=_TIMEOUT)
    cut = Event()
    try:
        connection.connect()
        # The connection's own timeout begins again with every byte.
        late = Timer(_TIMEOUT, _cut_off, [connection.sock, cut])
        late.start()
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            if answer.status != HTTPStatus.OK:
                raise SettingsError(f"a page of metrics is answered {answer.status}, not 200")
            page = answer.read(_MOST_BYTES)
        finally:
            late.cancel()
    except UnicodeError as error:
        raise SettingsError("a page of metrics has an address that none can have") from error
    finally:
        connection.close()
    if cut.is_set():  # a number in it may have lost its end
        raise TimeoutError
    return page


def _cut_off(connected: socket.socket, cut: Event) -> None:
    """End a connection under whoever reads it."""
    cut.set()
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)


def look_from(page: bytes) -> Look:
    """
    Read a service's page of metrics.

    Raises:
        SettingsError: It is none, or does not say what the process takes.
    """
    found: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(page.decode("utf-8")):
            for sample in family.samples:
                if sample.name in {_CPU, _MEMORY}:
                    found[sample.name] = found.get(sample.name, 0.0) + float(sample.value)
        look = Look(found[_CPU], int(found[_MEMORY]))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise SettingsError("a page of metrics does not say what its process takes") from error
    if not (0 <= look.cpu_seconds < math.inf and look.memory_bytes >= 0):
        raise SettingsError("a page of metrics says that its process takes what none can take")
    return look


def pages_from(texts: list[str]) -> dict[str, str]:
    """
    Read options PARTY=URL.

    Raises:
        SettingsError: One is none.
    """
    pages: dict[str, str] = {}
    for text in texts:
        party, equals, url = text.partition("=")
        if not (party and equals and url):
            raise SettingsError(f"metrics are named PARTY=URL, not {text}")
        pages[party] = url
    return pages
