"""Serve pages on loopback, at a secret address."""

import hmac
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

from shuffledp.common.runtime import http_server, settings
from shuffledp.deploy.pages.live_feed import LiveFeed

_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)

HTML: Final = b"text/html; charset=utf-8"
Pages = dict[str, tuple[bytes, Callable[[], bytes]]]
"""The media type and the content of each page, by its name below the secret path."""


def live_pages(page: bytes, feed: LiveFeed) -> Pages:
    """Return a page and its feed."""
    return {"": (HTML, lambda: page), "progress.json": (b"application/json", lambda: feed.answer)}


@asynccontextmanager
async def page_server(pages: Pages, secret: str, port: int = 0) -> AsyncGenerator[str]:
    """Serve pages to this machine alone, below a secret path; yield the address of the page ""."""

    async def app(scope: Any, _receive: Any, send: Any) -> None:  # noqa: ANN401  # ASGI's
        status, kind, body = HTTPStatus.NOT_FOUND, b"text/plain", b""
        for name, (its_kind, content) in pages.items():
            if hmac.compare_digest(scope["raw_path"], f"/{secret}/{name}".encode()):
                status, kind, body = HTTPStatus.OK, its_kind, content()
        if scope["method"] != "GET":
            status, body = HTTPStatus.METHOD_NOT_ALLOWED, b""
        headers = ((b"content-type", kind), (b"content-length", b"%d" % len(body)), *_HEADERS)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    listen = f"127.0.0.1:{port}"
    # Other host names that resolve to this machine are refused: DNS rebinding.
    server = http_server.HttpServer(app, listen, hosts=settings.host_names(listen, ()))
    server.start()
    try:
        yield f"http://{server.address}/{secret}/"
    finally:
        await server.stop(0)
