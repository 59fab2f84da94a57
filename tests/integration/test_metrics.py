"""What the metrics of running services tell, and what they do not."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import grpc
import pytest

from common.crypto.signing import SignedTask
from common.errors import OverloadError, StorageError
from common.messages.batch import BatchState
from common.runtime.access import connections_of
from common.runtime.admission_interceptor import AdmissionInterceptor
from common.runtime.metrics import DEFINITIONS, PARTIES, Party
from common.runtime.rpc import bind, make_server
from common.version import VERSION
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from shuffler.servicer import ShufflerServicer
from tests.support.clients import (
    DEADLINE,
    contribute,
    envelopes,
    final_state,
    result_of,
    submit,
    submit_bulk,
)
from tests.support.connections import shuffler_stub
from tests.support.scrapes import Series, by_batches, scrape, value
from tests.support.services import Services

_LISTEN = "127.0.0.1:0"


@pytest.fixture
async def measured(tmp_path: Path) -> AsyncIterator[Services]:
    """The three services, all with their metrics."""
    started = Services(tmp_path)
    await started.start_analyzer(metrics_listen=_LISTEN)
    await started.start_shuffler(metrics_listen=_LISTEN)
    await started.start_user_agent(metrics_listen=_LISTEN)
    yield started
    await started.stop()


async def _scrapes(services: Services) -> dict[Party, Series]:
    return {party: await scrape(services.directory / party) for party in PARTIES}


async def _released(services: Services, signed: SignedTask) -> None:
    await result_of(services, signed)
    assert BatchState.ERASED is await final_state(services, signed)


def _allowed(party: Party) -> dict[str, Mapping[str, tuple[str, ...]]]:
    return {metric.name: metric.labels for metric in DEFINITIONS[party]}


async def test_names_and_labels_are_those_of_the_table(measured: Services) -> None:
    """After a batch went through all three: nothing else, and nothing of the table is missing."""
    signed = await measured.publish(n_min=3, target_size=3, population="staff", budget_epsilon=99.0)
    await contribute(measured, signed, "Ada")
    await submit(measured, signed, *envelopes(signed, 2))
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
        await shuffler.FetchTask(fetch, timeout=DEADLINE)
    users = envelopes(signed, 50)
    await submit(measured, signed, *users)
    await submit_bulk(measured, signed, [bytes(len(users[0]))] * 10)
    after = await _scrapes(measured)

    for party in PARTIES:
        assert by_batches(before[party]) == by_batches(after[party])
    cpu = "shuffledp_process_cpu_seconds_total"
    assert value(before["shuffler"], cpu) < value(after["shuffler"], cpu)


async def test_a_batch_is_counted_when_it_is_delivered_and_released(measured: Services) -> None:
    """Once, by whole users; nobody else's number moves with it."""
    signed = await measured.publish(n_min=4, target_size=4, population="staff", budget_epsilon=50.0)
    *users, last = envelopes(signed, 4)
    await submit(measured, signed, *users)
    collecting = await _scrapes(measured)
    await submit(measured, signed, last)
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
    await submit(measured, signed, *envelopes(signed, 2))
    await _released(measured, signed)
    before = await _scrapes(measured)
    address = measured.analyzer.address
    await measured.shuffler.stop()
    await measured.analyzer.stop()
    await measured.start_analyzer(address, metrics_listen=_LISTEN)
    await measured.start_shuffler(metrics_listen=_LISTEN)
    after = await _scrapes(measured)
    async with asyncio.timeout(DEADLINE):
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
    gate = AdmissionInterceptor(certificates=False, token=None, note=noted.append)
    server = make_server(gate, connections_of(name))
    shuffler_pb2_grpc.add_ShufflerServicer_to_server(_Failing(error), server)
    address = bind(server, _LISTEN, None)
    await server.start()
    async with shuffler_stub(address, None) as stub:
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.Submit(shuffler_pb2.SubmitRequest(), timeout=DEADLINE)
    await server.stop(None)

    assert [error] == noted
