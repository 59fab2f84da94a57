"""Reading metrics as Prometheus does."""

import asyncio
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from common.runtime.metric_table import TABLE

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]

OF_PROCESS: Final = frozenset(row.name for row in TABLE if row.of_process)


async def ask(address: str, request: bytes = b"GET /metrics HTTP/1.1\r\n\r\n") -> tuple[str, str]:
    """Send a request to a metrics endpoint; give the first line of the answer, and its body."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    answer = (await reader.read()).decode("utf-8")
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return head.partition("\r\n")[0], body


async def scrape(state: Path) -> Series:
    """Read the metrics of the service with this state directory."""
    address = (state / "metrics_address").read_text(encoding="ascii")  # small
    line, body = await ask(address)
    assert line == "HTTP/1.1 200 OK"
    return series_in(body)


def series_in(text: str) -> Series:
    """Read the text format: a value for each name with labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def by_batches(series: Series) -> Series:
    """Leave out what moves with the process."""
    return {key: value for key, value in series.items() if key[0] not in OF_PROCESS}


def value(series: Series, name: str, **labels: str) -> float:
    """Give one number."""
    return series[name, tuple(sorted(labels.items()))]
