import asyncio
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import cycle
from time import monotonic, sleep
from typing import Any

import pytest

from common.errors import SettingsError
from common.runtime.metrics_endpoint import MetricsEndpoint
from deploy.audit.harness.clock import ManualClock
from deploy.load.usage import (
    Look,
    Meter,
    Taken,
    local_source,
    look_from,
    pages_from,
    remote_source,
)

_PAGE = b"""# HELP shuffledp_process_cpu_seconds_total CPU.
# TYPE shuffledp_process_cpu_seconds_total counter
shuffledp_process_cpu_seconds_total 12.5
# TYPE shuffledp_process_resident_memory_bytes gauge
shuffledp_process_resident_memory_bytes 3.0e+06
other_total{label="x"} 7
"""


def test_a_page_of_metrics_says_what_a_service_took() -> None:
    """Two numbers of many."""
    assert Look(12.5, 3_000_000) == look_from(_PAGE)


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
        look_from(page)


def test_processor_time_adds_up_over_a_restart() -> None:
    """A service that was started again counts from nothing."""
    usage = Taken()
    for look in (Look(10.0, 5), Look(13.0, 9), Look(1.0, 2), Look(2.0, 2)):
        usage.take(look)

    assert (5.0, 9) == (usage.cpu_seconds, usage.peak_memory_bytes)


def test_a_worker_that_has_just_ended_is_no_restart() -> None:
    """Its time is its parent's a moment later."""
    usage = Taken()
    for look in (Look(10.0, 1), Look(9.9, 1), Look(10.0, 1)):
        usage.take(look)

    assert 0.1 == pytest.approx(usage.cpu_seconds)


async def test_a_meter_looks_before_and_after() -> None:
    """So that even a short run has a difference."""
    looks: Iterator[Mapping[str, Look]] = iter([{"a": Look(1.0, 1)}, {"a": Look(4.0, 2)}])
    async with Meter(lambda: next(looks)) as meter:
        pass

    assert Taken(3.0, 2, 4.0) == meter.usage["a"]


def test_a_process_of_this_machine_is_looked_at() -> None:
    """This one; and one that is not there is left out."""
    source = local_source(lambda: {"here": [os.getpid()], "nowhere": [2**22 + 1]})

    assert {"here"} == set(source())
    assert source()["here"].memory_bytes > 10**6


def test_a_page_that_does_not_answer_is_left_out() -> None:
    """A service may be down for a moment."""
    assert {} == remote_source({"shuffler": "http://127.0.0.1:9/metrics"})()


@pytest.mark.parametrize(
    "url", ["https://a/m", "file:///etc/passwd", "http:", "127.0.0.1:9", "http://a:b/", "http://[/"]
)
def test_metrics_are_read_over_http_alone(url: str) -> None:
    """No file, and nothing else that an address may say."""
    with pytest.raises(SettingsError, match="http://"):
        remote_source({"shuffler": url})


def test_pages_are_named_by_party() -> None:
    """PARTY=URL."""
    assert {"shuffler": "http://a/m?x=1"} == pages_from(["shuffler=http://a/m?x=1"])
    with pytest.raises(SettingsError, match="PARTY=URL"):
        pages_from(["http://a/m"])


@pytest.fixture
def served() -> Iterator[str]:
    """A page of metrics on the loopback."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404 if self.path == "/missing" else 200)
            self.end_headers()
            if self.path.startswith("/trickling"):
                with suppress(OSError):  # cut off
                    for byte in cycle(b"#\n"):
                        self.wfile.write(bytes([byte]))
                        sleep(0.01)
            self.wfile.write(_PAGE if self.path in {"/metrics?x=1", "/missing"} else b"nothing")

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its own name
            """Write nothing."""

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_page_is_read_from_where_it_is(served: str) -> None:
    """With its query; another page there says nothing."""
    pages = {"shuffler": f"{served}/metrics?x=1", "analyzer": f"{served}/other"}

    assert {"shuffler": Look(12.5, 3_000_000)} == remote_source(pages)()


async def test_a_services_own_endpoint_is_read_where_it_serves() -> None:
    """At the path alone: with anything behind it that page is not found."""

    async def page() -> bytes:
        return _PAGE

    endpoint = await MetricsEndpoint.start("127.0.0.1:0", page, ManualClock().elapsed)
    source = remote_source({"shuffler": f"http://{endpoint.address}/metrics"})
    looked = await asyncio.to_thread(source)
    await endpoint.stop()

    assert {"shuffler": Look(12.5, 3_000_000)} == looked


def test_a_page_that_is_not_found_is_left_out(served: str) -> None:
    """Whatever stands on it."""
    assert {} == remote_source({"shuffler": f"{served}/missing"})()


def test_a_page_that_trickles_for_ever_is_left_out(
    served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then does not hold up the run."""
    monkeypatch.setattr("deploy.load.usage._TIMEOUT", 0.2)
    begun = monotonic()

    assert {} == remote_source({"shuffler": f"{served}/trickling"})()
    assert monotonic() - begun < 5
