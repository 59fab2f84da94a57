import asyncio
import http.client
import socket
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.errors import SettingsError
from shuffledp.deploy.pages.live_feed import LiveFeed
from shuffledp.deploy.pages.live_server import live_pages, page_server
from tests.support.batch_progress import progress


def _serve(port: int = 0) -> AbstractAsyncContextManager[str]:
    feed = LiveFeed(ManualClock(), progress(123))
    return page_server(live_pages(b"<p>", feed), "s3cret", port)


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """Serve a page with the secret `s3cret`."""
    async with _serve() as address:
        yield address


async def _get(
    address: str, path: str, method: str = "GET", host: str = ""
) -> tuple[int, bytes, str]:
    """Return the status, the body and the headers of an answer."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(address).netloc, timeout=5)

    def ask() -> tuple[int, bytes, str]:
        connection.request(method, path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, answer.read(), str(answer.headers)

    found = await asyncio.to_thread(ask)
    connection.close()
    return found


async def test_the_page_and_its_figures_are_served_under_the_secret(address: str) -> None:
    """Neither may be stored or framed."""
    for path, expected in (("", b"<p>"), ("progress.json", b'"users": "123"')):
        status, body, headers = await _get(address, f"/s3cret/{path}")
        assert 200 == status
        assert expected in body
        assert "cache-control: no-store" in headers
        assert "content-security-policy: frame-ancestors 'none'" in headers


async def test_a_page_is_served_to_this_machine_alone(address: str) -> None:
    """The page is at 127.0.0.1, and at no other address."""
    port = urllib.parse.urlsplit(address).port or 0
    with pytest.raises(OSError, match=r"refused|unreachable|assign"):
        socket.create_connection(("127.0.0.2", port), timeout=5)


@pytest.mark.parametrize(
    ("status", "request_"),
    [
        *((404, (path,)) for path in ("/", "/progress.json", "/s3cre/", "/s3cret", "/s3cret//")),
        *((404, (path,)) for path in ("/s3cret/../s3cret/", urllib.parse.quote("/ä"))),
        *((403, ("/s3cret/", "GET", host)) for host in ("evil.example", "evil:80")),
        *((405, ("/s3cret/", method)) for method in ("POST", "HEAD", "PUT", "DELETE", "OPTIONS")),
    ],
)
async def test_other_paths_names_and_methods_are_refused(
    address: str, status: int, request_: tuple[str, ...]
) -> None:
    """They lack the secret, come by DNS rebinding, or do more than read."""
    assert (status, b"") == (await _get(address, *request_))[:2]


async def test_a_port_that_is_taken_is_named() -> None:
    """The message names it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"cannot listen on 127.0.0.1:{port}: "):
            await _serve(port).__aenter__()
