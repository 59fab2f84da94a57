import http.client
import json
import socket
import struct
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress

import pytest

from common.errors import SettingsError
from deploy.audit.harness.clock import ManualClock
from deploy.pages.live_feed import LiveFeed
from deploy.pages.live_server import live_server
from tests.support.batch_progress import progress


def _live(page: bytes = b"<p>", port: int = 0) -> AbstractContextManager[str]:
    feed = LiveFeed(ManualClock())
    feed.take(progress(123))
    return live_server(page, feed, "s3cret", port)


@pytest.fixture
def address() -> Iterator[str]:
    """Serve a page with the secret `s3cret`."""
    with _live() as address:
        yield address


def _get(
    address: str, path: str, *, method: str = "GET", host: str | None = None
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(address).netloc, timeout=5)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def _connected(address: str) -> socket.socket:
    parts = urllib.parse.urlsplit(address)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=5)


def _wait_for_threads(count: int) -> None:
    """Wait until the threads of connections have ended."""
    give_up = time.monotonic() + 5
    while threading.active_count() > count and time.monotonic() < give_up:
        time.sleep(0.01)


def test_the_page_and_its_figures_are_served_under_the_secret(address: str) -> None:
    """And may be neither stored nor framed."""
    assert (200, b"<p>") == _get(address, "/s3cret/")
    status, body = _get(address, "/s3cret/progress.json")
    assert (200, "123") == (status, json.loads(body)["batch"]["users"])
    with _connected(address) as connection:
        host = urllib.parse.urlsplit(address).netloc
        connection.sendall(f"GET /s3cret/ HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        with connection.makefile("rb") as answer:
            headers = answer.read().decode().partition("\r\n\r\n")[0]
    assert "Cache-Control: no-store" in headers
    assert "Content-Security-Policy: frame-ancestors 'none'" in headers


def test_a_page_is_served_to_this_machine_alone(address: str) -> None:
    """At 127.0.0.1, and at no other address."""
    port = urllib.parse.urlsplit(address).port
    socket.create_connection(("127.0.0.1", port), 5).close()
    with pytest.raises(OSError, match=r"refused|unreachable|assign"):
        socket.create_connection(("127.0.0.2", port), 5)


def test_other_paths_names_and_methods_are_refused(address: str) -> None:
    """Without the secret; by DNS rebinding; and all but reading."""
    for path in ("/", "/progress.json", "/s3cre/", "/s3cret", "/s3cret/../s3cret/", "/s3cret//"):
        assert 404 == _get(address, path)[0]
    assert 404 == _get(address, urllib.parse.quote("/ä"))[0]
    for host in ("evil.example", "evil.example:80", "127.0.0.1", ""):
        assert 403 == _get(address, "/s3cret/progress.json", host=host)[0]
    for method in ("POST", "HEAD", "PUT", "DELETE", "OPTIONS"):
        assert (501, b"") == _get(address, "/s3cret/", method=method)


def test_an_idle_connection_is_closed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Others are answered meanwhile, and nothing is printed."""
    monkeypatch.setattr("deploy.pages.live_server._Handler.timeout", 0.2)
    with _live() as address, _connected(address) as idle:
        assert (200, b"<p>") == _get(address, "/s3cret/")
        with suppress(ConnectionError):
            assert b"" == idle.recv(1)

    assert ("", "") == capfd.readouterr()


def test_a_broken_connection_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """In the middle of a long page, with a reset."""
    with _live(bytes(50_000_000)) as address:
        idle = threading.active_count()
        with _connected(address) as leaving:
            host = urllib.parse.urlsplit(address).netloc
            leaving.sendall(f"GET /s3cret/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert leaving.recv(1)
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        _wait_for_threads(idle)

    assert ("", "") == capfd.readouterr()


def test_a_port_that_is_taken_is_named() -> None:
    """The message names it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = pytest.raises(SettingsError, match=f"port {port} cannot be served")
        with refused, _live(port=port):
            pass
