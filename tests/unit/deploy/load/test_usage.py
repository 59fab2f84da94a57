"""Resource usage: samples of processes and of metrics pages."""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from common.errors import SettingsError
from common.runtime.metrics import Metrics, MetricsServer
from common.runtime.process_metrics import Usage
from deploy.load.usage import (
    GENERATOR,
    Meter,
    PartyUsage,
    local_source,
    own_source,
    remote_source,
    usage_from,
)

_PAGE = b"""# HELP shuffledp_process_cpu_seconds_total CPU.
# TYPE shuffledp_process_cpu_seconds_total counter
shuffledp_process_cpu_seconds_total 12.5
# TYPE shuffledp_process_resident_memory_bytes gauge
shuffledp_process_resident_memory_bytes 3.0e+06
other_total{label="x"} 7
"""
_READ = Usage(cpu_seconds=12.5, resident_bytes=3_000_000)


@pytest.mark.parametrize(
    "page",
    [
        *(b"", b"\xff", b"other 1\n"),
        *(_PAGE.replace(b"12.5", number) for number in (b"x", b"+Inf", b"NaN", b"-1")),
        *(_PAGE.replace(b"3.0e+06", number) for number in (b"Inf", b"NaN", b"-5")),
    ],
)
def test_only_a_metrics_page_with_the_usage_of_its_process_is_read(page: bytes) -> None:
    """Two numbers of many, finite and not negative."""
    assert _READ == usage_from(_PAGE)
    with pytest.raises(SettingsError):
        usage_from(page)


@pytest.mark.parametrize(
    ("samples", "cpu_seconds"),
    [
        pytest.param([10.0, 13.0, 1.0, 2.0], 5.0, id="a restarted service counts from zero"),
        pytest.param([10.0, 9.9, 10.0], 0.1, id="a worker that has just ended is no restart"),
    ],
)
def test_processor_time_adds_up_over_restarts(samples: list[float], cpu_seconds: float) -> None:
    """Memory is the largest sample."""
    meter = Meter()
    for memory, cpu in enumerate(samples):
        meter.record("a", Usage(cpu_seconds=cpu, resident_bytes=memory))

    assert cpu_seconds == pytest.approx(meter.usage["a"].cpu_seconds)
    assert len(samples) - 1 == meter.usage["a"].peak_memory_bytes


async def test_even_a_short_run_is_sampled_before_and_after() -> None:
    """The difference is what it used."""
    samples = iter([_READ, Usage(cpu_seconds=14.0, resident_bytes=2)])
    async with Meter(lambda: {"a": next(samples)}) as meter:
        pass

    assert {"a": PartyUsage(1.5, 3_000_000)} == meter.usage


def test_processes_of_this_machine_are_sampled_while_they_run() -> None:
    """A process that has ended is left out."""
    found = local_source(lambda: {"here": os.getpid(), "nowhere": 2**22 + 1})()

    assert {"here"} == set(found)
    assert found["here"].resident_bytes > 10**6
    assert own_source()[GENERATOR].resident_bytes > 10**6


@pytest.mark.parametrize(
    "page", ["a=https://a/m", "a=file:///etc/passwd", "a=127.0.0.1:9", "http://a/m", "a=", "=http:"]
)
def test_a_metrics_page_is_named_by_party_and_address(page: str) -> None:
    """No file, and no other protocol."""
    with pytest.raises(SettingsError, match="PARTY=http://"):
        remote_source(page)


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


def test_a_page_is_read_with_its_query_and_left_out_where_it_is_missing(served: str) -> None:
    """Over HTTP, as services serve it."""
    pages = {"a": "/metrics?x=1", "b": "/other", "c": "/missing"}
    found = [remote_source(f"{party}={served}{path}")() for party, path in pages.items()]

    assert [{"a": _READ}, {}, {}] == found
    assert {} == remote_source("gone=http://127.0.0.1:9/m")()


def test_a_services_own_endpoint_is_read() -> None:
    """At its exact path."""
    metrics = Metrics("shuffler")
    metrics.advance_to("shuffledp_process_cpu_seconds_total", 12.5)
    metrics.set("shuffledp_process_resident_memory_bytes", 3_000_000)
    server = MetricsServer("127.0.0.1:0", metrics)
    sampled = remote_source(f"shuffler=http://{server.address}/metrics")()
    server.stop()

    assert {"shuffler": _READ} == sampled
