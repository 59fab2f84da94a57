"""Resource usage: samples of processes and of metrics pages."""

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from common.errors import SettingsError
from common.runtime.metrics import Metrics, MetricsServer
from deploy.load.usage import (
    Meter,
    PartyUsage,
    Sample,
    local_source,
    remote_source,
    sample_from,
)

_PAGE = b"""# HELP shuffledp_process_cpu_seconds_total CPU.
# TYPE shuffledp_process_cpu_seconds_total counter
shuffledp_process_cpu_seconds_total 12.5
# TYPE shuffledp_process_resident_memory_bytes gauge
shuffledp_process_resident_memory_bytes 3.0e+06
other_total{label="x"} 7
"""
_READ = Sample(12.5, 3_000_000)


def test_a_metrics_page_states_the_usage_of_a_service() -> None:
    """Two numbers of many."""
    assert _READ == sample_from(_PAGE)


@pytest.mark.parametrize(
    "page",
    [
        *(b"", b"\xff", b"other 1\n"),
        *(_PAGE.replace(b"12.5", number) for number in (b"x", b"+Inf", b"NaN", b"-1")),
        *(_PAGE.replace(b"3.0e+06", number) for number in (b"Inf", b"NaN", b"-5")),
    ],
)
def test_another_page_is_refused(page: bytes) -> None:
    """In words."""
    with pytest.raises(SettingsError):
        sample_from(page)


@pytest.mark.parametrize(
    ("samples", "cpu_seconds"),
    [
        pytest.param([10.0, 13.0, 1.0, 2.0], 5.0, id="a restarted service counts from zero"),
        pytest.param([10.0, 9.9, 10.0], 0.1, id="a worker that has just ended is no restart"),
    ],
)
def test_processor_time_adds_up(samples: list[float], cpu_seconds: float) -> None:
    """Over restarts and workers; memory is the most that was seen."""
    usage = PartyUsage()
    for memory, cpu in enumerate(samples):
        usage.record(Sample(cpu, memory))

    assert cpu_seconds == pytest.approx(usage.cpu_seconds)
    assert len(samples) - 1 == usage.peak_memory_bytes


async def test_a_meter_samples_before_and_after() -> None:
    """So that even a short run has a difference."""
    samples: Iterator[Mapping[str, Sample]] = iter([{"a": Sample(1.0, 1)}, {"a": Sample(4.0, 2)}])

    async def source() -> Mapping[str, Sample]:
        return next(samples)

    async with Meter(source) as meter:
        pass

    assert PartyUsage(3.0, 2, 4.0) == meter.usage["a"]


async def test_a_process_of_this_machine_is_sampled() -> None:
    """This one; one that does not exist is left out."""
    found = await local_source(lambda: {"here": os.getpid(), "nowhere": 2**22 + 1})()

    assert {"here"} == set(found)
    assert found["here"].memory_bytes > 10**6


@pytest.mark.parametrize(
    "page", ["a=https://a/m", "a=file:///etc/passwd", "a=127.0.0.1:9", "http://a/m", "a=", "=http:"]
)
def test_a_metrics_page_is_named_by_party_and_address(page: str) -> None:
    """No file, and no other protocol."""
    with pytest.raises(SettingsError, match="PARTY=http://"):
        remote_source([page])


@pytest.fixture
def served() -> Iterator[str]:
    """A metrics page on the loopback."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404 if self.path == "/missing" else 200)
            self.end_headers()
            self.wfile.write(_PAGE if self.path in {"/metrics?x=1", "/missing"} else b"nothing")

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its own name
            """Write nothing."""

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


async def test_pages_are_read_where_they_are(served: str) -> None:
    """With a query; what is missing, no metrics page or not reached is left out."""
    paths = {"shuffler": "/metrics?x=1", "analyzer": "/other", "user_agent": "/missing"}
    pages = [f"{party}={served}{path}" for party, path in paths.items()]

    assert {"shuffler": _READ} == await remote_source([*pages, "gone=http://127.0.0.1:9/m"])()


async def test_a_services_own_endpoint_is_read() -> None:
    """At the path alone: with anything behind it that page is not found."""
    metrics = Metrics("shuffler")
    metrics.advance_to("shuffledp_process_cpu_seconds_total", 12.5)
    metrics.set("shuffledp_process_resident_memory_bytes", 3_000_000)
    server = MetricsServer("127.0.0.1:0", metrics)
    async with asyncio.timeout(10):
        sampled = await remote_source([f"shuffler=http://{server.address}/metrics"])()
    await asyncio.to_thread(server.stop)

    assert {"shuffler": _READ} == sampled
