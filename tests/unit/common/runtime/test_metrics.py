import asyncio
import shutil
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from syrupy.assertion import SnapshotAssertion

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common import errors
from shuffledp.common.crypto.hpke import (
    DEFAULT_SUITE,
    HpkePrivateKey,
    HpkePublicKey,
    report_context,
)
from shuffledp.common.crypto.hpke_pool import HpkePool, seal_each
from shuffledp.common.runtime.metrics import (
    PARTIES,
    WINDOW,
    Metrics,
    MetricsServer,
    Party,
    ProcessMetrics,
    measure,
    memory_limit,
)
from shuffledp.common.runtime.service import _directories
from shuffledp.common.runtime.settings import KeyHolderSettings
from shuffledp.common.runtime.tls import development_files
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.version import VERSION
from shuffledp.shuffler.metrics import METRICS
from tests.support.scrapes import DEFINITIONS, fetch, series_of, value

_FAILURES = ("shuffledp_overloaded", "shuffledp_shares_exceeded", "shuffledp_storage_failing")


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


def test_a_counter_only_grows() -> None:
    """A counter cannot be set or fall, even where a measured total does; unknown series fail."""
    metrics = Metrics(METRICS)
    for name, labels in (
        ("shuffledp_batches", {"state": "3fa9"}),
        ("shuffledp_batches", {"state": "closed", "task_digest": "00"}),
        ("shuffledp_releases_total", {}),
    ):
        with pytest.raises(ValueError, match="has no"):
            metrics.set(name, 1.0, labels)
    counter, gauge = "shuffledp_users_released_total", "shuffledp_batches_stuck"
    metrics.add(counter, 5)
    for by in (-3.0, float("nan")):
        with pytest.raises(ValueError, match="is a counter"):
            metrics.add(counter, by)
    with pytest.raises(ValueError, match="is not a gauge"):
        metrics.set(counter, 1)
    for advance in (metrics.add, metrics.advance_to):
        with pytest.raises(ValueError, match="is not a counter"):
            advance(gauge, 1)
    for seconds in (5.0, 3.0, 6.0):
        metrics.advance_to(counter, seconds)
        assert max(5.0, seconds) == value(series_of(metrics), counter)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (errors.OverloadError("no room"), "shuffledp_overloaded"),
        (errors.StorageError("full"), "shuffledp_storage_failing"),
        (errors.ShareError("its share"), "shuffledp_shares_exceeded"),
        (errors.TaskError("no"), None),
    ],
)
def test_a_failure_shows_for_exactly_the_next_five_minutes(
    error: Exception, name: str | None
) -> None:
    """Repetition does not prolong it; a call beyond its share is no overload."""
    clock = ManualClock(100 * WINDOW)
    process = ProcessMetrics("shuffler", METRICS, clock)
    found, others = [], set()
    for minute in range(20):
        clock.seconds = 100 * WINDOW + 60 * minute
        if minute in {1, 2, 3}:
            process.note_failure(error)
        shown = {one: value(series_of(process.metrics), one) for one in _FAILURES}
        found.append(shown.pop(name or "", 0.0))
        others |= {*shown.values()}

    assert [0.0] * 5 + [float(name is not None)] * 5 + [0.0] * 10 == found
    assert {0.0} == others


def test_free_space_is_shown_in_hundredths_of_the_disk(tmp_path: Path) -> None:
    """No single file changes it visibly."""
    process = ProcessMetrics("shuffler", METRICS, ManualClock())
    process.watch_disks(tmp_path)
    series = series_of(process.metrics)
    size = value(series, "shuffledp_state_size_bytes")
    free = value(series, "shuffledp_state_free_bytes")

    assert 0 <= free <= size
    assert 0 == free % (size // 100)


def test_the_fullest_disk_and_internal_certificates_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk of blocks counts like that of the state."""
    disks = {
        "state": SimpleNamespace(total=100, free=50),
        "blocks": SimpleNamespace(total=1000, free=50),
    }
    monkeypatch.setattr(shutil, "disk_usage", lambda path: disks[path.name])
    settings = KeyHolderSettings(
        state_directory=tmp_path / "state", plaintext=True, blocks=f"file://{tmp_path}/blocks"
    )
    clock = ManualClock()
    process = ProcessMetrics("shuffler", METRICS, clock)
    process.watch_disks(*_directories(settings))
    process.watch_certificates(development_files(tmp_path, "shuffler", clock))
    process.watch_certificates(development_files(tmp_path, "coordinator", clock), "internal ")
    series = series_of(process.metrics)

    assert (50, 1000) == (
        value(series, "shuffledp_state_free_bytes"),
        value(series, "shuffledp_state_size_bytes"),
    )
    names = ("own", "authority", "internal own", "internal authority")
    assert [365, 3650] * 2 == [
        value(series, "shuffledp_certificate_days_left", certificate=name) for name in names
    ]


def test_the_memory_limit_is_the_smaller_of_container_and_machine(tmp_path: Path) -> None:
    """A container without a limit has the machine's."""
    limit = tmp_path / "memory.max"
    machine = memory_limit(limit)
    for text, expected in (("max\n", machine), ("1048576\n", 1048576), (f"{2**60}\n", machine)):
        limit.write_text(text, encoding="ascii")
        assert expected == memory_limit(limit)


async def test_silent_clients_delay_neither_the_page_nor_the_stop() -> None:
    """A taken port is refused; a stopped server closes its own."""
    server = MetricsServer("127.0.0.1:0", Metrics(METRICS))
    host, _, port = server.address.rpartition(":")
    silent = [await asyncio.open_connection(host, int(port)) for _ in range(5)]
    with pytest.raises(errors.SettingsError, match=r"cannot serve metrics on 127\.0\.0\.1"):
        MetricsServer(server.address, Metrics(METRICS))
    async with asyncio.timeout(5):
        page = await asyncio.to_thread(fetch, server.address)
        await asyncio.to_thread(server.stop)
    for _, writer in silent:
        writer.close()

    assert "shuffledp_users_released_total" in page
    with pytest.raises(OSError, match="refused"):
        await asyncio.to_thread(urllib.request.urlopen, f"http://{server.address}/", timeout=5)


async def test_the_page_of_a_service_that_hangs_fails() -> None:
    """Each reading waits for one turn of the event loop."""
    process = ProcessMetrics("shuffler", METRICS, ManualClock())
    process.watch_loop(asyncio.get_running_loop(), patience=0.05)
    assert ("shuffledp_overloaded", ()) in await asyncio.to_thread(series_of, process.metrics)

    with ThreadPoolExecutor(1) as reader:
        page = reader.submit(series_of, process.metrics)
        time.sleep(0.3)  # noqa: ASYNC251  # the event loop hangs
    with pytest.raises(TimeoutError):
        page.result()


def test_another_process_can_be_measured_while_it_runs() -> None:
    """The other process takes less memory than this one."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        running = measure(other.pid)
        other.kill()
        other.wait()
        with pytest.raises(psutil.NoSuchProcess):
            measure(other.pid)

    assert 0 < running.resident_bytes < measure().resident_bytes


def _seal_many(key: HpkePublicKey) -> None:
    seal_each(key.sealer(report_context(TaskDigest(bytes(32)))), bytes(16 * 20_000), 16)


@pytest.mark.slow
def test_processor_time_of_workers_counts_after_they_end_too() -> None:
    """Workers' memory counts only while they run."""
    key = HpkePrivateKey.generate(DEFAULT_SUITE).public_key()
    before, started = measure(), time.process_time()
    pool = HpkePool(1)
    pool.submit(_seal_many, key).result()
    here = time.process_time() - started
    running = measure()
    pool.close()
    ended = measure()

    assert running.cpu_seconds - before.cpu_seconds > here + 0.5
    assert running.resident_bytes - ended.resident_bytes > 10 * 2**20
    assert ended.cpu_seconds >= running.cpu_seconds - 0.02
