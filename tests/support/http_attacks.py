"""Attacks on a server over HTTP, run in a process of their own."""

import asyncio
import resource
from contextlib import suppress
from random import Random
from typing import Final

from tests.support.http_calls import JSON, PROTO, HttpConnection

_SUBMIT: Final = "/shuffledp.v1.Shuffler/Submit"
_HEAD: Final = (
    f"POST {_SUBMIT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {PROTO}\r\n"
    "content-length: 1000000\r\n\r\n"
).encode()
_SOURCES: Final = tuple(f"127.0.1.{number}" for number in range(1, 17))
_PAUSE: Final = 2.0
_PATIENCE: Final = 60.0
_ANSWERED: Final = 0.99
MANY_LISTS: Final = b'{"taskDigest": [%s[]]}' % (b"[]," * 699_000)
"""A request of almost 2 MiB that is valid JSON; each attacking connection sends some at once."""
_WORKERS: Final = 64
_BETWEEN_BURSTS: Final = 30_000
_GARBAGE: Final = (b"\xff" * 50, b"GET / HTTP/9\r\n\r\n", b"\x16\x03\x01" * 40, b"GET /\r\n" * 3000)


def attack(address: str, authority: bytes, held: int, requests: int) -> None:
    """
    Hold connections, and meanwhile send requests that must be refused, each with its status.

    A quarter of the held connections finishes no TLS handshake, sends nothing after it, trickles a
    header, or trickles a body; each opens again when it is cut off.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_attack(address, authority, held, requests))


async def _attack(address: str, authority: bytes | None, held: int, requests: int) -> None:
    holding = [
        asyncio.create_task(_hold(address, authority, number, _SOURCES[number % len(_SOURCES)]))
        for number in range(held)
    ]
    numbers, answered = iter(range(requests)), 0

    async def refused(worker: int) -> None:
        nonlocal answered
        source, rng = _SOURCES[worker % len(_SOURCES)], Random(worker)  # noqa: S311  # seeded
        while True:
            with suppress(OSError, EOFError):  # rarely: this process was too slow, or displaced
                connection = await HttpConnection.open(address, authority, source=source)
                try:
                    while (number := next(numbers, None)) is not None:
                        if number % 50 == 0:
                            connection.writer.write(rng.choice(_GARBAGE))
                            expected = {400, 431}
                        else:
                            is_long = number % _BETWEEN_BURSTS >= _BETWEEN_BURSTS - _WORKERS
                            chosen = _LONG_REQUEST if is_long else rng.choice(_REQUESTS)
                            path, body, kind, host, status = chosen
                            connection.send(path, body, kind, host=host)
                            expected = {status, 429}
                        answer = await asyncio.wait_for(connection.answer(), _PATIENCE)
                        assert answer.status in expected, (answer, expected)
                        answered += 1
                        if answer.fields.get("connection") == "close":
                            break
                finally:
                    connection.close()
                if number is None:
                    return

    await asyncio.gather(*(refused(worker) for worker in range(_WORKERS)))
    for one in holding:
        one.cancel()
    await asyncio.gather(*holding, return_exceptions=True)
    assert answered >= _ANSWERED * requests, answered


_LONG_REQUEST: Final = (_SUBMIT, MANY_LISTS, JSON, "localhost", 400)
_REQUESTS: Final = (
    (_SUBMIT, b"\xff\xff", PROTO, "localhost", 400),
    (_SUBMIT, b"{", JSON, "localhost", 400),
    (_SUBMIT, b'{"a":' * 5000, JSON, "localhost", 400),
    (_SUBMIT, b'{"envelope": "AAAA"}', JSON, "localhost", 400),
    (_SUBMIT, b"", "text/plain", "localhost", 415),
    (_SUBMIT, b"", PROTO, "rebound.example", 403),
    ("/", b"", PROTO, "localhost", 404),
    ("/shuffledp.v1.Shuffler/DropBatch", b"", PROTO, "localhost", 404),
)


async def _hold(address: str, authority: bytes | None, number: int, source: str) -> None:
    host, _, port = address.rpartition(":")
    way = number % 4
    while True:
        with suppress(OSError, EOFError):
            if way == 0:
                _, writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
            else:
                connection = await HttpConnection.open(address, authority, source=source)
                writer = connection.writer
            try:
                writer.write({2: _HEAD[:20], 3: _HEAD}.get(way, b""))
                while not writer.is_closing():
                    await asyncio.sleep(_PAUSE)
                    writer.write(b"a" * (way >= 2))
            finally:
                writer.close()
        await asyncio.sleep(_PAUSE)
