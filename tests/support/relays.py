"""A TCP relay that gives each client an address of its own."""

import asyncio
from dataclasses import dataclass, field
from typing import Self


@dataclass
class Client:
    """A client's own way to the shuffler: a connection from an address that nobody else has."""

    source: str
    address: str = ""
    ports: list[int] = field(default_factory=list)
    """Its own, as the shuffler sees them."""

    async def start(self, target: str) -> Self:
        """Listen for this client, and connect onwards from its address."""
        host, _, port = target.rpartition(":")
        self._to = (host, int(port))
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self._pumps: set[asyncio.Task[None]] = set()
        return self

    async def talk_nonsense(self) -> None:
        """Connect, send what is no handshake, and wait until the other end hangs up."""
        host, _, port = self.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        await reader.read()
        writer.close()

    async def stop(self) -> None:
        """Break every connection."""
        self._server.close()
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far, onward = await asyncio.open_connection(*self._to, local_addr=(self.source, 0))
        self.ports.append(onward.get_extra_info("sockname")[1])
        for source, sink in ((reader, onward), (far, writer)):
            pump = asyncio.create_task(_pump(source, sink))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()
