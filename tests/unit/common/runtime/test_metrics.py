import asyncio
import re
import socket
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from common.errors import (
    OverloadError,
    SettingsError,
    ShareError,
    StorageError,
    TaskError,
)
from common.runtime.metric_definitions import DEFINITIONS, PARTIES, MetricDefinition, Party
from common.runtime.metrics import Metrics, MetricsServer
from common.runtime.process_metrics import WINDOW, FailureCounters, ProcessMetrics, memory_limit
from common.version import VERSION
from deploy.audit.harness.clock import ManualClock
from tests.support.scrapes import fetch, series_in, series_of, value

_UNBOUNDED = re.compile(r"user|peer|task|digest|batch|population|address|connection|person|id$")
_EVERY = [metric for party in PARTIES for metric in DEFINITIONS[party]]


@pytest.mark.parametrize("party", PARTIES)
def test_names_and_labels_are_the_allow_list(party: Party, snapshot: SnapshotAssertion) -> None:
    """A metric is added by changing the snapshot: a review of what it reveals."""
    allowed = {
        metric.name: {label: list(values) for label, values in metric.labels.items()}
        for metric in DEFINITIONS[party]
    }
    assert [VERSION] == allowed["shuffledp_up"].pop("version")
    assert snapshot == allowed
    assert len(allowed) == len(DEFINITIONS[party])


@pytest.mark.parametrize("metric", _EVERY, ids=lambda metric: metric.name)
def test_a_metric_is_a_bounded_prometheus_metric(metric: MetricDefinition) -> None:
    """No label is a person, a connection, a task, a batch or a population; help is a sentence."""
    for label, values in metric.labels.items():
        assert not _UNBOUNDED.search(label)
        assert 1 <= len(values) <= 10
        assert all(len(text) < 20 for text in values)
    assert metric.name.startswith("shuffledp_")
    assert metric.help.endswith(".")


def test_what_is_counted_is_there_from_the_start() -> None:
    """With 0: that a series appears would tell something too."""
    begun = series_of(Metrics("shuffler"))

    assert 0 == value(begun, "shuffledp_batches", state="expired")
    assert 0 == value(begun, "shuffledp_submissions_refused_total", cause="conflict")
    assert {0.0} == set(begun.values())
    assert "shuffledp_up" not in {name for name, _ in begun}


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("shuffledp_batches", {"state": "3fa9"}),
        ("shuffledp_batches", {}),
        ("shuffledp_batches", {"state": "closed", "task_digest": "00"}),
        ("shuffledp_batches", {"cause": "closed"}),
        ("shuffledp_releases_total", {}),
        ("shuffledp_users", {}),
    ],
)
def test_what_is_not_defined_cannot_be_told(name: str, labels: dict[str, str]) -> None:
    """A value, a label, another party's metric, or any other name."""
    metrics = Metrics("shuffler")

    for tell in (metrics.set, metrics.add):
        with pytest.raises(ValueError, match="has no"):
            tell(name, 1.0, labels)


def test_a_counter_only_grows() -> None:
    """It is neither set nor taken back, and a gauge is not advanced; processes share nothing."""
    metrics, other = Metrics("shuffler"), Metrics("shuffler")
    counter, gauge = "shuffledp_users_released_total", "shuffledp_batches_stuck"
    metrics.add(counter, 5)
    for by in (-3.0, float("nan")):
        with pytest.raises(ValueError, match="only grows"):
            metrics.add(counter, by)
    with pytest.raises(ValueError, match="is no gauge"):
        metrics.set(counter, 1)
    for advance in (metrics.add, metrics.advance_to):
        with pytest.raises(ValueError, match="is no counter"):
            advance(gauge, 1)

    assert 5.0 == _told(metrics, counter)
    assert 0.0 == _told(other, counter)


def test_counted_seconds_never_fall() -> None:
    """A worker ended between two readings, before the system had added it to its parent."""
    metrics, name = Metrics("shuffler"), "shuffledp_process_cpu_seconds_total"
    for seconds in (5.0, 3.0, 6.0):
        metrics.advance_to(name, seconds)
        assert max(5.0, seconds) == _told(metrics, name)


def _told(metrics: Metrics, name: str) -> float:
    return value(series_of(metrics), name)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (OverloadError("no room"), "shuffledp_overloaded"),
        (StorageError("full"), "shuffledp_storage_failing"),
    ],
)
def test_a_failure_is_told_for_the_whole_of_the_next_five_minutes(
    error: Exception, name: str
) -> None:
    """Not while it happens, however often it does; nor afterwards."""
    clock = ManualClock(100 * WINDOW)
    metrics = Metrics("shuffler")
    failures = FailureCounters(metrics, clock)
    found = []
    for minute in range(20):
        clock.seconds = 100 * WINDOW + 60 * minute
        if minute in {1, 2, 3}:
            failures.note(error)
        found.append(_told(metrics, name))

    assert [0.0] * 5 + [1.0] * 5 + [0.0] * 10 == found


@pytest.mark.parametrize("error", [ShareError("its share"), TaskError("no"), ValueError()])
def test_what_one_client_runs_into_is_no_failure(error: Exception) -> None:
    """It had its share, or asked for what there is not; others are served."""
    clock = ManualClock()
    metrics = Metrics("shuffler")
    failures = FailureCounters(metrics, clock)
    failures.note(error)
    clock.seconds += WINDOW

    assert 0 == _told(metrics, "shuffledp_overloaded")
    assert 0 == _told(metrics, "shuffledp_storage_failing")


def test_free_space_is_told_in_hundredths(tmp_path: Path) -> None:
    """Of the disk, rounded down: no file shows by its own size."""
    process = ProcessMetrics("shuffler", ManualClock())
    process.watch_disk(tmp_path)
    series = series_of(process.metrics)
    size = value(series, "shuffledp_state_size_bytes")
    free = value(series, "shuffledp_state_free_bytes")

    assert 0 <= free <= size
    assert 0 == free % (size // 100)


def test_the_memory_of_a_container_is_its_own(tmp_path: Path) -> None:
    """If it is less than the machine's."""
    limit = tmp_path / "memory.max"
    machine = memory_limit(limit)
    for text, expected in (("max\n", machine), ("1048576\n", 1048576), (f"{2**60}\n", machine)):
        limit.write_text(text, encoding="ascii")
        assert expected == memory_limit(limit)


def test_a_page_is_served_until_it_is_stopped() -> None:
    """On the address that it names, to any that ask; afterwards nobody is answered."""
    server = MetricsServer("127.0.0.1:0", Metrics("shuffler"))
    first = series_in(fetch(server.address))
    server.stop()

    assert 0 == value(first, "shuffledp_users_released_total")
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://{server.address}/metrics", timeout=5)


async def test_clients_that_say_nothing_hold_up_neither_page_nor_stop() -> None:
    """Each has a thread of its own, which ends with the process."""
    server = MetricsServer("127.0.0.1:0", Metrics("shuffler"))
    host, _, port = server.address.rpartition(":")
    silent = [await asyncio.open_connection(host, int(port)) for _ in range(20)]
    async with asyncio.timeout(5):
        page = await asyncio.to_thread(fetch, server.address)
        await asyncio.to_thread(server.stop)
    for _, writer in silent:
        writer.close()

    assert "shuffledp_users_released_total" in page


async def test_the_page_of_a_service_that_hangs_fails() -> None:
    """The page has threads of its own, and asks the event loop for a sign of life."""
    process = ProcessMetrics("shuffler", ManualClock())
    process.watch_loop(asyncio.get_running_loop(), patience=0.05)
    assert ("shuffledp_overloaded", ()) in await asyncio.to_thread(series_of, process.metrics)

    with ThreadPoolExecutor(1) as reader:
        page = reader.submit(series_of, process.metrics)
        time.sleep(0.3)  # noqa: ASYNC251  # the event loop hangs
    with pytest.raises(TimeoutError):
        page.result()


def test_a_taken_port_is_refused() -> None:
    """In one sentence."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SettingsError, match=r"cannot serve metrics on 127\.0\.0\.1"):
            MetricsServer(f"127.0.0.1:{taken.getsockname()[1]}", Metrics("shuffler"))
