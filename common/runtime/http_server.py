"""HTTP/1.1 in a service's own event loop: connections, their limits and times, on uvicorn."""

import asyncio
import logging
import socket
import ssl
from asyncio import constants
from asyncio.sslproto import SSLProtocol
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.access import AGE_SECONDS, CALLS, MARGIN_SECONDS, Caller
from shuffledp.common.runtime.clock import cancel_all
from shuffledp.common.runtime.concurrency import ConcurrencyLimit
from shuffledp.common.runtime.peer import Networks, Peer
from shuffledp.common.runtime.service import GRACE
from shuffledp.common.runtime.tls import Renewal, TlsFiles

MAX_CONNECTIONS: Final = 4096
HEADER_SECONDS: Final = 10.0
"""Maximum seconds of a TLS handshake, and again of a request's header."""
IDLE_SECONDS: Final = 30.0
"""Maximum seconds between two requests, in which an answer must be read."""
REQUEST_SECONDS: Final = MARGIN_SECONDS + max(
    call.kind.value.seconds for call in CALLS.values() if call.caller is Caller.DEVICE
)
"""Maximum seconds of a request from its header to its answer."""
MAX_HEADER_BYTES: Final = 16 * 1024
MAX_FIELDS: Final = 100
_MAX_UNREAD_BYTES: Final = 64 * 1024
"""Maximum bytes of a body that are read before the application asks, or skipped after a refusal,
so that its answer can be read."""
_CLOSING_SECONDS: Final = 5.0
_SWEEP_SECONDS: Final = 1.0
_BACKLOG: Final = 2048
_ACCEPTED_AT_ONCE: Final = 64

# asyncio allocates as much for every connection: 256 KiB by default, of which TLS uses 16.
SSLProtocol.max_size = 16 * 1024
constants.FLOW_CONTROL_HIGH_WATER_SSL_READ = 16  # type: ignore[misc]  # KiB that it reads ahead

App = Callable[[Any, Any, Any], Awaitable[None]]
"""ASGI for scopes of type http, whose state has the connection's Peer; 500 for an exception."""


class ServerCertificate:
    """A certificate and its key, for TLS 1.2 and later; they are read again when replaced."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read the files, in PEM; raise SettingsError if they are unusable or do not match."""
        self._files = TlsFiles(certificate=certificate, key=key)
        self._renewal = Renewal(self._files)
        self._files.read()
        self._context = self._read()

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        if self._renewal.take() is not None:
            self._context = self._read()
        return self._context

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(str(self._files.certificate), self._files.key, password="")
        return context


class _HeaderBuffer:
    """A transport that sends the header of an answer together with what follows, for speed."""

    __slots__ = ("_has_begun", "_header", "_transport", "close", "is_closing")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._header = b""
        self._has_begun = False
        self.close = transport.close
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Keep the answer's header, and send all else."""
        if self._has_begun or data.startswith(b"HTTP/1.1 100 "):
            self._transport.write(data)
        elif self._header:
            self._transport.write(self._header + data)
            self._has_begun = True
        else:
            self._header = data


class _Connection(HttpToolsProtocol):
    """
    One connection, which has one request at a time.

    A client that sends more while it waits for an answer gets this answer, and nothing else.
    """

    def __init__(self, server: "HttpServer", peer: Peer) -> None:
        super().__init__(server.config, server.state, {"peer": peer}, server.loop)
        self.source = peer
        self.opening: asyncio.Task[None] | None = None
        self._server = server
        self._end = server.loop.time() + AGE_SECONDS
        self._due = server.loop.time() + HEADER_SECONDS
        self._in_header = True
        self._header_bytes = 0
        self._unread_bytes = 0
        self._ignores_input = False
        self._refusal = HTTPStatus.BAD_REQUEST

    def displace(self) -> None:
        """Close the connection, which waits for a request, in favour of another one."""
        if self.opening is not None:
            self.opening.cancel()
        if self.transport is not None:
            self.transport.abort()

    def sweep(self, now: float) -> None:
        """Close the connection if it is late, and abort it if that takes long."""
        if self.transport.is_closing():
            self._due = min(self._due, now + _CLOSING_SECONDS)
        if now >= self._due:
            (self.transport.abort if self.transport.is_closing() else self.transport.close)()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a header."""
        super().connection_made(transport)
        transport.max_size = _MAX_UNREAD_BYTES  # type: ignore[attr-defined]  # without TLS, else unused
        self.opening = None
        self._due = self.loop.time() + HEADER_SECONDS

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the connection's place."""
        super().connection_lost(exc)
        self._server.limit.free(self)

    def data_received(self, data: bytes) -> None:
        """Parse what came, unless the connection only waits for its last answer."""
        if self._ignores_input:
            return
        was_in_header = self._in_header
        super().data_received(data)
        if was_in_header and not self._in_header:
            self.flow.pause_reading()  # until the application asks for the body
        elif was_in_header and not self._ignores_input:
            self._header_bytes += len(data)
            if self._header_bytes > MAX_HEADER_BYTES:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def send_400_response(self, msg: str) -> None:  # uvicorn's
        """Answer what is no request."""
        self._refuse(self._refusal)

    def _refuse(self, status: HTTPStatus) -> None:
        """Close the connection, with an answer unless the answer to an earlier request is due."""
        self._ignores_input = True
        if self._is_answered():
            lines = [b"%s: %s\r\n" % header for header in self.server_state.default_headers]
            end = b"content-length: 0\r\nconnection: close\r\n\r\n"
            self.transport.write(b"".join([STATUS_LINE[status], *lines, end]))
            self.transport.close()
        elif self.cycle.more_body:
            self.transport.abort()
        else:
            self.cycle.keep_alive = False

    def _is_answered(self) -> bool:
        return getattr(self.cycle, "response_complete", True)  # there is no cycle before the first

    def on_message_begin(self) -> None:
        """Begin a request, if the earlier one is answered."""
        if not self._is_answered():
            raise ValueError("a request before the answer to the last one")
        super().on_message_begin()
        self._due = self.loop.time() + HEADER_SECONDS

    def on_headers_complete(self) -> None:
        """Run the application."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > MAX_HEADER_BYTES or len(self.headers) > MAX_FIELDS:
            self._refusal = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise ValueError("the header is too long")
        if not self.url.startswith(b"/"):
            raise ValueError("the target is no path")
        host = b",".join(value for name, value in self.headers if name == b"host")
        if self._server.hosts is not None and not is_host(host, self._server.hosts):
            self._refusal = HTTPStatus.FORBIDDEN
            raise ValueError("another server's name")
        self._in_header, self._unread_bytes = False, 0
        self._due = self.loop.time() + REQUEST_SECONDS
        self._server.limit.arrived(self)
        super().on_headers_complete()
        if self.scope["method"] != "HEAD":  # its header stands alone
            self.cycle.transport = _HeaderBuffer(self.transport)  # type: ignore[assignment]
        if self.parser.should_upgrade() or self.loop.time() > self._end:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Keep a part of a body, or skip it after the answer."""
        super().on_body(body)
        if self.cycle.response_complete:
            self._unread_bytes += len(body)
            if self._unread_bytes > _MAX_UNREAD_BYTES:
                self.transport.abort()

    def on_message_complete(self) -> None:
        """Begin to wait for the next header."""
        super().on_message_complete()
        self._in_header, self._header_bytes = True, 0

    def on_response_complete(self) -> None:
        """Wait for the next request, without uvicorn's timer."""
        self._due = self.loop.time() + (IDLE_SECONDS if self._in_header else HEADER_SECONDS)
        self.flow.resume_reading()
        self._server.limit.idle(self)


class HttpServer:
    """
    Serves an ASGI application at one address.

    It logs no request and no address, and takes no signals. Connections have fair shares by
    address. Create and use it in the event loop.
    """

    def __init__(
        self,
        app: App,
        listen: str,
        certificate: ServerCertificate | None = None,
        *,
        hosts: Collection[str] | None = None,
        unshared: Networks = (),
    ) -> None:
        """
        Listen on host:port, in plaintext without a certificate, but accept nothing yet.

        Requests must name one of the `hosts`, without a port; None for any. Connections from
        `unshared` networks, of proxies and relays, do not count by address.

        Raises SettingsError if the address cannot be listened on.
        """
        self.loop = asyncio.get_running_loop()
        self.state = ServerState()
        self.limit = ConcurrencyLimit(MAX_CONNECTIONS, 1)
        self.config = uvicorn.Config(
            app,
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.ERROR,  # an exception of the application, by type and place
            access_log=False,
            proxy_headers=False,
            server_header=False,
        )
        self.config.load()
        self._certificate = certificate
        self.hosts = None if hosts is None else frozenset(map(str.encode, hosts))
        self._unshared = unshared
        self._numbers = count(1)
        self._socket = _listening(listen)
        self.address = f"{listen.rpartition(':')[0]}:{self._socket.getsockname()[1]}"
        self._tasks: set[asyncio.Task[None]] = set()
        """The sweep, and connections that open."""

    def start(self) -> None:
        """Accept connections."""
        self._tasks.add(self.loop.create_task(self._sweep()))

    async def stop(self, grace: float = GRACE) -> None:
        """Accept no more connections, and end requests within `grace` seconds."""
        if self._socket.fileno() >= 0:
            self.loop.remove_reader(self._socket)
        self._socket.close()
        for connection in list(self.state.connections):
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                while self.state.connections:  # noqa: ASYNC110  # uvicorn has no event for it
                    await asyncio.sleep(0.02)
        await cancel_all([*self._tasks, *self.state.tasks])
        for connection in list(self.state.connections):
            connection.transport.abort()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, (host, *_) = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError:  # no file or memory is left
                self.loop.remove_reader(self._socket)  # until the next sweep
                return
            accepted.settimeout(0)
            peer = Peer.at(host, f"http {next(self._numbers)}", self._unshared)
            connection = _Connection(self, peer)
            if not self.limit.take(connection):
                accepted.close()
                continue
            connection.opening = opening = self.loop.create_task(self._open(connection, accepted))
            self._tasks.add(opening)
            opening.add_done_callback(self._tasks.discard)

    async def _open(self, connection: _Connection, accepted: socket.socket) -> None:
        """Begin a connection, with its TLS handshake."""
        tls: Mapping[str, Any] = {}
        try:
            if self._certificate is not None:
                tls = {
                    "ssl": self._certificate.context(),
                    "ssl_handshake_timeout": HEADER_SECONDS,
                    "ssl_shutdown_timeout": _CLOSING_SECONDS,
                }
            await self.loop.connect_accepted_socket(lambda: connection, accepted, **tls)
        except BaseException as error:
            accepted.close()
            self.limit.free(connection)
            if not isinstance(error, OSError):  # of the handshake
                raise

    async def _sweep(self) -> None:
        """Once a second, close late connections, set the time of answers, and accept again."""
        while True:
            now = self.loop.time()
            self.state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
            for connection in list(self.state.connections):
                connection.sweep(now)  # type: ignore[union-attr]  # all are of this file
            if self._socket.fileno() >= 0:
                self.loop.add_reader(self._socket, self._accept)
            await asyncio.sleep(_SWEEP_SECONDS)


def is_host(field: bytes, hosts: Collection[bytes]) -> bool:
    """Return whether a Host field, with or without a port, names one of the hosts."""
    name, _, port = field.rpartition(b":")
    return (name if port.isdigit() else field).lower() in hosts


def _listening(listen: str) -> socket.socket:
    """Listen on host:port, on [::] for IPv4 too."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        opened = socket.create_server(
            (host, int(port)), family=family, backlog=_BACKLOG, dualstack_ipv6=host == "::"
        )
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {listen}: the address is in use, or not this machine's"
        ) from error
    opened.settimeout(0)
    return opened
