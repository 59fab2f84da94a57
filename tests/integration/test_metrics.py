"""What the metrics of running services tell, and what they do not."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from pathlib import Path

import grpc
import numpy as np
import pytest

from common.errors import OverloadError, SettingsError, StorageError
from common.runtime.calls import connections_of
from common.runtime.gate import GateInterceptor
from common.runtime.metric_table import PARTIES, TABLE, Party
from common.runtime.metrics_endpoint import PAGE_SECONDS, MetricsEndpoint, parse_request
from common.runtime.rpc import bind, make_server
from common.signing import SignedTask
from common.task import Task
from common.version import VERSION
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc, user_agent_pb2
from shuffler.servicer import ShufflerServicer
from tests.support.clocks import ManualClock
from tests.support.connections import shuffler_stub
from tests.support.scrapes import Series, ask, by_batches, scrape, value
from tests.support.services import Services
from user_agent.contribution import Contributor

_DEADLINE = 20.0
_LISTEN = "127.0.0.1:0"


@pytest.fixture
async def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Services]:
    """The three services, all with their metrics, made anew for each scrape."""
    monkeypatch.setattr("common.runtime.metrics_endpoint.PAGE_SECONDS", 0.0)
    started = Services(tmp_path)
    await started.start_analyzer(metrics_listen=_LISTEN)
    await started.start_shuffler(metrics_listen=_LISTEN)
    await started.start_user_agent(metrics_listen=_LISTEN)
    yield started
    await started.stop()


async def _scrapes(services: Services) -> dict[Party, Series]:
    return {party: await scrape(services.directory / party) for party in PARTIES}


async def _submit(services: Services, signed: SignedTask, users: int, spoiled: int = 0) -> None:
    """Let users submit one by one, and some send what does not open."""
    contributor = Contributor(Task.from_bytes(signed.task_bytes), signed.digest())
    rng = np.random.default_rng(users)  # other submissions in each call of a test
    async with services.stubs() as (_, shuffler, _analyzer):
        for _ in range(users):
            request = shuffler_pb2.SubmitRequest(
                task_digest=signed.digest(), envelope=contributor.prepare(1, rng)
            )
            await shuffler.Submit(request, timeout=_DEADLINE)
        length = len(contributor.prepare(1, rng))
        bulk = shuffler_pb2.SubmitBulkRequest(
            task_digest=signed.digest(), envelopes=[bytes(length)] * spoiled
        )
        await shuffler.SubmitBulk(bulk, timeout=_DEADLINE)


async def _released(services: Services, signed: SignedTask) -> None:
    async with services.operator() as operator, asyncio.timeout(_DEADLINE):
        await operator.wait_for_result(signed.digest())
    async with asyncio.timeout(_DEADLINE):
        while list((services.directory / "shuffler").glob("batch-*.key")):
            await asyncio.sleep(0.02)


def _allowed(party: Party) -> dict[str, dict[str, tuple[str, ...]]]:
    return {row.name: dict(row.labels) for row in TABLE if party in row.parties}


async def test_names_and_labels_are_those_of_the_table(measured: Services) -> None:
    """After a batch went through all three: nothing else, and nothing of the table is missing."""
    signed = await measured.publish(n_min=3, target_size=3, population="staff", budget_epsilon=99.0)
    person = user_agent_pb2.ContributeRequest(task_digest=signed.digest(), value=1, person="Ada")
    async with measured.stubs() as (agent, _, _analyzer):
        await agent.Contribute(person, timeout=_DEADLINE)
    await _submit(measured, signed, 2)
    await _released(measured, signed)
    for party, series in (await _scrapes(measured)).items():
        allowed = _allowed(party)

        assert set(allowed) == {name for name, _ in series}
        for name, labels in series:
            assert [label for label, _ in labels] == sorted(allowed[name])
            for label, text in labels:
                assert text in allowed[name][label]


async def test_nothing_moves_while_a_batch_collects(measured: Services) -> None:
    """
    The first device's call, fifty submissions and ten that are refused move what is the process's,
    and no more.
    """
    signed = await measured.publish(n_min=100, target_size=100)
    before = await _scrapes(measured)
    async with measured.stubs() as (_, shuffler, _analyzer):
        fetch = shuffler_pb2.FetchTaskRequest(task_digest=signed.digest())
        await shuffler.FetchTask(fetch, timeout=_DEADLINE)
    await _submit(measured, signed, 50, spoiled=10)
    after = await _scrapes(measured)

    for party in PARTIES:
        assert by_batches(before[party]) == by_batches(after[party])
    cpu = "shuffledp_process_cpu_seconds_total"
    assert value(before["shuffler"], cpu) < value(after["shuffler"], cpu)


async def test_a_batch_is_counted_when_it_is_delivered_and_released(measured: Services) -> None:
    """Once, by whole users; nobody else's number moves with it."""
    signed = await measured.publish(n_min=4, target_size=4, population="staff", budget_epsilon=50.0)
    await _submit(measured, signed, 3)
    collecting = await _scrapes(measured)
    await _submit(measured, signed, 1)
    await _released(measured, signed)
    over = await _scrapes(measured)

    def moved(party: Party, name: str, **labels: str) -> tuple[float, float]:
        name = f"shuffledp_{name}"
        return value(collecting[party], name, **labels), value(over[party], name, **labels)

    assert (0, 4) == moved("shuffler", "users_released_total")
    assert (0, 1) == moved("shuffler", "batches", state="erased")
    for state in ("closed", "permuted", "delivered", "erased"):
        assert (0, 1) == moved("shuffler", "batches_moved_total", state=state)
    assert (0, 0) == moved("shuffler", "oldest_undelivered_seconds")
    assert (0, 4) == moved("analyzer", "users_counted_total")
    assert (0, 8) == moved("analyzer", "reports_received_total")
    assert (0, 1) == moved("analyzer", "releases_total")
    assert (0, 1) == moved("analyzer", "ledger_entries")
    assert (1, 0) == moved("analyzer", "tasks_open")
    assert (0, 1) == moved("analyzer", "batches", state="released")
    none, spent = moved("analyzer", "budget_spent_ratio")
    assert none == 0 < spent < 1
    assert moved("analyzer", "open_seconds")[1] > 0
    assert moved("analyzer", "estimate_seconds")[1] > 0


async def test_after_a_restart_batches_and_budgets_are_there_again(measured: Services) -> None:
    """Gauges are read from the files; counters begin anew."""
    signed = await measured.publish(n_min=2, target_size=2, population="staff", budget_epsilon=50.0)
    await _submit(measured, signed, 2)
    await _released(measured, signed)
    before = await _scrapes(measured)
    address = measured.analyzer.address
    await measured.shuffler.stop()
    await measured.analyzer.stop()
    await measured.start_analyzer(address, metrics_listen=_LISTEN)
    await measured.start_shuffler(metrics_listen=_LISTEN)
    after = await _scrapes(measured)
    async with asyncio.timeout(_DEADLINE):
        while ("shuffledp_budget_spent_ratio", ()) not in after["analyzer"]:
            after = await _scrapes(measured)  # budgets are looked up beside the first calls

    durable: tuple[tuple[Party, tuple[str, ...]], ...] = (
        ("shuffler", ("batches", "keys")),
        ("analyzer", ("batches", "ledger_entries", "budget_spent_ratio", "tasks_open")),
    )
    for party, names in durable:
        kept = {key for key in before[party] if key[0].removeprefix("shuffledp_") in names}
        assert kept
        assert {key: before[party][key] for key in kept} == {key: after[party][key] for key in kept}
    assert 0 == value(after["shuffler"], "shuffledp_users_released_total")


async def test_the_user_agent_tells_nothing_of_what_its_person_does(measured: Services) -> None:
    """That it runs, how long its certificate lasts, what the process takes."""
    series = await scrape(measured.directory / "user_agent")

    assert {
        "shuffledp_up",
        "shuffledp_certificate_days_left",
        "shuffledp_process_cpu_seconds_total",
        "shuffledp_process_resident_memory_bytes",
        "shuffledp_memory_limit_bytes",
    } == {name for name, _ in series}
    assert 1 == value(series, "shuffledp_up", party="user_agent", version=VERSION)
    days = value(series, "shuffledp_certificate_days_left", certificate="own")
    assert 363 <= days <= 365


async def test_metrics_are_served_only_where_they_are_asked_for(services: Services) -> None:
    """No address, no port."""
    assert [] == list(services.directory.glob("*/metrics_address"))


async def test_a_taken_port_stops_the_start(tmp_path: Path) -> None:
    """In one sentence, before anybody is served."""
    services = Services(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SettingsError, match=r"cannot serve metrics on 127\.0\.0\.1"):
            await services.start_analyzer(metrics_listen=f"127.0.0.1:{taken.getsockname()[1]}")


class _Failing(ShufflerServicer):
    """The shuffler's own, with no core: every submission meets with the same error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def Submit(  # noqa: N802  # named as in the .proto file
        self, _request: object, _context: object
    ) -> shuffler_pb2.SubmitResponse:
        """Fail."""
        raise self._error


@pytest.mark.parametrize("error", [OverloadError("no room"), StorageError("full")])
async def test_what_a_call_runs_into_is_taken_note_of(error: Exception) -> None:
    """Once a call, by the server itself."""
    noted: list[BaseException] = []
    name = "shuffledp.v1.Shuffler"
    gate = GateInterceptor(certificates=False, token=None)
    server = make_server(gate, connections_of(name), noted.append)
    shuffler_pb2_grpc.add_ShufflerServicer_to_server(_Failing(error), server)
    address = bind(server, _LISTEN, None)
    await server.start()
    async with shuffler_stub(address, None) as stub:
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.Submit(shuffler_pb2.SubmitRequest(), timeout=_DEADLINE)
    await server.stop(None)

    assert [error] == noted


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
