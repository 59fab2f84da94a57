"""What stands between the parties in a test: it passes everything on, and remembers it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc

from common.runtime.clock import SystemClock
from common.runtime.rpc import bind, open_channel
from common.runtime.tls import Tls, development_files

_DEADLINE = 60.0


@dataclass
class AnalyzerRelay(grpc.GenericRpcHandler):
    """
    Stands where the shuffler expects the analyzer, with its certificate, and passes calls on.

    So it sees each call as the analyzer does: path, headers, and messages in their order.
    """

    address: str = ""
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    calls: list[tuple[str, list[bytes]]] = field(default_factory=list)
    """Path, and the messages of the request in order."""

    async def start(self, tls: Path, analyzer: str) -> Self:
        """Listen, and connect to the real analyzer."""
        own = development_files(tls, "shuffler", SystemClock()).read()
        self._channel = open_channel(analyzer, "analyzer", own.authority, own=own)
        self._server = grpc.aio.server(handlers=[self])
        clock = SystemClock()
        identity = Tls.open(development_files(tls, "analyzer", clock), "analyzer", clock)
        self.address = bind(self._server, "127.0.0.1:0", identity, ask_for_certificates=True)
        await self._server.start()
        return self

    async def stop(self) -> None:
        """Let go of both ends."""
        await self._server.stop(None)
        await self._channel.close()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Take any call."""
        path = str(handler_call_details.method)

        async def passed_on(requests: AsyncIterator[bytes], context: Any) -> bytes:
            messages: list[bytes] = []
            self.calls.append((path, messages))
            for key, value in context.invocation_metadata() or ():
                raw = value if isinstance(value, bytes) else value.encode()
                self.headers.append((key, raw))

            async def recorded() -> AsyncIterator[bytes]:
                async for request in requests:
                    messages.append(request)
                    yield request

            onward: Any = self._channel.stream_unary(path)
            call = onward(recorded(), timeout=_DEADLINE)
            await context.send_initial_metadata(tuple(await call.initial_metadata()))
            try:
                answer: bytes = await call
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "")
            return answer

        return grpc.stream_unary_rpc_method_handler(passed_on)

    def everything(self) -> bytes:
        """Give all that the shuffler sent, headers too."""
        return b"\n".join(
            [key.encode() + b": " + raw for key, raw in self.headers]
            + [path.encode() + b" " + b" ".join(messages) for path, messages in self.calls]
        )


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
