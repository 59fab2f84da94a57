"""Resource usage: samples of processes and of metrics pages."""

import os

import pytest

from shuffledp.common.errors import SettingsError
from shuffledp.common.runtime.metrics import OF_ALL, Metrics, MetricsServer, Usage
from shuffledp.deploy.load.target import GENERATOR, Meter, read_usage, usage_from

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
def test_a_metrics_page_must_state_a_finite_usage(page: bytes) -> None:
    """The page states two numbers among others, finite and not negative."""
    assert _READ == usage_from(_PAGE)
    with pytest.raises(SettingsError):
        usage_from(page)


def test_processor_time_never_falls_and_memory_is_the_largest_sample() -> None:
    """A party that starts again counts from zero."""
    meter = Meter(dict, {})
    for memory, cpu in ((7, 10.0), (9, 13.0), (8, 1.0), (1, 2.0)):
        meter.record("a", Usage(cpu_seconds=cpu, resident_bytes=memory))

    assert 4.0 == meter.usage["a"].cpu_seconds
    assert 9 == meter.usage["a"].peak_memory_bytes


def test_processes_and_pages_are_sampled_and_unreachable_ones_left_out() -> None:
    """Samples are taken before and after the block, so that a short run has some."""
    metrics = Metrics(OF_ALL)
    metrics.advance_to("shuffledp_process_cpu_seconds_total", 12.5)
    metrics.set("shuffledp_process_resident_memory_bytes", 3_000_000)
    server = MetricsServer("127.0.0.1:0", metrics)
    url = f"http://{server.address}/metrics"
    processes = {"here": os.getpid(), "nowhere": 2**22 + 1}
    pages = {"shuffler": url, "gone": "http://127.0.0.1:9/m"}
    with Meter(lambda: processes, pages) as meter:
        assert _READ == read_usage(url)
    server.stop()

    assert {GENERATOR, "here", "shuffler"} == set(meter.usage)
    assert 3_000_000 == meter.usage["shuffler"].peak_memory_bytes
    assert meter.usage["here"].peak_memory_bytes > 10**6
