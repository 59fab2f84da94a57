"""Serve pages on loopback, at a secret address."""

import hmac
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from common.errors import SettingsError
from deploy.pages.live_feed import LiveFeed

_LOOPBACK: Final = "127.0.0.1"
_IDLE_SECONDS: Final = 10.0
"""Timeout of a connection that sends nothing."""
_HEADERS: Final = (
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "frame-ancestors 'none'"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
)

HTML: Final = "text/html; charset=utf-8"
Pages = dict[str, tuple[str, Callable[[], bytes]]]
"""The media type and the content of each page, by its name below the secret path."""


@contextmanager
def live_server(page: bytes, feed: LiveFeed, secret: str, port: int = 0) -> Iterator[str]:
    """Serve a page and its feed; see `page_server`."""
    pages: Pages = {
        "": (HTML, lambda: page),
        "progress.json": ("application/json", lambda: feed.answer),
    }
    with page_server(pages, secret, port) as address:
        yield address


@contextmanager
def page_server(pages: Pages, secret: str, port: int = 0) -> Iterator[str]:
    """Serve pages to this machine alone, below a secret path; yield the address of the page ""."""
    try:
        server = _Server((_LOOPBACK, port), partial(_Handler, pages, secret))
    except OSError as error:
        raise SettingsError(f"port {port} cannot be served: {error.strerror}") from error
    with server, ThreadPoolExecutor(1) as thread:
        thread.submit(server.serve_forever, poll_interval=0.05)
        try:
            yield f"http://{_LOOPBACK}:{server.server_port}/{secret}/"
        finally:
            server.shutdown()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as in the base class
        """Ignore broken connections, to keep tracebacks off the operator's terminal."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET requests for the pages; refuses everything else."""

    server: _Server
    timeout = _IDLE_SECONDS
    error_message_format = ""

    def __init__(self, pages: Pages, secret: str, *connection: Any) -> None:  # noqa: ANN401  # as in the base class
        self._pages = pages
        self._secret = secret
        super().__init__(*connection)

    def do_GET(self) -> None:
        """Answer a GET request."""
        status, kind, body = self._answer()
        self.send_response(status)
        headers = (("Content-Type", kind), ("Content-Length", str(len(body))), *_HEADERS)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _answer(self) -> tuple[HTTPStatus, str, bytes]:
        # Refuse other host names that resolve to this machine: DNS rebinding.
        hosts = {f"{name}:{self.server.server_port}" for name in (_LOOPBACK, "localhost")}
        if self.headers.get("Host") not in hosts:
            return HTTPStatus.FORBIDDEN, "text/plain", b""
        for name, (kind, body) in list(self._pages.items()):
            if hmac.compare_digest(self.path.encode(), f"/{self._secret}/{name}".encode()):
                return HTTPStatus.OK, kind, body()
        return HTTPStatus.NOT_FOUND, "text/plain", b""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as in http.server
        """Write nothing: a log line would contain the secret path."""
