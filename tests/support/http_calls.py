"""HTTP calls: through an ASGI application, and over a connection of one's own."""

import asyncio
import json
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from shuffledp.common.runtime.peer import Peer

PROTO: Final = "application/proto"
JSON: Final = "application/json"


@dataclass
class Answer:
    """What a server answers."""

    status: int = 0
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def error(self) -> tuple[int, str, str]:
        """The HTTP status, Connect's code and the message."""
        parsed = json.loads(self.body)
        return self.status, parsed["code"], parsed["message"]


@dataclass
class AsgiCall:
    """One request to an application, and its answer; the body comes in parts, then no more."""

    path: str
    parts: Iterable[bytes] = (b"",)
    verb: str = "POST"
    fields: Mapping[str, str] = field(default_factory=dict)
    again: Sequence[tuple[str, str]] = ()
    """Fields that are repeated."""
    peer: Peer = field(default_factory=lambda: Peer("http 1", "ipv4:192.0.2.1"))
    client: str = "192.0.2.1"
    reads: int = 0

    async def of(self, app: Any) -> Answer:
        """Make the call."""
        parts, answer = list(self.parts), Answer()
        known = {"host": "localhost:1", "content-type": PROTO}
        known["content-length"] = str(sum(map(len, parts)))
        path, _, query = self.path.partition("?")

        async def receive() -> dict[str, Any]:
            self.reads += 1
            if not parts:
                await asyncio.Event().wait()
            part = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": self.reads != self._last}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                sent = [(name.decode(), value.decode()) for name, value in message["headers"]]
                answer.fields = dict(sent)
                assert len(sent) == len(answer.fields)
            else:
                answer.body += message["body"]

        self._last = len(parts)
        scope = {
            "type": "http",
            "method": self.verb,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [
                (name.encode(), value.encode())
                for name, value in (*{**known, **self.fields}.items(), *self.again)
                if value
            ],
            "client": (self.client, 5000),
            "state": {"peer": self.peer},
        }
        await app(scope, receive, send)
        return answer


class HttpConnection:
    """One kept connection to a server."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str
    ) -> None:
        self.reader = reader
        self.writer = writer
        self._host = host

    @classmethod
    async def open(
        cls,
        address: str,
        authority: bytes | None = None,
        name: str = "shuffler",
        source: str = "127.0.0.1",
    ) -> Self:
        """Connect to host:port, over TLS if an authority is given, to the party with this name."""
        host, _, port = address.rpartition(":")
        secure: dict[str, Any] = {}
        if authority is not None:
            secure["ssl"] = ssl.create_default_context(cadata=authority.decode("ascii"))
            secure["server_hostname"] = name
        reader, writer = await asyncio.open_connection(
            host, int(port), local_addr=(source, 0), **secure
        )
        return cls(reader, writer, address)

    def send(self, path: str, body: bytes, kind: str = PROTO, **fields: str) -> None:
        """Send a request."""
        lines = {"host": self._host, "content-type": kind, "content-length": str(len(body))}
        lines |= {name.replace("_", "-"): value for name, value in fields.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        self.writer.write(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body)

    async def answer(self) -> Answer:
        """Read an answer; raise IncompleteReadError if the server has closed."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")[:-2]
        fields = dict(line.split(": ", 1) for line in lines)
        size = int(fields.get("content-length", 0))
        return Answer(int(status.split(" ")[1]), fields, await self.reader.readexactly(size))

    async def post(self, path: str, body: bytes, kind: str = PROTO, **fields: str) -> Answer:
        """Send a request, and read its answer."""
        self.send(path, body, kind, **fields)
        return await self.answer()

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()
