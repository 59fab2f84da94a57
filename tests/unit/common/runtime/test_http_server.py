"""HTTP connections over raw sockets: what is no request, what comes too slowly, and shares."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime import http_server, logs
from shuffledp.common.runtime.clock import SystemClock
from shuffledp.common.runtime.http_server import HttpServer, ServerCertificate
from shuffledp.common.runtime.settings import host_names
from shuffledp.common.runtime.tls import development_files
from tests.support import http_attacks
from tests.support.tables import table

_PATIENCE: Final = 5.0


class Echo:
    """Answers with the request's body, or late, or never, or fails; by path."""

    def __init__(self) -> None:
        self.peers: list[str] = []
        self.may_answer = asyncio.Event()
        self.may_read = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        self.peers.append(scope["state"]["peer"].connection)
        body, more = b"", scope["path"] != "/unread"
        if scope["path"] == "/later":
            await self.may_read.wait()
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        if scope["path"] == "/fail":
            raise ValueError("198.51.100.7 sent a secret")
        if scope["path"] == "/long":
            body = bytes(20_000_000)
        if scope["path"] == "/wait":
            await self.may_answer.wait()
        size = str(len(body)).encode()
        headers = [(b"content-length", size)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@pytest_asyncio.fixture
async def echo(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[HttpServer, Echo]]:
    """Serve on loopback, with little patience."""
    monkeypatch.setattr(http_server, "HEADER_SECONDS", 0.3)
    monkeypatch.setattr(http_server, "_SWEEP_SECONDS", 0.05)
    app = Echo()
    server = HttpServer(app, "127.0.0.1:0")
    server.start()
    yield server, app
    await server.stop(0)


async def _talk(address: str, *parts: bytes, source: str = "127.0.0.1") -> bytes:
    """Send parts, with pauses, and return all that is answered until the server closes."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
    answer = b""
    async with asyncio.timeout(_PATIENCE):
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.02)
            while more := await reader.read(65_536):
                answer += more
        except ConnectionError:
            pass
    writer.close()
    return answer


_POST: Final = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi"
_LONG: Final = b"GET /long HTTP/1.1\r\nhost: a\r\n\r\n"
_LAST: Final = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"


async def test_a_connection_is_kept_and_known_as_one(echo: tuple[HttpServer, Echo]) -> None:
    """Answers have a date, and no name of the server."""
    server, app = echo
    answer = await _talk(server.address, _POST, _POST, _LAST)
    assert 3 == answer.count(b"HTTP/1.1 200 OK\r\ndate: ")
    assert 2 == answer.count(b"\r\n\r\nhi")
    assert b"server" not in answer.lower()
    await _talk(server.address, _LAST)
    first, *others = app.peers
    assert [True, True, False] == [other == first for other in others]


@table(
    ("sent", "status"),
    [
        ([b"hello\r\n\r\n"], 400),
        ([b"\x16\x03\x01\x02\x00\x01\x00"], 400),
        ([b"GET http://b/ HTTP/1.1\r\nhost: a\r\n\r\n"], 400),
        ([b"CONNECT b:1 HTTP/1.1\r\nhost: a\r\n\r\n"], 400),
        ([b"GET /\xff HTTP/1.1\r\nhost: a\r\n\r\n"], 400),
        ([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], 400),
        ([b"POST / HTTP/1.1\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nhi"], 400),
        ([b"POST / HTTP/1.1\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nhi"], 400),
        ([b"POST / HTTP/1.1\r\ncontent-length: -2\r\n\r\nhi"], 400),
        ([b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n"], 400),
        ([b"GET / HTTP/1.1\r\n bad: folded\r\n\r\n"], 400),
        ([b"GET / HTTP/1.1\r\na b: 1\r\n\r\n"], 400),
        ([b"GET / HTTP/1.1\r\na: " + bytes(20_000)], 400),
        ([b"GET / HTTP/1.1\r\na: ", *[b"1" * 5_000] * 4], 431),
        ([b"GET / HTTP/1.1\r\na: " + b"1" * 17_000 + b"\r\n\r\n"], 431),
        ([b"GET /" + b"1" * 17_000 + b" HTTP/1.1\r\n\r\n"], 431),
        ([b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 15_000 + b"\r\n"], 431),
        ([b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 101 + b"\r\n"], 431),
        ([b"GET / HTTP/1.1\r\nconnection: close\r\n" + b"a:\r\n" * 99 + b"\r\n"], 200),
        ([b"GET / HTTP/1.0\r\n\r\n"], 200),
        ([b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"], 200),
        ([b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"], 200),
    ],
)
async def test_what_is_no_request_is_answered_once_and_closed(
    echo: tuple[HttpServer, Echo], sent: list[bytes], status: int
) -> None:
    """The answer has no body, or is the application's only one."""
    answer = await _talk(echo[0].address, *sent)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert answer.endswith(b"\r\n\r\n")
    assert 1 == answer.count(b"HTTP/1.1")
    assert b"connection: close" in answer


@table(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:7002", 200),
        ("127.0.0.1:80", 200),
        ("[::1]", 200),
        ("[::1]:443", 200),
        ("", 403),
        ("localhost\r\nhost: localhost", 403),
        ("localhost.", 403),
        ("localhost:7002:7002", 403),
        ("localhost, localhost", 403),
        ("::1", 403),
        ("evil.example", 403),
        ("localhost.evil.example:80", 403),
        ("evil.example:localhost", 403),
    ],
)
async def test_other_host_names_are_refused(host: str, status: int) -> None:
    """A name of a website may resolve to this server. The application sees nothing of it."""
    app = Echo()
    server = HttpServer(app, "127.0.0.1:0", hosts=host_names("127.0.0.1:0", ()))
    server.start()
    sent = b"POST / HTTP/1.1\r\nhost: %s\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi"
    answer = await _talk(server.address, sent % host.encode())
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert (status == 200) == answer.endswith(b"hi") == bool(app.peers)
    await server.stop(0)


async def test_a_head_request_is_answered_by_its_header(echo: tuple[HttpServer, Echo]) -> None:
    """At once, so that the next answer on the connection is not taken for it."""
    host, _, port = echo[0].address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    async with asyncio.timeout(_PATIENCE):
        for sent, body in ((b"HEAD / HTTP/1.1\r\nhost: a\r\n\r\n", b""), (_POST, b"hi")):
            writer.write(sent)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert b"content-length: %d" % len(body) in answer
            assert body == await reader.readexactly(len(body))
    writer.close()


async def test_only_the_first_of_pipelined_requests_is_answered(
    echo: tuple[HttpServer, Echo],
) -> None:
    """Thousands fit into one read, and each would take memory; browsers send none."""
    server, app = echo
    app.may_answer.set()
    answer = await _talk(server.address, b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n" * 50)
    assert 1 == answer.count(b"HTTP/1.1 200") == len(app.peers)


async def test_a_client_that_stops_in_a_request_is_cut_off(echo: tuple[HttpServer, Echo]) -> None:
    """Before its header, in it, or after a first request."""
    server, _ = echo
    begun = asyncio.get_running_loop().time()
    stopping: tuple[list[bytes], ...] = (
        [],
        [b"GET / HT"],
        [b"GET / HTTP/1.1\r\na", *[b"a"] * 30],
        [_POST, b"POST"],
    )
    await asyncio.gather(*(_talk(server.address, *sent) for sent in stopping))
    assert asyncio.get_running_loop().time() - begun < _PATIENCE / 2


@pytest.mark.parametrize("times", [1, 3000])
async def test_a_client_that_does_not_read_is_cut_off(
    echo: tuple[HttpServer, Echo], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Whether one answer is long or there are many."""
    for name in ("REQUEST_SECONDS", "IDLE_SECONDS", "_CLOSING_SECONDS"):
        monkeypatch.setattr(http_server, name, 0.1)
    server, _ = echo
    host, _, port = server.address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), limit=1)
    async with asyncio.timeout(_PATIENCE):
        while not server.state.connections:
            await asyncio.sleep(0.01)
        for _ in range(times):
            writer.write(_LONG if times == 1 else _POST)
            await asyncio.sleep(0)
        while server.state.connections:
            await asyncio.sleep(0.02)
    writer.transport.abort()


async def test_an_idle_connection_is_closed(
    echo: tuple[HttpServer, Echo], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its time; and with an answer once it is old."""
    monkeypatch.setattr(http_server, "IDLE_SECONDS", 0.1)
    server, _ = echo
    assert b"connection: close" not in await _talk(server.address, _POST)
    monkeypatch.setattr(http_server, "AGE_SECONDS", 0.0)
    assert b"connection: close" in await _talk(server.address, _POST)


async def test_an_unread_body_is_skipped_up_to_a_limit(echo: tuple[HttpServer, Echo]) -> None:
    """A client that sends before it reads gets its answer, unless it sends much."""
    server, _ = echo
    for size, answered in ((60_000, 2), (10_000_000, 1)):
        head = b"POST /unread HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % size
        answer = await _talk(server.address, head, bytes(size), _LAST)
        assert answered >= answer.count(b"HTTP/1.1 200")
        assert (answered == 2) == (answer.count(b"HTTP/1.1 200") == 2)


@pytest.mark.parametrize("secure", [False, True])
async def test_a_body_is_not_read_before_the_application_asks(
    tmp_path: Path, *, secure: bool
) -> None:
    """Thousands may wait for a read slot; then it arrives whole."""
    files = development_files(tmp_path, "shuffler", SystemClock())
    assert files.certificate
    assert files.key
    app = Echo()
    certificate = ServerCertificate(files.certificate, files.key) if secure else None
    server = HttpServer(app, "127.0.0.1:0", certificate)
    server.start()
    host, _, port = server.address.rpartition(":")
    context = ssl.create_default_context(cafile=files.authority) if secure else None
    reader, writer = await asyncio.open_connection(
        host, int(port), ssl=context, server_hostname="shuffler" if secure else None
    )
    size = 3_000_000
    writer.write(b"POST /later HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % size)
    async with asyncio.timeout(_PATIENCE):
        while not app.peers:
            await asyncio.sleep(0.01)
        writer.write(bytes(size))
        await asyncio.sleep(0.2)
        [connection] = server.state.connections
        assert isinstance(connection, HttpToolsProtocol)
        tls = connection.transport.__dict__.get("_ssl_protocol")
        ahead = tls._incoming.pending if tls else 0
        assert ahead + len(connection.cycle.body) <= 64 * 1024
        app.may_read.set()
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        assert bytes(size) == await reader.readexactly(size)
    writer.close()
    await server.stop(0)


async def test_a_failure_of_the_application_is_logged_by_its_place_alone(
    echo: tuple[HttpServer, Echo], caplog: pytest.LogCaptureFixture
) -> None:
    """Neither client nor log see what it says: it may name a caller."""
    answer = await _talk(echo[0].address, b"GET /fail HTTP/1.1\r\nhost: a\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 500")
    assert b"secret" not in answer
    [record] = caplog.records
    line = json.loads(logs._JsonLines().format(record))
    assert {"level", "event", "where", "error"} == line.keys()
    assert ("ERROR", "ValueError") == (line["level"], line["error"])
    assert line["where"].startswith("test_http_server.py:")


async def test_a_full_server_lets_a_newcomer_displace_an_idle_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of the address that holds most, even if it has had its answers."""
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 8)
    app = Echo()
    server = HttpServer(app, "127.0.0.1:0")
    server.start()
    many = [
        asyncio.create_task(_talk(server.address, _POST, source="127.0.0.2")) for _ in range(20)
    ]
    await asyncio.sleep(0.1)
    assert 7 == len(server.state.connections)
    many.append(asyncio.create_task(_talk(server.address, _POST, source="127.0.0.3")))
    await asyncio.sleep(0.1)
    for source in ("127.0.0.1", "127.0.0.4", "127.0.0.1"):
        answer = await _talk(server.address, _LAST, source=source)
        assert answer.startswith(b"HTTP/1.1 200")
    await server.stop(0)
    await asyncio.gather(*many)
    assert 0 == len(server.limit._holding)


async def test_requests_in_flight_are_answered_when_the_server_stops(
    echo: tuple[HttpServer, Echo],
) -> None:
    """Idle connections are closed, and no new one is accepted."""
    server, app = echo
    waiting = asyncio.create_task(_talk(server.address, b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n"))
    idle = asyncio.create_task(_talk(server.address, _POST))
    await asyncio.sleep(0.1)
    stopping = asyncio.create_task(server.stop(_PATIENCE))
    await idle
    with pytest.raises(OSError, match="Connect call failed"):
        await _talk(server.address)
    app.may_answer.set()
    assert b"connection: close" in await waiting
    await stopping


async def test_a_renewed_certificate_is_used_and_a_broken_one_is_not(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """At the next handshake, without a restart. A client that does not finish one is cut off."""
    files = development_files(tmp_path / "one", "shuffler", SystemClock())
    other = development_files(tmp_path / "two", "shuffler", SystemClock())
    assert files.certificate
    assert files.key
    assert other.certificate
    assert other.key
    server = HttpServer(Echo(), "127.0.0.1:0", ServerCertificate(files.certificate, files.key))
    server.start()

    async def is_by(authority: Any) -> bool:
        context = ssl.create_default_context(cafile=authority)
        host, _, port = server.address.rpartition(":")
        try:
            reader, writer = await asyncio.open_connection(
                host, int(port), ssl=context, server_hostname="shuffler"
            )
        except ssl.SSLError:
            return False
        writer.write(_LAST)
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        return True

    assert await is_by(files.authority)
    other.certificate.replace(files.certificate)
    assert await is_by(files.authority)
    assert ["TLS files not used"] == [record.getMessage() for record in caplog.records]
    other.key.replace(files.key)
    assert await is_by(other.authority)
    assert not await is_by(files.authority)
    await server.stop(0)


async def test_an_attack_that_nobody_answers_is_no_proof() -> None:
    """The floods of other tests count what was answered."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(AssertionError):
        await http_attacks._attack(address, None, 0, 100)
    server.close()


async def test_an_address_in_use_is_a_settings_error(echo: tuple[HttpServer, Echo]) -> None:
    """It names the address."""
    with pytest.raises(SettingsError, match="cannot listen on 127"):
        HttpServer(echo[1], echo[0].address)
