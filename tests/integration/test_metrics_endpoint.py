"""Where metrics are served: one page, in bounded time, whoever asks and however."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus

import pytest

from common.runtime.metrics_endpoint import PAGE_SECONDS, MetricsEndpoint, parse_request
from deploy.audit.harness.clock import ManualClock
from tests.support.scrapes import ask

_LISTEN = "127.0.0.1:0"


async def _page() -> bytes:
    return b"shuffledp_up 1\n"


async def _started(page: Callable[[], Awaitable[bytes]]) -> MetricsEndpoint:
    return await MetricsEndpoint.start(_LISTEN, page, ManualClock().elapsed)


@pytest.fixture
async def endpoint() -> AsyncIterator[MetricsEndpoint]:
    """An endpoint of a small page."""
    started = await _started(_page)
    yield started
    await started.stop()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /metrics HTTP/1.1", "200 OK"),
        ("GET /metrics HTTP/1.0", "200 OK"),
        ("GET / HTTP/1.1", "404 Not Found"),
        ("GET /metrics/ HTTP/1.1", "404 Not Found"),
        ("GET /metrics?name[]=x HTTP/1.1", "404 Not Found"),
        ("POST /metrics HTTP/1.1", "405 Method Not Allowed"),
        ("HEAD /metrics HTTP/1.1", "405 Method Not Allowed"),
        ("GET /metrics", "400 Bad Request"),
        ("PRI * HTTP/2.0", "400 Bad Request"),
    ],
)
async def test_one_page_is_served_and_nothing_else(
    endpoint: MetricsEndpoint, request_line: str, status: str
) -> None:
    """Whatever is asked, the answer comes, and the connection ends."""
    line, body = await ask(endpoint.address, f"{request_line}\r\nHost: localhost\r\n\r\n".encode())

    assert f"HTTP/1.1 {status}" == line
    assert ("shuffledp_up 1\n" if status == "200 OK" else "") == body


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("Host: 127.0.0.1:9464", "200 OK"),
        ("hOST:localhost:9464", "200 OK"),
        ("Host: [::1]", "200 OK"),
        ("Accept: */*", "200 OK"),
        ("Host: evil.example", "403 Forbidden"),
        ("Host: evil.example:9464", "403 Forbidden"),
        ("Host : evil.example", "403 Forbidden"),
        ("Host: 127.0.0.1.evil.example:9464", "403 Forbidden"),
        ("Host: localhost\r\nHost: evil.example", "403 Forbidden"),
        ("Host:", "403 Forbidden"),
    ],
)
async def test_a_foreign_name_for_this_machine_is_refused(
    endpoint: MetricsEndpoint, host: str, status: str
) -> None:
    """A page of somebody else's, whose name was made to lead here, learns nothing."""
    line, body = await ask(endpoint.address, f"GET /metrics HTTP/1.1\r\n{host}\r\n\r\n".encode())

    assert f"HTTP/1.1 {status}" == line
    assert (status == "200 OK") == bool(body)


def test_in_a_network_the_service_has_whatever_name_it_has_there() -> None:
    """Only on loopback is it known."""
    head = b"GET /metrics HTTP/1.1\r\nHost: shuffler-metrics:9464\r\n\r\n"

    assert HTTPStatus.OK is parse_request(head)
    assert HTTPStatus.FORBIDDEN is parse_request(head, from_here=True)


async def test_a_page_is_made_once_for_all_who_ask_within_a_second() -> None:
    """Then anew: nobody makes the service work by asking often."""
    clock, made = ManualClock(), 0

    async def page() -> bytes:
        nonlocal made
        made += 1
        await asyncio.sleep(0.01)
        return str(made).encode()

    started = await MetricsEndpoint.start(_LISTEN, page, clock.elapsed)
    told = []
    for seconds in (0.0, PAGE_SECONDS - 0.01, 0.02):
        clock.seconds += seconds
        answers = await asyncio.gather(*(ask(started.address) for _ in range(5)))
        told.append({body for _, body in answers})
    await started.stop()

    assert [{"1"}, {"1"}, {"2"}] == told


async def test_a_page_that_is_never_made_holds_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked is cut off in time, and whoever comes then is served."""
    monkeypatch.setattr("common.runtime.metrics_endpoint._SECONDS", 0.2)
    page = _SlowPage()
    started = await _started(page)
    async with asyncio.timeout(5):
        cut = await asyncio.gather(
            *(ask(started.address) for _ in range(16)), return_exceptions=True
        )
        page.go_on.set()
        line, _ = await ask(started.address)
    await started.stop()

    assert all(isinstance(one, ConnectionError) or one == ("", "") for one in cut)
    assert "HTTP/1.1 200 OK" == line


async def test_a_head_that_never_ends_is_cut_off(endpoint: MetricsEndpoint) -> None:
    """At some thousand bytes."""
    line, _ = await ask(endpoint.address, b"GET /metrics HTTP/1.1\r\nX: " + bytes(20_000))

    assert "" == line


async def _silent(address: str, count: int) -> list[asyncio.StreamWriter]:
    host, _, port = address.rpartition(":")
    found = [await asyncio.open_connection(host, int(port)) for _ in range(count)]
    await asyncio.sleep(0.05)
    return [writer for _, writer in found]


async def test_clients_that_say_nothing_hold_up_no_scrape(endpoint: MetricsEndpoint) -> None:
    """More of them than there are places: the oldest are cut off."""
    silent = await _silent(endpoint.address, 40)
    async with asyncio.timeout(1):
        for _ in range(20):
            line, _ = await ask(endpoint.address)
            assert "HTTP/1.1 200 OK" == line
    for writer in silent:
        writer.close()


async def test_a_burst_leaves_no_more_open_than_there_are_places(
    endpoint: MetricsEndpoint,
) -> None:
    """Each that comes cuts off another."""
    host, _, port = endpoint.address.rpartition(":")
    burst = await asyncio.gather(
        *(asyncio.open_connection(host, int(port)) for _ in range(100)), return_exceptions=True
    )
    await asyncio.sleep(0.2)
    connected = [one for one in burst if not isinstance(one, BaseException)]
    left = [reader for reader, _ in connected if not reader.at_eof() and reader.exception() is None]
    for _, writer in connected:
        writer.close()

    assert 50 < len(connected)
    assert 16 == len(left)


class _SlowPage:
    """A page that takes until it is let go."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self) -> bytes:
        """Give it."""
        self.asked.set()
        await self.go_on.wait()
        return b"shuffledp_up 1\n"


async def test_a_scrape_under_way_is_not_cut_off() -> None:
    """By however many come and say nothing."""
    page = _SlowPage()
    started = await _started(page)
    scraping = asyncio.create_task(ask(started.address))
    await page.asked.wait()
    silent = await _silent(started.address, 40)
    page.go_on.set()
    line, _ = await scraping
    await started.stop()
    for writer in silent:
        writer.close()

    assert "HTTP/1.1 200 OK" == line


async def test_who_comes_while_all_places_are_being_answered_is_turned_away() -> None:
    """And the others get their answers."""
    page = _SlowPage()
    started = await _started(page)
    scraping = [asyncio.create_task(ask(started.address)) for _ in range(16)]
    await page.asked.wait()
    await asyncio.sleep(0.1)
    async with asyncio.timeout(2):
        late = await asyncio.gather(ask(started.address), return_exceptions=True)
    page.go_on.set()
    lines = [line for line, _ in await asyncio.gather(*scraping)]
    await started.stop()

    assert isinstance(late[0], ConnectionError) or ("", "") == late[0]
    assert ["HTTP/1.1 200 OK"] * 16 == lines


async def test_clients_that_say_nothing_hold_up_no_stop(caplog: pytest.LogCaptureFixture) -> None:
    """They are cut off, and nothing is said of it."""
    started = await _started(_page)
    silent = await _silent(started.address, 5)
    async with asyncio.timeout(1):
        await started.stop()
    await asyncio.sleep(0.05)
    assert [] == caplog.messages
    for writer in silent:
        writer.close()


@pytest.mark.slow
async def test_a_client_that_says_nothing_is_cut_off(endpoint: MetricsEndpoint) -> None:
    """Within seconds, also if it is alone."""
    host, _, port = endpoint.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    async with asyncio.timeout(8):
        assert b"" == await reader.read()
    writer.close()
