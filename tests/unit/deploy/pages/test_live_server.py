import asyncio
import http.client
import json
import socket
import struct
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import suppress

import pytest

from common.errors import PeerError, SettingsError
from common.messages.batch import BatchProgress
from common.task_digest import TaskDigest
from deploy.audit.harness.clock import ManualClock
from deploy.pages.live_feed import LiveFeed
from deploy.pages.live_server import LivePage, LiveServer, serve_live_page
from tests.support.batch_progress import progress


def _live(page: bytes = b"<p>") -> LivePage:
    feed = LiveFeed(ManualClock())
    feed.take(progress(123))
    return LivePage(page=page, feed=feed, secret="s3cret")  # noqa: S106  # of a test


@pytest.fixture
def address() -> Iterator[str]:
    """A page that is served, with the secret `s3cret`."""
    server = LiveServer(_live())
    yield server.start()
    server.stop()


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
    """At loopback's own address, and at no other that the machine has."""
    port = urllib.parse.urlsplit(address).port
    socket.create_connection(("127.0.0.1", port), 5).close()
    with pytest.raises(OSError, match=r"refused|unreachable|assign"):
        socket.create_connection(("127.0.0.2", port), 5)


@pytest.mark.parametrize(
    "path", ["/", "/progress.json", "/s3cre/", "/s3cret", "/s3cret/../s3cret/", "/s3cret//", "/ä"]
)
def test_nothing_else_is_served(address: str, path: str) -> None:
    """Without the secret nothing is found."""
    assert 404 == _get(address, urllib.parse.quote(path))[0]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", ""])
def test_a_foreign_name_for_this_machine_is_refused(address: str, host: str) -> None:
    """A page whose name was made to lead here learns nothing."""
    assert 403 == _get(address, "/s3cret/progress.json", host=host)[0]


@pytest.mark.parametrize("method", ["POST", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_there_is_no_other_method(address: str, method: str) -> None:
    """Nothing can be done but reading."""
    assert (405, b"") == _get(address, "/s3cret/", method=method)


def test_an_idle_connection_is_closed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Others are answered meanwhile; the terminal stays as it is."""
    monkeypatch.setattr("deploy.pages.live_server._Handler.timeout", 0.2)
    server = LiveServer(_live())
    address = server.start()
    with _connected(address) as idle:
        assert (200, b"<p>") == _get(address, "/s3cret/")
        with suppress(ConnectionError):
            assert b"" == idle.recv(1)
    server.stop()

    assert ("", "") == capfd.readouterr()


def test_who_hangs_up_leaves_nothing_on_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """In the middle of a long page, with a reset."""
    server = LiveServer(_live(bytes(50_000_000)))
    address, idle = server.start(), threading.active_count()
    with _connected(address) as leaving:
        host = urllib.parse.urlsplit(address).netloc
        leaving.sendall(f"GET /s3cret/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert leaving.recv(1)
        leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    _wait_for_threads(idle)
    server.stop()

    assert ("", "") == capfd.readouterr()


async def test_the_shuffler_is_asked_again_after_it_could_not_be_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The page says so, and goes on."""
    monkeypatch.setattr("deploy.pages.live_server.POLL_SECONDS", 0.01)
    asked = 0
    answered = asyncio.Event()
    addresses: list[str] = []

    async def fetch() -> BatchProgress:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise PeerError("the shuffler could not be reached in time")
        if asked > 2:
            answered.set()
        return progress(7)

    serving = asyncio.create_task(
        serve_live_page(
            fetch,
            digest=TaskDigest(bytes(32)),
            clock=ManualClock(),
            secret="s3cret",  # noqa: S106  # of a test
            version="1",
            started=addresses.append,
        )
    )
    async with asyncio.timeout(5):
        await answered.wait()
    path = urllib.parse.urlsplit(addresses[0]).path + "progress.json"
    status, body = await asyncio.to_thread(_get, addresses[0], path)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    told = json.loads(body)

    assert (200, "", "7") == (status, told["trouble"], told["batch"]["users"])


def test_a_port_that_is_taken_is_named() -> None:
    """In one sentence."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"port {port} cannot be served"):
            LiveServer(_live(), port)
