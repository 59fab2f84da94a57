"""The server of a live page: on loopback only, at a secret address only."""

import asyncio
import hmac
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from common.errors import SettingsError, ShuffleDpError
from common.messages.batch import BatchProgress
from common.runtime.clock import Clock
from common.task_digest import TaskDigest
from deploy.pages.live_feed import LiveFeed, live_page

POLL_SECONDS: Final = 2.0
"""Between two questions to the shuffler, however many windows show the page; and of a window."""

_LOOPBACK: Final = "127.0.0.1"
_IDLE_SECONDS: Final = 10.0
"""After which a connection that sends nothing is closed."""
_HEADERS: Final = (
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "frame-ancestors 'none'"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePage:
    """The page, its answers, and the secret part of its address."""

    page: bytes
    feed: LiveFeed
    secret: str

    def __call__(self, request: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answer GET of two paths, and refuse everything else."""
        status, kind, body = self._answer(request)
        headers = [("Content-Type", kind), ("Content-Length", str(len(body))), *_HEADERS]
        start(f"{status.value} {status.phrase}", headers)
        return [body]

    def _answer(self, request: WSGIEnvironment) -> tuple[HTTPStatus, str, bytes]:
        # Another name that resolves to this machine is not this page's: DNS rebinding.
        hosts = {f"{name}:{request['SERVER_PORT']}" for name in (_LOOPBACK, "localhost")}
        if request.get("HTTP_HOST") not in hosts:
            return HTTPStatus.FORBIDDEN, "text/plain", b""
        if request["REQUEST_METHOD"] != "GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b""
        path = request["PATH_INFO"].encode()
        for name, kind, body in (
            ("", "text/html; charset=utf-8", self.page),
            ("progress.json", "application/json", self.feed.answer),
        ):
            if hmac.compare_digest(path, f"/{self.secret}/{name}".encode()):
                return HTTPStatus.OK, kind, body
        return HTTPStatus.NOT_FOUND, "text/plain", b""


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
        clock: The source of time.
        secret: Part of the page's address, such as secrets.token_urlsafe(16).
        version: Of this program.
        started: Called with the page's address.
        port: 0 takes a free one.

    Raises:
        SettingsError: The port is taken.
    """
    feed = LiveFeed(clock)
    page = live_page(digest, version=version, poll_seconds=POLL_SECONDS).encode()
    with live_server(LivePage(page=page, feed=feed, secret=secret), port) as address:
        started(address)
        while True:
            try:
                feed.take(await fetch())
            except ShuffleDpError as error:
                feed.take_error(error)
            await asyncio.sleep(POLL_SECONDS)


@contextmanager
def live_server(live: LivePage, port: int = 0) -> Iterator[str]:
    """
    Serve a page on loopback, in a thread of its own; yield its address.

    Raises:
        SettingsError: The port is taken.
    """
    try:
        server = make_server(_LOOPBACK, port, live, server_class=_Server, handler_class=_Handler)
    except OSError as error:
        raise SettingsError(f"port {port} cannot be served: {error.strerror}") from error
    serve = partial(server.serve_forever, poll_interval=0.05)
    with server, ThreadPoolExecutor(1) as thread:
        thread.submit(serve)
        try:
            yield f"http://{_LOOPBACK}:{server.server_port}/{live.secret}/"
        finally:
            server.shutdown()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as there
        """Print nothing about broken connections: the terminal is the operator's."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(WSGIRequestHandler):
    timeout = _IDLE_SECONDS

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as in http.server
        """Write nothing: a line would hold the secret path."""
