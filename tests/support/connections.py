"""Clients with separate connections, and raw HTTP/2 connections that misbehave."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import grpc
import psutil

from shuffledp.protos.shuffledp.v1 import shuffler_pb2_grpc

_DATA, _HEADERS, _SETTINGS, _PING = 0x0, 0x1, 0x4, 0x6
_END_STREAM, _ACKNOWLEDGED, _END_HEADERS = 0x1, 0x1, 0x4
_INITIAL_WINDOW = 0x4


def connect(address: str, authority: bytes | None) -> grpc.aio.Channel:
    """Open a channel with its own connection, which gRPC would otherwise share."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
    if authority is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(
        address,
        grpc.ssl_channel_credentials(authority),
        options=[*options, ("grpc.ssl_target_name_override", "shuffler")],
    )


@asynccontextmanager
async def shuffler_stub(
    address: str, authority: bytes | None
) -> AsyncIterator["shuffler_pb2_grpc.ShufflerAsyncStub"]:
    """Yield a stub with its own connection."""
    async with connect(address, authority) as channel:
        yield shuffler_pb2_grpc.ShufflerStub(channel)


class RawConnection:
    """Handwritten HTTP/2, for calls that never end or whose answer is never read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._next = 1

    @classmethod
    async def open(
        cls,
        address: str,
        window: int = 65_535,
        source: str = "127.0.0.1",
        authority: bytes | None = None,
    ) -> Self:
        """
        Connect, and send the preface.

        Args:
            address: host:port.
            window: Bytes of answers that the server may send; 0 for none.
            source: The address to connect from.
            authority: PEM of the authority to trust; None for plaintext.
        """
        host, _, port = address.rpartition(":")
        secure: dict[str, Any] = {}
        if authority is not None:
            context = ssl.create_default_context(cadata=authority.decode("ascii"))
            context.set_alpn_protocols(["h2"])
            secure = {"ssl": context, "server_hostname": "shuffler"}
        reader, writer = await asyncio.open_connection(
            host, int(port), local_addr=(source, 0), **secure
        )
        settings = _INITIAL_WINDOW.to_bytes(2, "big") + window.to_bytes(4, "big")
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, settings))
        return cls(reader, writer)

    async def begin(self, method: str, announced: int) -> int:
        """Begin a call and announce its message's length; return the stream's number."""
        stream = self.send_headers(method)
        await self.trickle(stream, b"\x00" + announced.to_bytes(4, "big"))
        return stream

    def send_headers(self, method: str) -> int:
        """Begin a call without a message; return the stream's number."""
        stream, self._next = self._next, self._next + 2
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": method,
            ":authority": "localhost",
            "content-type": "application/grpc",
            "te": "trailers",
        }
        block = b"".join(b"\x00" + _text(name) + _text(value) for name, value in fields.items())
        self._writer.write(_frame(_HEADERS, _END_HEADERS, stream, block))
        return stream

    async def call(self, method: str, message: bytes) -> int:
        """Make a whole call with a short message; return the stream's number."""
        stream = await self.begin(method, len(message))
        self._writer.write(_frame(_DATA, _END_STREAM, stream, message))
        await self._writer.drain()
        return stream

    async def trickle(self, stream: int, part: bytes) -> None:
        """Send part of a call's message."""
        self._writer.write(_frame(_DATA, 0, stream, part))
        await self._writer.drain()

    async def read(self) -> bytes:
        """Read from the server; empty once the connection is closed."""
        return await self._reader.read(65_536)

    async def stay(self) -> None:
        """Answer settings and pings until the server closes the connection."""
        await self.hold("", 0)

    async def hold(self, method: str, calls: int) -> None:
        """Stay, with `calls` calls that send no message; begin another when one is refused."""
        for _ in range(calls):
            self.send_headers(method)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await self._reader.readexactly(9)
                payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
                kind, flags = head[3], head[4]
                if kind in {_SETTINGS, _PING} and not flags & _ACKNOWLEDGED:
                    said = payload if kind == _PING else b""
                    self._writer.write(_frame(kind, _ACKNOWLEDGED, 0, said))
                if calls and kind == _HEADERS and flags & _END_STREAM:
                    self.send_headers(method)
                    await self._writer.drain()

    def is_over(self) -> bool:
        """Return whether the server has closed the connection."""
        return self._reader.at_eof()

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


def hold_calls(
    address: str, method: str, sources: list[str], calls: int, authority: bytes | None = None
) -> None:
    """Hold `calls` calls without a message on a connection from each source; does not return."""

    async def hold_all() -> None:
        connections = [
            await RawConnection.open(address, source=source, authority=authority)
            for source in sources
        ]
        await asyncio.gather(*(one.hold(method, calls) for one in connections))

    asyncio.run(hold_all())


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


def _text(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    return psutil.Process(pid).memory_info().rss


def tree_resident_bytes(pid: int) -> int:
    """Return the resident memory of a process and its children."""
    total = resident_bytes(pid)
    for child in psutil.Process(pid).children():
        with suppress(psutil.NoSuchProcess):  # it has ended
            total += child.memory_info().rss
    return total
