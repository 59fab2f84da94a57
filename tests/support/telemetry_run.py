"""
Run two batches with planted markers over three child processes, and keep all that is written.

SHUFFLEDP_MARKERS_SEED chooses the markers, so that no code can be written to avoid them.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from string import ascii_lowercase
from typing import Final

import numpy as np
import pytest

from shuffledp.audit.harness.byte_search import encodings
from shuffledp.audit.harness.services import RecordingProxy, files_of
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import PeerError
from shuffledp.common.runtime.rpc import open_channel, reply
from shuffledp.common.task.task import Task
from shuffledp.deploy.clients.local_cluster import Cluster
from shuffledp.deploy.clients.user_agent import send
from shuffledp.protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from shuffledp.user_agent.contribution import Contributor
from tests.support.clients import publish
from tests.support.scrapes import fetch, series_in

USERS: Final = 24
PERSONS: Final = 4
_ITEMS: Final = 32_000
_LABELS: Final = 6
_CLIENTS: Final = 12
_PATIENCE: Final = 60.0
LOUD: Final = {"GRPC_VERBOSITY": "debug", "GRPC_TRACE": "all"}
"""All of gRPC's traces: headers, metadata, addresses of peers, bytes before and in TLS."""

Headers = tuple[tuple[str, str | bytes], ...]


class Markers:
    """Planted values, names, labels, addresses and trace headers."""

    def __init__(self) -> None:
        self._rng = rng = Random(int(os.environ.get("SHUFFLEDP_MARKERS_SEED", "20261121")))  # noqa: S311  # not a secret
        self.values = sorted(rng.sample(range(10_001, _ITEMS), 5))
        """Items of a large domain, below the range of ephemeral ports."""
        self.labels = tuple(f"label {self._word()}" for _ in range(_LABELS))
        self.persons = [self._word() for _ in range(PERSONS)]
        self.addresses = [
            f"127.{rng.randrange(64, 127)}.{rng.randrange(100, 255)}.{rng.randrange(100, 255)}"
            for _ in range(_CLIENTS)
        ]
        """Loopback addresses, one for each client."""
        self.ids = list[bytes]()
        """Bytes and words in the headers."""
        self.headers = [self._headers() for _ in range(_CLIENTS)]

    def _word(self) -> str:
        return "".join(self._rng.choices(ascii_lowercase, k=14)).capitalize()

    def _headers(self) -> Headers:
        """Return headers as tracing libraries and gateways send them."""
        trace, span = self._rng.randbytes(16), self._rng.randbytes(8)
        vendor, user, request = self._word(), self._word(), self._word()
        address = f"203.0.{self._rng.randrange(100, 255)}.{self._rng.randrange(100, 255)}"
        self.ids += [trace, span, *(text.encode() for text in (vendor, user, request, address))]
        return (
            ("traceparent", f"00-{trace.hex()}-{span.hex()}-01"),
            ("tracestate", f"vendor={vendor}"),
            ("baggage", f"user={user}"),
            ("x-request-id", request),
            ("x-forwarded-for", address),
            ("grpc-trace-bin", b"\0\0" + trace + b"\1" + span + b"\2\1"),
        )


@dataclass(kw_only=True)
class Evidence:
    """The planted markers, and everything that was written and sent."""

    markers: Markers = field(default_factory=Markers)
    begun: float = field(default_factory=time.time)
    ended: float = 0.0
    tasks: list[SignedTask] = field(default_factory=list)
    """One of many items, one with labels."""
    ports: set[int] = field(default_factory=set)
    """Ports of clients, as the shuffler sees them."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Files of the shuffler and analyzer, collecting, after the release, and stopped."""
    logs: dict[str, bytes] = field(default_factory=dict)
    metrics: dict[str, bytes] = field(default_factory=dict)
    proxy: RecordingProxy = field(default_factory=RecordingProxy)
    numbers: list[float] = field(default_factory=list)
    """Every number in a column of the databases, and every metric."""
    failure: str = ""
    """The error message to a person whose answer cannot be sent."""

    def everything(self) -> bytes:
        """Return all that was written or sent."""
        chunks = [request for call in self.proxy.calls for request in call.requests[1:]]
        return b"\n".join((self.without_ciphertexts(), *self.files.values(), *chunks))

    def without_ciphertexts(self) -> bytes:
        """Return all but files and chunks of reports, where chance would find short patterns."""
        parts = [*self.logs.values(), *self.metrics.values(), self.failure.encode()]
        for call in self.proxy.calls:
            for header in call.headers:
                parts += [one if isinstance(one, bytes) else one.encode() for one in header]
            parts += [call.path.encode(), *call.requests[:1]]
        return b"\n".join(parts)

    def planted(self) -> dict[str, list[bytes]]:
        """Return patterns by the fact that they reveal, all too long to occur by chance."""
        markers, moments = self.markers, range(int(self.begun) - 1, int(self.ended) + 2)
        tokens = {raw for name, raw in self.files.items() if name.endswith("/operator.token")}
        values = [v.to_bytes(8, order) for v in markers.values for order in ("big", "little")]
        layouts = ("%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%H:%M:%S", "%Y%m%d%H%M", "%y%m%d%H%M%SZ")
        times = [second.to_bytes(8, o) for second in moments for o in ("big", "little")]
        return {
            "value": values,
            "label": [label.encode() for label in markers.labels],
            "person": [person.encode() for person in markers.persons],
            "header": [way for one in markers.ids for way in encodings(one)],
            "address": [address.encode() for address in markers.addresses],
            "token": sorted(tokens),
            "time": times
            + [str(second).encode() for second in moments]
            + [
                time.strftime(layout, zone(second)).encode()
                for second in moments
                for layout in layouts
                for zone in (time.gmtime, time.localtime)
            ],
        }


async def run(directory: Path) -> Evidence:
    """Start the services, collect both batches, and wait for their release."""
    evidence = Evidence()
    cluster = Cluster(directory, LOUD, log_level="DEBUG", metrics_listen="127.0.0.1:0")
    try:
        await cluster.start_analyzer(opening_processes=1)
        await evidence.proxy.start(directory / "tls", cluster.analyzer.address)
        await cluster.start_shuffler(analyzer=evidence.proxy.address, opening_processes=1)
        await cluster.start_user_agent()
        await _collect(cluster, evidence)
        await cluster.shuffler.stop()
        with pytest.raises(PeerError) as caught:
            await _answer(cluster, evidence, evidence.tasks[1], person=0)
        evidence.failure = str(caught.value)
    finally:
        await cluster.stop()
        await evidence.proxy.stop()
    _look(cluster, evidence, "stopped")
    for child in (cluster.user_agent, cluster.shuffler, cluster.analyzer):
        evidence.logs[child.party] = child.log.read_bytes()
    pages = [series_in(page.decode()) for page in evidence.metrics.values()]
    evidence.numbers += [number for page in pages for number in page.values()]
    for child in (cluster.shuffler, cluster.analyzer):
        for path in child.state.glob("*.sqlite"):
            evidence.numbers += _numbers(path)
    evidence.ended = time.time()
    return evidence


async def _collect(cluster: Cluster, evidence: Evidence) -> None:
    markers, rng = evidence.markers, np.random.default_rng(1)
    large = {"protocol": "mixdump", "domain_size": _ITEMS, "dummies_per_user": 2}
    named = {"domain_size": _LABELS, "labels": markers.labels}
    for users, fields in ((USERS + PERSONS, large), (_CLIENTS, named)):
        evidence.tasks.append(await publish(cluster, users, buckets=0, **fields))
    for person in range(PERSONS):
        await _answer(cluster, evidence, evidence.tasks[0], person)
    async with AsyncExitStack() as stack:
        stubs = [
            await stack.enter_async_context(_client(cluster, evidence, address))
            for address in markers.addresses
        ]
        for signed, users in zip(evidence.tasks, (USERS, _CLIENTS), strict=True):
            task, digest = Task.from_bytes(signed.task_bytes), signed.digest()
            contributor = Contributor(task, digest)
            for user in range(users):
                if user == USERS - 1:
                    await _scrape(cluster, evidence, "collecting")
                    _look(cluster, evidence, "collecting")
                value = markers.values[user % 5] if task.domain_size == _ITEMS else user % _LABELS
                envelope = contributor.prepare(value, rng).envelope
                request = shuffler_pb2.SubmitRequest(task_digest=digest, envelope=envelope)
                headers = markers.headers[user % _CLIENTS]
                call = stubs[user % _CLIENTS].Submit(request, timeout=20, metadata=headers)
                await reply(call, "it")
    async with asyncio.timeout(_PATIENCE):
        while cluster.analyzer.log.read_bytes().count(b'"batch released"') < len(evidence.tasks):
            await asyncio.sleep(0.05)
        while list(cluster.shuffler.state.glob("batch-*.key")):
            await asyncio.sleep(0.05)
    await _scrape(cluster, evidence, "over")
    _look(cluster, evidence, "over")


async def _answer(cluster: Cluster, evidence: Evidence, signed: SignedTask, person: int) -> None:
    """Answer as a person, through the user agent."""
    value, name = evidence.markers.values[0], evidence.markers.persons[person]
    await send(cluster.user_agent.address, signed.digest(), value, name)


@asynccontextmanager
async def _client(
    cluster: Cluster, evidence: Evidence, source: str
) -> AsyncIterator["shuffler_pb2_grpc.ShufflerAsyncStub"]:
    """
    Connect to the shuffler from a separate address, through a TCP proxy.

    The first connection speaks no TLS, because libraries log failed handshakes.
    """
    host, _, port = cluster.shuffler.address.rpartition(":")
    pumps = set[asyncio.Task[None]]()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far, onward = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
        evidence.ports.add(onward.get_extra_info("sockname")[1])
        pumps.update(asyncio.create_task(_pump(*way)) for way in ((reader, onward), (far, writer)))

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        own = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(*own)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        await reader.read()
        writer.close()
        authority = cluster.authority.read_bytes()
        async with open_channel(f"127.0.0.1:{own[1]}", "shuffler", authority) as channel:
            yield shuffler_pb2_grpc.ShufflerStub(channel)
    for pump in pumps:
        pump.cancel()
    await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def _scrape(cluster: Cluster, evidence: Evidence, moment: str) -> None:
    for child in (cluster.shuffler, cluster.analyzer):
        page = await asyncio.to_thread(fetch, (child.state / "metrics_address").read_text("ascii"))
        evidence.metrics[f"{moment} {child.party}"] = page.encode()


def _look(cluster: Cluster, evidence: Evidence, moment: str) -> None:
    for child in (cluster.shuffler, cluster.analyzer):
        for name, content in files_of(child.state).items():
            evidence.files[f"{moment} {child.party}/{name}"] = content


def _numbers(path: Path) -> list[float]:
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        cells = [
            cell
            for (table,) in tables.fetchall()
            for row in connection.execute(f"SELECT * FROM {table}")  # noqa: S608  # the file's own name
            for cell in row
        ]
    return [cell for cell in cells if isinstance(cell, int | float)]
