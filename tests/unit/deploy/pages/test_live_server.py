import http.client
import socket
import struct
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress

import pytest

from audit.harness.clock import ManualClock
from common.errors import SettingsError
from deploy.pages.live_feed import LiveFeed
from deploy.pages.live_server import live_server
from tests.support.batch_progress import progress


def _serve(page: bytes = b"<p>", port: int = 0) -> AbstractContextManager[str]:
    feed = LiveFeed(ManualClock(), progress(123))
    return live_server(page, feed, "s3cret", port)


@pytest.fixture
def address() -> Iterator[str]:
    """Serve a page with the secret `s3cret`."""
    with _serve() as address:
        yield address


def _get(address: str, path: str, method: str = "GET", host: str = "") -> tuple[int, bytes, str]:
    """Return the status, the body and the headers of an answer."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(address).netloc, timeout=5)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body, str(answer.headers)


def _connected(address: str) -> socket.socket:
    parts = urllib.parse.urlsplit(address)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=5)


def test_the_page_and_its_figures_are_served_under_the_secret(address: str) -> None:
    """Neither may be stored or framed."""
    for path, expected in (("", b"<p>"), ("progress.json", b'"users": "123"')):
        status, body, headers = _get(address, f"/s3cret/{path}")
        assert 200 == status
        assert expected in body
        assert "Cache-Control: no-store" in headers
        assert "Content-Security-Policy: frame-ancestors 'none'" in headers


def test_a_page_is_served_to_this_machine_alone(address: str) -> None:
    """The page is at 127.0.0.1, and at no other address."""
    with pytest.raises(OSError, match=r"refused|unreachable|assign"):
        _connected(address.replace("127.0.0.1", "127.0.0.2"))


@pytest.mark.parametrize(
    ("status", "request_"),
    [
        *((404, (path,)) for path in ("/", "/progress.json", "/s3cre/", "/s3cret", "/s3cret//")),
        *((404, (path,)) for path in ("/s3cret/../s3cret/", urllib.parse.quote("/ä"))),
        *((403, ("/s3cret/", "GET", host)) for host in ("evil.example", "evil:80", "127.0.0.1")),
        *((501, ("/s3cret/", method)) for method in ("POST", "HEAD", "PUT", "DELETE", "OPTIONS")),
    ],
)
def test_other_paths_names_and_methods_are_refused(
    address: str, status: int, request_: tuple[str, ...]
) -> None:
    """They lack the secret, come by DNS rebinding, or do more than read."""
    assert (status, b"") == _get(address, *request_)[:2]


def test_an_idle_connection_is_closed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Others are answered meanwhile, and nothing is printed."""
    monkeypatch.setattr("deploy.pages.live_server._Handler.timeout", 0.2)
    with _serve() as address, _connected(address) as idle:
        assert 200 == _get(address, "/s3cret/")[0]
        with suppress(ConnectionError):
            assert b"" == idle.recv(1)

    assert ("", "") == capfd.readouterr()


def test_a_broken_connection_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """The client resets it in the middle of a long page."""
    with _serve(bytes(50_000_000)) as address:
        idle = threading.active_count()
        with _connected(address) as leaving:
            host = urllib.parse.urlsplit(address).netloc
            leaving.sendall(f"GET /s3cret/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert leaving.recv(1)
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        give_up = time.monotonic() + 5
        while threading.active_count() > idle and time.monotonic() < give_up:
            time.sleep(0.01)

    assert ("", "") == capfd.readouterr()


def test_a_port_that_is_taken_is_named() -> None:
    """The message names it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"port {port} cannot be served"), _serve(port=port):
            pass
