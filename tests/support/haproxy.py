"""haproxy before a shuffler's HTTP, as the documents configure it."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from tests.support.commands import ROOT
from tests.support.http_calls import HttpConnection
from tests.support.tools import tool

_PATIENCE: Final = 20.0


@dataclass(frozen=True)
class Proxy:
    """A running haproxy."""

    address: str
    pid: int


def _documented(folder: Path, port: int, tls: Path, server: str) -> Path:
    """Write the configuration in the documents, with a test's own addresses and files."""
    page = (ROOT / "docs" / "operators" / "running.md").read_text(encoding="utf-8")
    [text] = re.findall(r"```\n(defaults\n.*?)```", page, re.DOTALL)
    pair = folder / "shuffler.pem"
    pair.write_bytes((tls / "shuffler.pem").read_bytes() + (tls / "shuffler.key").read_bytes())
    for stated, own in (
        ("/etc/haproxy/shuffler.pem", str(pair)),
        ("bind :443", f"bind 127.0.0.1:{port}"),
        ("10.0.0.2:8080", server),
        ("Host shuffler.example", "Host localhost"),
    ):
        assert stated in text
        text = text.replace(stated, own)
    file = folder / "haproxy.cfg"
    file.write_text(text, encoding="utf-8")
    return file


@asynccontextmanager
async def proxy(folder: Path, tls: Path, server: str) -> AsyncIterator[Proxy]:
    """Run haproxy before a server, with the shuffler's certificate; yield it once it serves."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = _documented(folder, port, tls, server)
    haproxy = await asyncio.create_subprocess_exec(
        *(tool("haproxy", "/usr/sbin"), "-db", "-f", str(file)), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        address, authority = f"127.0.0.1:{port}", (tls / "authority.pem").read_bytes()
        async with asyncio.timeout(_PATIENCE):
            while not await _serves(address, authority):
                await asyncio.sleep(0.05)
        yield Proxy(address, haproxy.pid)
    finally:
        haproxy.kill()
        await haproxy.wait()


async def _serves(address: str, authority: bytes) -> bool:
    try:
        connection = await HttpConnection.open(address, authority)
    except OSError:
        return False
    status = (await connection.post("/", b"")).status
    connection.close()
    return status == HTTPStatus.NOT_FOUND
