"""Read metrics as Prometheus does."""

import asyncio
import urllib.request
from pathlib import Path
from typing import Final

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

import shuffledp.analyzer.metrics
import shuffledp.issuer.metrics
import shuffledp.shuffler.metrics
from shuffledp.common.runtime.metrics import OF_ALL, OF_SERVERS, MetricRow, Metrics, Party

DEFINITIONS: Final[dict[Party, tuple[MetricRow, ...]]] = {
    "analyzer": shuffledp.analyzer.metrics.METRICS,
    "shuffler": shuffledp.shuffler.metrics.METRICS,
    "issuer": shuffledp.issuer.metrics.METRICS,
    "user_agent": OF_ALL,
    "witness": OF_SERVERS,
}
"""Each party's metrics."""

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]

OF_PROCESS: Final = frozenset(
    {
        "shuffledp_process_cpu_seconds_total",
        "shuffledp_process_resident_memory_bytes",
        "shuffledp_memory_limit_bytes",
        "shuffledp_state_free_bytes",
        "shuffledp_state_size_bytes",
    }
)
"""Metrics of the process and its machine rather than of batches."""


async def scrape(state: Path) -> Series:
    """Read the metrics of the service with this state directory."""
    address = (state / "metrics_address").read_text(encoding="ascii")  # small
    return series_in(await asyncio.to_thread(fetch, address))


def fetch(address: str) -> str:
    """Fetch a page of metrics."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:  # a test's own
        text: str = answer.read().decode("utf-8")
    return text


def series_of(metrics: Metrics) -> Series:
    """Read a party's metrics without a server."""
    return series_in(generate_latest(metrics.registry).decode())


def series_in(text: str) -> Series:
    """Parse the text format: a value for each name with labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def by_batches(series: Series) -> Series:
    """Leave out the metrics of the process."""
    return {key: value for key, value in series.items() if key[0] not in OF_PROCESS}


def value(series: Series, name: str, **labels: str) -> float:
    """Return the value of one series."""
    return series[name, tuple(sorted(labels.items()))]
