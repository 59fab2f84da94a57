"""A batch over three child processes: markers planted, and everything kept that was written."""

import asyncio
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from common.crypto.randomness import secure_generator
from common.crypto.signing import SignedTask
from common.messages.submission import Submission
from common.runtime.rpc import open_channel, reply
from common.task.task import Task
from common.wire.batches import chunk_from_wire
from deploy.audit.harness.relay import Relay
from deploy.clients.local_cluster import Cluster
from protos.shuffledp.v1 import (
    analyzer_pb2,
    shuffler_pb2,
    shuffler_pb2_grpc,
    user_agent_pb2,
    user_agent_pb2_grpc,
)
from tests.support.children import publish
from tests.support.markers import ITEMS, Markers
from tests.support.recording import RecordingContributor
from tests.support.relays import Client
from tests.support.scrapes import fetch, series_in

USERS: Final = 288
_LABELLED_USERS: Final = 12
_PATIENCE: Final = 60.0
LOUD: Final = {"GRPC_VERBOSITY": "debug", "GRPC_TRACE": "all"}
"""
Everything that gRPC can print. Of its traces, `http` prints headers as they come and go, `call` and
`api` the operations with their metadata, `tcp` and `event_engine_endpoint` the bytes on the wire
with the peer's address, `secure_endpoint` the bytes within TLS; `all` is all of these.
"""


def relayed(relay: Relay) -> bytes:
    """Return all that callers sent, headers included."""
    parts = list[bytes]()
    for call in relay.calls:
        for key, value in call.headers:
            raw = value if isinstance(value, bytes) else value.encode()
            parts.append(key.encode() + b": " + raw)
        parts.append(call.path.encode() + b" " + b" ".join(call.requests))
    return b"\n".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was planted, and what was written and sent."""

    markers: Markers
    begun: float
    ended: float
    tasks: tuple[SignedTask, SignedTask]
    """One of many items; one with labels."""
    submissions: tuple[Submission, ...]
    """Of the first task, in the order in which they were submitted."""
    ports: tuple[int, ...]
    """Of clients, as the shuffler saw them."""
    collecting: dict[str, bytes]
    """The shuffler's files just before the batch closed."""
    files: dict[str, bytes]
    """Files of shuffler and analyzer after the release, while they ran and after they stopped."""
    logs: dict[str, bytes]
    relay: Relay
    numbers: tuple[float, ...]
    """Every number in a column of the databases, and every metric."""
    metrics: dict[str, bytes]
    """What shuffler and analyzer answered whoever asks for metrics, by moment and party."""

    def everything(self) -> bytes:
        """Return all that was written or sent, by the shuffler or by the analyzer."""
        parts = (*self.collecting.values(), *self.files.values(), *self.logs.values())
        return b"\n".join((*parts, *self.metrics.values(), relayed(self.relay)))

    def without_ciphertexts(self) -> bytes:
        """
        Return what short patterns can be searched for in: logs, metrics, and what was sent but
        reports.
        """
        sent = relayed(self.relay)
        for report in self.delivered():
            sent = sent.replace(report, b"")
        return b"\n".join((*self.logs.values(), *self.metrics.values(), sent))

    def delivered(self) -> list[bytes]:
        """Return the sealed reports of the first task in the order of delivery."""
        digest, found = self.tasks[0].digest(), list[bytes]()
        size = Task.from_bytes(self.tasks[0].task_bytes).sealed_report_bytes
        for call in self.relay.calls:
            if call.method != "DeliverBatch":
                continue
            first, *rest = map(analyzer_pb2.DeliverBatchRequest.FromString, call.requests)
            if first.manifest.task_digest == digest:
                chunks = b"".join(map(chunk_from_wire, rest))
                found += [chunks[start : start + size] for start in range(0, len(chunks), size)]
        return found


async def run(directory: Path) -> Evidence:
    """Start the three, let everybody answer both tasks, and wait until the batches are over."""
    markers, begun = Markers.drawn(USERS), time.time()
    cluster = Cluster(directory, LOUD, log_level="DEBUG", metrics_listen="127.0.0.1:0")
    relay = Relay()
    try:
        await cluster.start_analyzer()
        await relay.start(directory / "tls", cluster.analyzer.address)
        await cluster.start_shuffler(analyzer=relay.address)
        await cluster.start_user_agent()
        parties = (cluster.shuffler, cluster.analyzer)
        signed = await publish(
            cluster,
            USERS + len(markers.persons),
            protocol="mixdump",
            domain_size=ITEMS,
            buckets=0,
            dummies_per_user=2,
        )
        named = await publish(
            cluster, _LABELLED_USERS, domain_size=6, labels=markers.labels, buckets=0
        )
        answers = _Answers(cluster, markers)
        await answers.start()
        await answers.of_persons(signed)
        task = Task.from_bytes(signed.task_bytes)
        contributor = RecordingContributor(task, signed.digest())
        rng = secure_generator()
        envelopes = [
            contributor.prepare(markers.values[user % len(markers.values)], rng)
            for user in range(USERS)
        ]
        collecting: dict[str, bytes] = {}
        metrics: dict[str, bytes] = {}
        for user, envelope in enumerate(envelopes):
            if user == USERS - 1:
                collecting = _files(cluster.shuffler.state, "collecting")
                metrics |= await _metrics(cluster, "collecting")
            await answers.submit(user, signed, envelope)
        labelled = RecordingContributor(Task.from_bytes(named.task_bytes), named.digest())
        for user in range(_LABELLED_USERS):
            await answers.submit(user, named, labelled.prepare(user % 6, rng))
        await _over(cluster)
        await answers.stop()
        metrics |= await _metrics(cluster, "over")
        files = {k: v for p in parties for k, v in _files(p.state, "running").items()}
    finally:
        await cluster.stop()
        await relay.stop()
    files |= {k: v for p in parties for k, v in _files(p.state, "stopped").items()}
    return Evidence(
        markers=markers,
        begun=begun,
        ended=time.time(),
        tasks=(signed, named),
        submissions=tuple(contributor.submissions),
        ports=tuple(port for client in answers.clients for port in client.ports),
        collecting=collecting,
        files=files,
        logs={party.party: party.log.read_bytes() for party in parties},
        relay=relay,
        numbers=(
            *(number for party in parties for number in _numbers(party.state)),
            *(number for page in metrics.values() for number in series_in(page.decode()).values()),
        ),
        metrics=metrics,
    )


class _Answers:
    """Clients with addresses of their own, and a user agent, all of which send headers along."""

    def __init__(self, cluster: Cluster, markers: Markers) -> None:
        self._cluster = cluster
        self._markers = markers
        self.clients = [Client(source) for source in markers.addresses]
        self._channels: list[grpc.aio.Channel] = []

    async def start(self) -> None:
        """Connect every client, and once without speaking TLS: libraries log failed handshakes."""
        authority = self._cluster.authority.read_bytes()
        for client in self.clients:
            await client.start(self._cluster.shuffler.address)
            await client.talk_nonsense()
            self._channels.append(open_channel(client.address, "shuffler", authority))

    async def submit(self, user: int, signed: SignedTask, envelope: bytes) -> None:
        """Submit as one user; users take turns at the clients."""
        stub = shuffler_pb2_grpc.ShufflerStub(self._channels[user % len(self._channels)])
        request = shuffler_pb2.SubmitRequest(task_digest=signed.digest(), envelope=envelope)
        await reply(stub.Submit(request, timeout=20, metadata=self._markers.headers[user]), "it")

    async def of_persons(self, signed: SignedTask) -> None:
        """Answer as the persons, through the user agent."""
        async with open_channel(self._cluster.user_agent.address, "user_agent", None) as channel:
            stub = user_agent_pb2_grpc.UserAgentStub(channel)
            for number, person in enumerate(self._markers.persons):
                request = user_agent_pb2.ContributeRequest(
                    task_digest=signed.digest(), value=self._markers.values[0], person=person
                )
                headers = self._markers.headers[number]
                await reply(stub.Contribute(request, timeout=30, metadata=headers), "it")

    async def stop(self) -> None:
        """Hang up."""
        for channel in self._channels:
            await channel.close()
        for client in self.clients:
            await client.stop()


async def _over(cluster: Cluster) -> None:
    """Wait until both batches are released, and the shuffler has destroyed their keys."""
    async with asyncio.timeout(_PATIENCE):
        while cluster.analyzer.log.read_bytes().count(b'"batch released"') < 2:
            await asyncio.sleep(0.05)
        while list(cluster.shuffler.state.glob("batch-*.key")):
            await asyncio.sleep(0.05)


async def _metrics(cluster: Cluster, moment: str) -> dict[str, bytes]:
    """Ask shuffler and analyzer for their metrics."""
    found = {}
    for party in (cluster.shuffler, cluster.analyzer):
        address = (party.state / "metrics_address").read_text(encoding="ascii")
        page = await asyncio.to_thread(fetch, address)
        found[f"{moment} {party.party}"] = page.encode()
    return found


def _files(state: Path, moment: str) -> dict[str, bytes]:
    """Read every file of a party; what is deleted at that very moment is empty."""
    found = {}
    for path in sorted(state.rglob("*")):
        if path.is_file():
            try:
                found[f"{moment} {state.name}/{path.relative_to(state)}"] = path.read_bytes()
            except FileNotFoundError:
                continue
    return found


def _numbers(state: Path) -> list[float]:
    found: list[float] = []
    for path in state.glob("*.sqlite"):
        connection = sqlite3.connect(path)
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (table,) in tables.fetchall():
            rows: list[tuple[Any, ...]] = connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608  # names from the file itself
            found += [cell for row in rows for cell in row if isinstance(cell, int | float)]
        connection.close()
    return found
