"""The server of a live page: this machine only, one page, and whoever was given its address."""

import asyncio
import hmac
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from common.errors import SettingsError, ShuffleDpError
from common.messages.batch import BatchProgress
from common.runtime.clock import Clock
from common.task_digest import TaskDigest
from deploy.pages.live_feed import LiveFeed
from deploy.pages.live_page import live_page

POLL_SECONDS: Final = 2.0
"""Between two questions to the shuffler, however many windows show the page; and of each window."""

_LOOPBACK: Final = "127.0.0.1"
_PATIENCE_SECONDS: Final = 10.0
"""For a connection, from its first byte to its last, however steadily they trickle."""
_AT_ONCE: Final = 32
"""Connections, each with a thread; one more is hung up on. Browsers open some ahead of need."""
_HEADERS: Final = (
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "frame-ancestors 'none'"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePage:
    """What is served: the page, what it asks for, and the secret part of its address."""

    page: bytes
    feed: LiveFeed
    secret: str


async def serve_live_page(
    fetch: Callable[[], Awaitable[BatchProgress]],
    *,
    digest: TaskDigest,
    clock: Clock,
    secret: str,
    version: str,
    started: Callable[[str], None],
    port: int = 0,
) -> None:
    """
    Ask the shuffler every POLL_SECONDS, and serve the page, until cancelled.

    Args:
        fetch: Asks the shuffler; a ShuffleDpError is shown, and it is asked again.
        digest: Of the task whose batch is watched.
        clock: Tells the time.
        secret: Part of the page's address, which nobody can guess: such as
            secrets.token_urlsafe(16).
        version: Of this program.
        started: Is told the page's address, once it is served.
        port: On this machine; 0 takes a free one.

    Raises:
        SettingsError: The port is taken.
    """
    feed = LiveFeed(clock)
    page = live_page(digest, version=version, poll_seconds=POLL_SECONDS).encode()
    async with _served(LivePage(page=page, feed=feed, secret=secret), port) as address:
        started(address)
        while True:
            try:
                feed.take(await fetch())
            except ShuffleDpError as error:
                feed.take_error(error)
            await asyncio.sleep(POLL_SECONDS)


@asynccontextmanager
async def _served(live: LivePage, port: int) -> AsyncIterator[str]:
    server = LiveServer(live, port)
    try:
        yield server.start()
    finally:
        await asyncio.to_thread(server.stop)


class LiveServer:
    """An HTTP server on loopback, in a thread of its own."""

    def __init__(self, live: LivePage, port: int = 0) -> None:
        try:
            self._server = _Server(live, port)
        except OSError as error:
            raise SettingsError(f"port {port} cannot be served: {error.strerror}") from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def start(self) -> str:
        """Start serving, and give the page's address."""
        self._thread.start()
        return f"http://{_LOOPBACK}:{self._server.server_port}/{self._server.live.secret}/"

    def stop(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, live: LivePage, port: int) -> None:
        self.live = live
        self._room = threading.BoundedSemaphore(_AT_ONCE)
        super().__init__((_LOOPBACK, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as there
        """Answer a connection in a thread, if there is room for one."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Answer a connection, and cut it off when its time is over."""
        late = threading.Timer(_PATIENCE_SECONDS, _cut_off, [request])
        late.daemon = True
        try:
            late.start()
            super().process_request_thread(request, client_address)
        finally:
            late.cancel()
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Say nothing of who hung up or was cut off: the terminal is for whoever runs this."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _cut_off(request: socket.socket) -> None:
    with suppress(OSError):  # it has ended
        request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET of two paths, and refuses everything else."""

    server: _Server
    server_version = "shuffledp"
    sys_version = ""
    timeout = _PATIENCE_SECONDS

    def do_GET(self) -> None:  # its name in http.server
        """Answer with the page or its figures."""
        # A name that somebody else's server points here is not this page's: DNS rebinding.
        hosts = {f"{name}:{self.server.server_port}" for name in (_LOOPBACK, "localhost")}
        if self.headers.get("Host") not in hosts:
            self._answer(HTTPStatus.FORBIDDEN, b"", "text/plain")
            return
        live = self.server.live
        answers = {
            f"/{live.secret}/": (live.page, "text/html; charset=utf-8"),
            f"/{live.secret}/progress.json": (live.feed.answer, "application/json"),
        }
        for path, (body, kind) in answers.items():
            if hmac.compare_digest(path.encode(), self.path.encode(errors="replace")):
                self._answer(HTTPStatus.OK, body, kind)
                return
        self._answer(HTTPStatus.NOT_FOUND, b"", "text/plain")

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in (*_HEADERS, ("Content-Type", kind), ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as in http.server
        """Write nothing: a line would hold the secret path."""
