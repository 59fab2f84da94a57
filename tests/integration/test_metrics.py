"""Metrics of running services: what they count, and what they hide."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from shuffledp.common.messages.batch import BatchState
from shuffledp.common.runtime.metrics import PARTIES, Party
from tests.support import clients
from tests.support.scrapes import DEFINITIONS, Series, by_batches, scrape, value
from tests.support.services import Services

_LISTEN = "127.0.0.1:0"
_STARTED = tuple(party for party in PARTIES if party not in {"issuer", "witness"})
_ABSENT = {
    "shuffledp_oldest_cosignature_seconds",
    "shuffledp_engine_workers",
    "shuffledp_store_connected",
    "shuffledp_store_commit_seconds",
}
"""Metrics that only a log with witnesses, an engine, or a store in PostgreSQL has."""


@pytest_asyncio.fixture(loop_scope="session")
async def measured(tmp_path: Path) -> AsyncIterator[Services]:
    """The three services, all with their metrics."""
    started = Services(tmp_path)
    await started.start_analyzer(metrics_listen=_LISTEN)
    await started.start_shuffler(metrics_listen=_LISTEN)
    await started.start_user_agent(metrics_listen=_LISTEN)
    yield started
    await started.stop()


async def _scrapes(services: Services) -> dict[Party, Series]:
    return {party: await scrape(services.directory / party) for party in _STARTED}


async def test_a_batch_is_counted_when_it_is_delivered_and_released(measured: Services) -> None:
    """Each counter moves once, by whole users; names and labels are those of the table."""
    signed = await measured.publish(n_min=4, target_size=4, population="staff", budget_epsilon=50.0)
    await clients.contribute(measured, signed, "Ada")
    await clients.submit(measured, signed, *clients.envelopes(signed, 2))
    collecting = await _scrapes(measured)
    await clients.submit(measured, signed, *clients.envelopes(signed, 1, seed=2))
    await clients.result_of(measured, signed)
    assert BatchState.ERASED is await clients.final_state(measured, signed)
    over = await _scrapes(measured)

    def moved(party: Party, name: str, **labels: str) -> tuple[float, float]:
        name = f"shuffledp_{name}"
        return value(collecting[party], name, **labels), value(over[party], name, **labels)

    assert (0, 4) == moved("shuffler", "users_released_total")
    assert (0, 0) == moved("shuffler", "oldest_undelivered_seconds")
    assert (0, 1) == moved("shuffler", "batches", state="erased")
    for state in ("closed", "permuted", "sent", "delivered", "erased"):
        assert (0, 1) == moved("shuffler", "batches_moved_total", state=state)
    for name, change in {
        "users_counted_total": (0, 4),
        "reports_received_total": (0, 8),
        "releases_total": (0, 1),
        "ledger_entries": (0, 1),
        "tasks_open": (1, 0),
    }.items():
        assert change == moved("analyzer", name)
    assert (0, 1) == moved("analyzer", "batches", state="released")
    none, spent = moved("analyzer", "budget_spent_ratio")
    assert none == 0 < spent < 1
    assert moved("analyzer", "open_seconds")[1] > 0
    assert moved("analyzer", "estimate_seconds")[1] > 0
    for party, series in over.items():
        allowed = {metric.name: metric.labels for metric in DEFINITIONS[party]}
        assert set(allowed) - _ABSENT == {name for name, _ in series}
        for name, labels in series:
            assert [label for label, _ in labels] == sorted(allowed[name])
            for label, text in labels:
                assert text in allowed[name][label]


async def test_nothing_moves_while_a_batch_collects(measured: Services) -> None:
    """Fifty submissions and ten refused ones change only metrics of the process."""
    signed = await measured.publish(n_min=100, target_size=100)
    before = await _scrapes(measured)
    await clients.fetch_task(measured, signed.digest())
    users = clients.envelopes(signed, 50)
    await clients.submit(measured, signed, *users)
    await clients.submit_bulk(measured, signed, [bytes(len(users[0]))] * 10)
    after = await _scrapes(measured)

    for party in _STARTED:
        assert by_batches(before[party]) == by_batches(after[party])
    cpu = "shuffledp_process_cpu_seconds_total"
    assert value(before["shuffler"], cpu) < value(after["shuffler"], cpu)
