"""
Where metrics are served: `GET /metrics` over plain HTTP, and nothing else.

A connection is one request and one answer, within seconds. Whoever connects and says nothing is cut
off, at once if there are many. Whoever has asked is answered: if that is all there is room for, who
comes next is turned away. However many ask, a page is made once in PAGE_SECONDS.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from common.errors import SettingsError
from common.runtime.settings import is_local

_MOST_HEAD_BYTES: Final = 8192
_SECONDS: Final = 5.0
"""For the request to come, then for the page to be made, and again for the answer to go."""
PAGE_SECONDS: Final = 1.0
"""For which a page, once it is made, is given to whoever asks."""
_AT_ONCE: Final = 16
"""Connections; one more, and the oldest is cut off that has not asked yet."""
_REQUEST_WORDS: Final = 3
_HERE: Final = frozenset({b"127.0.0.1", b"[::1]", b"localhost"})
"""What this machine calls itself."""


def parse_request(head: bytes, *, from_here: bool = False) -> HTTPStatus:
    """
    Say how a request is answered: OK for `GET /metrics` alone.

    Args:
        head: The request up to the empty line.
        from_here: It comes from this machine, and must call it by its own name. A browser calls it
            by whatever name somebody else's page was given that leads here: DNS rebinding.
    """
    first, *headers = head.split(b"\r\n")
    words = first.split(b" ")
    if from_here and not all(map(_names_no_other, headers)):
        return HTTPStatus.FORBIDDEN
    if len(words) != _REQUEST_WORDS or not words[2].startswith(b"HTTP/1."):
        return HTTPStatus.BAD_REQUEST
    if words[1] != b"/metrics":
        return HTTPStatus.NOT_FOUND
    return HTTPStatus.OK if words[0] == b"GET" else HTTPStatus.METHOD_NOT_ALLOWED


def _names_no_other(header: bytes) -> bool:
    """Say that a header names no host, or this machine."""
    name, _, host = (part.strip().lower() for part in header.partition(b":"))
    return name != b"host" or not _HERE.isdisjoint({host, host.rpartition(b":")[0]})


class MetricsEndpoint:
    """An HTTP server of one page, in the event loop."""

    def __init__(
        self,
        page: Callable[[], Awaitable[bytes]],
        elapsed: Callable[[], float],
        *,
        on_loopback: bool,
    ) -> None:
        self._page = page
        self._elapsed = elapsed
        self._on_loopback = on_loopback
        self._one_at_a_time = asyncio.Lock()
        self._made = b""
        self._made_at = -math.inf
        self._silent: dict[asyncio.StreamWriter, None] = {}
        """Whoever has not asked yet, the oldest first."""
        self._answering: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server
        self.address = ""

    @classmethod
    async def start(
        cls, listen: str, page: Callable[[], Awaitable[bytes]], elapsed: Callable[[], float]
    ) -> "MetricsEndpoint":
        """
        Listen on host:port; port 0 takes a free one, which `address` then tells.

        Args:
            listen: Where.
            page: Makes the page.
            elapsed: A clock's, in seconds: tells how old a page is.

        Raises:
            SettingsError: The address is taken or not one.
        """
        endpoint = cls(page, elapsed, on_loopback=is_local(listen))
        host, _, port = listen.rpartition(":")
        try:
            server = await asyncio.start_server(
                endpoint._serve, host.strip("[]"), int(port), limit=_MOST_HEAD_BYTES
            )
        except OSError as error:
            raise SettingsError(
                f"cannot serve metrics on {listen}: it is taken, or none of this machine's "
                "addresses"
            ) from error
        endpoint._server = server
        endpoint.address = f"{host}:{server.sockets[0].getsockname()[1]}"
        return endpoint

    async def stop(self) -> None:
        """Stop listening, and cut off whoever is connected."""
        self._server.close()
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.current_task()
        if serving is None or not self._make_room():
            writer.transport.abort()
            return
        self._serving.add(serving)
        self._silent[writer] = None
        try:
            # Cancelled by `stop` alone: streams would print it as an error that nobody expected.
            with suppress(asyncio.CancelledError):
                await self._serve_one(reader, writer)
        finally:
            self._serving.discard(serving)
            self._silent.pop(writer, None)
            self._answering.discard(writer)
            writer.transport.abort()

    def _make_room(self) -> bool:
        """Cut off who has been silent for longest, if need be; tell whether there is room."""
        if len(self._silent) + len(self._answering) < _AT_ONCE:
            return True
        oldest = next(iter(self._silent), None)
        if oldest is None:
            return False
        del self._silent[oldest]  # at once: the next to come is to cut off another
        oldest.transport.abort()
        return True

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, EOFError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            if writer not in self._silent:
                return  # cut off meanwhile
            del self._silent[writer]
            self._answering.add(writer)
            async with asyncio.timeout(_SECONDS):
                answer = await self._answer(parse_request(head, from_here=self._on_loopback))
            async with asyncio.timeout(_SECONDS):
                writer.write(answer)
                await writer.drain()
                writer.close()
                await writer.wait_closed()

    async def _answer(self, status: HTTPStatus) -> bytes:
        body = await self._made_lately() if status is HTTPStatus.OK else b""
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            f"Content-Type: {CONTENT_TYPE_PLAIN_0_0_4}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode("ascii") + body

    async def _made_lately(self) -> bytes:
        """Give the page; making one costs more than asking for it."""
        async with self._one_at_a_time:
            if self._elapsed() - self._made_at >= PAGE_SECONDS:
                self._made = await self._page()
                self._made_at = self._elapsed()
            return self._made
