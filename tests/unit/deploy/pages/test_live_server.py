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

_DIGEST = TaskDigest(bytes(32))


@pytest.fixture
def address() -> Iterator[str]:
    """A page that is served, with the secret `s3cret`."""
    feed = LiveFeed(ManualClock())
    feed.take(progress(123))
    server = LiveServer(LivePage(page=b"<p>", feed=feed, secret="s3cret"))  # noqa: S106  # of a test
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


def test_the_page_and_its_figures_are_served_under_the_secret(address: str) -> None:
    """To whoever was given the address."""
    assert (200, b"<p>") == _get(address, "/s3cret/")
    status, body = _get(address, "/s3cret/progress.json")
    assert 200 == status
    assert "123" == json.loads(body)["batch"]["users"]


@pytest.mark.parametrize(
    "path", ["/", "/progress.json", "/s3cre/", "/s3cret", "/s3cret/../s3cret/", "/s3cret//", "/ä"]
)
def test_nothing_else_is_served(address: str, path: str) -> None:
    """Whoever does not know the secret finds nothing."""
    assert 404 == _get(address, urllib.parse.quote(path))[0]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", ""])
def test_a_foreign_name_for_this_machine_is_refused(address: str, host: str) -> None:
    """A page of somebody else's, whose name was made to lead here, learns nothing."""
    assert 403 == _get(address, "/s3cret/progress.json", host=host)[0]


@pytest.mark.parametrize("method", ["POST", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_done_but_reading(address: str, method: str) -> None:
    """There is no other method."""
    assert 501 == _get(address, "/s3cret/", method=method)[0]


def _connected(address: str) -> socket.socket:
    parts = urllib.parse.urlsplit(address)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=5)


def _trickle(connection: socket.socket) -> None:
    """Send a request that does not end, for four seconds."""
    connection.sendall(b"GET /s3cret/ HTTP/1.1\r\nX: ")
    for _ in range(200):
        connection.sendall(b"x")
        time.sleep(0.02)


def _wait_for_threads(count: int) -> None:
    """Wait until those that answer have ended."""
    give_up = time.monotonic() + 5
    while threading.active_count() > count and time.monotonic() < give_up:
        time.sleep(0.01)


def _ends(connection: socket.socket) -> bool:
    """Whether the other end hangs up, within seconds."""
    with suppress(ConnectionError):
        return connection.recv(1) == b""
    return True


def test_a_request_that_trickles_is_cut_off(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then holds a thread for the time of one connection, and no longer."""
    monkeypatch.setattr("deploy.pages.live_server._PATIENCE_SECONDS", 0.2)
    with _connected(address) as slow, pytest.raises(ConnectionError):
        _trickle(slow)


def test_more_connections_than_there_is_room_for_are_hung_up_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until others have ended: no client can start threads without end."""
    monkeypatch.setattr("deploy.pages.live_server._AT_ONCE", 2)
    live = LivePage(page=b"<p>", feed=LiveFeed(ManualClock()), secret="s3cret")  # noqa: S106  # of a test
    server = LiveServer(live)
    address, idle = server.start(), threading.active_count()
    for _ in range(3):
        with _connected(address), _connected(address), _connected(address) as third:
            assert _ends(third)
        _wait_for_threads(idle)
        assert (200, b"<p>") == _get(address, "/s3cret/")
        _wait_for_threads(idle)
    server.stop()


def test_who_hangs_up_leaves_nothing_on_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """In the middle of a long page, with a reset."""
    page = bytes(50_000_000)
    server = LiveServer(LivePage(page=page, feed=LiveFeed(ManualClock()), secret="s3cret"))  # noqa: S106  # of a test
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
            digest=_DIGEST,
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

    assert 200 == status
    assert {"trouble": "", "users": "7"} == {
        "trouble": json.loads(body)["trouble"],
        "users": json.loads(body)["batch"]["users"],
    }


def test_a_port_that_is_taken_is_named() -> None:
    """In one sentence."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"port {port} cannot be served"):
            LiveServer(LivePage(page=b"", feed=LiveFeed(ManualClock()), secret="x"), port)  # noqa: S106  # of a test
