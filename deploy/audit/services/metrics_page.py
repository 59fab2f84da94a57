"""A service's page of metrics, read as its operator's monitoring does."""

import asyncio
from pathlib import Path


async def metrics_page(state: Path) -> str:
    """Read the page of the service with this state directory, without its headers."""
    address = (state / "metrics_address").read_text(encoding="ascii")
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
    _, _, page = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return page
