"""
The shuffler's ingest of bulk submissions against the two things that it cannot do without.

One is opening the envelopes, bare, in as many processes; the other is storing the same bytes, bare,
a thousand a commit. All three are measured in turns within one run, because machines are noisy;
the figure is the ratio to the slower of the two. Every envelope is opened, checked and committed
before it counts. Run as `python -m tests.benchmarks.ingest`.
"""

import asyncio
import multiprocessing
import secrets
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, Self

import grpc
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from common.crypto.hpke import HpkePublicKey, SealContext, envelope_context
from common.crypto.hpke_pool import HpkePool
from common.crypto.signing import SigningIdentity
from common.crypto.suites import DEFAULT_SUITE
from common.messages.submission import Outcome
from common.runtime.access import connections_of
from common.runtime.admission_interceptor import AdmissionInterceptor
from common.runtime.rpc import bind, make_server, open_channel
from common.task_digest import TaskDigest
from common.wire.submissions import outcomes_from_wire
from protos.shuffledp.v1 import shuffler_pb2, shuffler_pb2_grpc
from shuffler.admission import ConnectionCount
from shuffler.inclusion import Inclusions
from shuffler.receipts import Receipts
from shuffler.servicer import ShufflerServicer
from tests.benchmarks.measure import line
from tests.support.memory import peak_bytes
from tests.support.shuffler_core import Shuffler
from tests.support.tasks import PublishedTask, published

_ROUNDS: Final = 5
_ENVELOPES: Final = 48_000
"""In each round: a second or two, beside which the first and the last call weigh little."""
_CALL: Final = 1000
"""Envelopes in one call, and rows in one commit."""
_CALLERS: Final = 4
"""Calls in flight."""
_PROCESSES: Final = 2
_TAG_BYTES: Final = 32
"""What is stored beside the sealed reports of a submission: keyed hashes of id and content."""


def _make(key: bytes, context: SealContext, length: int, count: int) -> list[bytes]:
    """Make envelopes. The reports in them are random bytes: the shuffler cannot tell."""
    seal = HpkePublicKey(DEFAULT_SUITE, key).sealer(context)
    return [seal(secrets.token_bytes(length)) for _ in range(count)]


def _open_bare(pipe: Connection, key: bytes, info: bytes) -> None:
    """Open, in a bare loop, whatever comes through the pipe; answer when it is done."""
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
    private = X25519PrivateKey.from_private_bytes(key)
    while envelopes := pipe.recv():
        pipe.send(len(envelopes))
        pipe.recv()
        for envelope in envelopes:
            suite.decrypt(envelope, private, info)
        pipe.send(len(envelopes))


class BareOpeners:
    """Processes that do nothing but open."""

    def __init__(self, case: PublishedTask) -> None:
        context = multiprocessing.get_context("spawn")
        key, info = case.shuffler_key.private_bytes(), envelope_context(case.signed.digest()).info()
        self._pipes: list[Connection] = []
        for _ in range(_PROCESSES):
            ours, theirs = context.Pipe()
            context.Process(target=_open_bare, args=(theirs, key, info), daemon=True).start()
            self._pipes.append(ours)

    def measure(self, envelopes: list[bytes]) -> float:
        """Give envelopes a second, all processes at once; handing them over is not counted."""
        share = -(-len(envelopes) // len(self._pipes))
        for number, pipe in enumerate(self._pipes):
            pipe.send(envelopes[number * share : (number + 1) * share])
            pipe.recv()
        started = time.perf_counter()
        for pipe in self._pipes:
            pipe.send("go")
        for pipe in self._pipes:
            pipe.recv()
        return len(envelopes) / (time.perf_counter() - started)

    def close(self) -> None:
        """Let them end."""
        for pipe in self._pipes:
            pipe.send([])


class BareWriter:
    """An SQLite file into which rows are appended and committed, and nothing else."""

    def __init__(self, path: Path, row_bytes: int) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE rows (row BLOB);"
        )
        self._rows = [(secrets.token_bytes(row_bytes),) for _ in range(_CALL)]

    def measure(self) -> float:
        """Give rows a second."""
        started = time.perf_counter()
        for _ in range(_ENVELOPES // _CALL):
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT INTO rows VALUES (?)", self._rows)
            self._connection.execute("COMMIT")
        return _ENVELOPES / (time.perf_counter() - started)


async def _submit_all(address: str, digest: TaskDigest, calls: Iterator[list[bytes]]) -> None:
    async with open_channel(address, "shuffler", None) as channel:
        stub = shuffler_pb2_grpc.ShufflerStub(channel)

        async def caller() -> None:
            for call in calls:
                request = shuffler_pb2.SubmitBulkRequest(task_digest=digest, envelopes=call)
                outcomes = outcomes_from_wire(await stub.SubmitBulk(request, timeout=60))
                if outcomes != [Outcome.STORED] * len(call):
                    raise RuntimeError("a submission was not stored")

        await asyncio.gather(*(caller() for _ in range(_CALLERS)))


def _call_remotely(pipe: Connection, address: str, digest: TaskDigest) -> None:
    """Submit, over the network, whatever comes through the pipe; answer when it is stored."""
    while envelopes := pipe.recv():
        pipe.send(len(envelopes))
        pipe.recv()
        asyncio.run(_submit_all(address, digest, _calls(envelopes)))
        pipe.send(len(envelopes))


class RemoteCaller:
    """A process that submits to the shuffler's own servicer over the loopback, without TLS."""

    def __init__(self, pipe: Connection, server: grpc.aio.Server) -> None:
        self._pipe = pipe
        self._server = server

    @classmethod
    async def start(cls, shuffler: Shuffler) -> Self:
        """Serve, and start the caller."""
        server = make_server(
            AdmissionInterceptor(certificates=False, token=None),
            connections_of("shuffledp.v1.Shuffler"),
        )
        inclusions = Inclusions(
            directory=shuffler.path / "inclusion",
            identity=shuffler.case.identity.public_identity(),
            keep_seconds=0,
            clock=shuffler.clock,
        )
        servicer = ShufflerServicer(
            shuffler.collection,
            ConnectionCount(0),
            Receipts(SigningIdentity.generate()),
            inclusions,
        )
        shuffler_pb2_grpc.add_ShufflerServicer_to_server(servicer, server)
        address = bind(server, "127.0.0.1:0", None)
        await server.start()
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        arguments = (theirs, address, shuffler.case.signed.digest())
        context.Process(target=_call_remotely, args=arguments, daemon=True).start()
        return cls(ours, server)

    async def measure(self, envelopes: list[bytes]) -> float:
        """Give submissions a second; the caller needs some of the same cores for itself."""
        await asyncio.to_thread(self._pipe.send, envelopes)
        await asyncio.to_thread(self._pipe.recv)
        started = time.perf_counter()
        self._pipe.send("go")
        await asyncio.to_thread(self._pipe.recv)
        return len(envelopes) / (time.perf_counter() - started)

    async def close(self) -> None:
        """Let it end."""
        self._pipe.send([])
        await self._server.stop(None)


def _calls(envelopes: list[bytes]) -> Iterator[list[bytes]]:
    return iter([envelopes[at : at + _CALL] for at in range(0, len(envelopes), _CALL)])


async def _ingest(shuffler: Shuffler, envelopes: list[bytes]) -> float:
    """Give submissions a second that are opened, checked, and committed."""
    digest = shuffler.case.signed.digest()
    calls = _calls(envelopes)

    async def caller() -> None:
        for call in calls:
            outcomes = await shuffler.collection.submit_bulk(digest, call)
            if outcomes != [Outcome.STORED] * len(call):
                raise RuntimeError("a submission was not stored")

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(_CALLERS)))
    return len(envelopes) / (time.perf_counter() - started)


async def _measure(dummies_per_user: int, folder: Path) -> None:
    case = published(
        dummies_per_user=dummies_per_user,
        domain_size=915,
        buckets=53,
        n_min=10**8,
        target_size=10**8,
    )
    task, context = case.task, envelope_context(case.signed.digest())
    length = task.envelope_bytes - 48
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(_PROCESSES, mp_context=spawn) as making:
        made = [
            making.submit(_make, task.shuffler_key, context, length, _ENVELOPES)
            for _ in range(2 * _ROUNDS + 2)
        ]
        batches = [future.result() for future in made]
    pool = HpkePool(_PROCESSES)
    shuffler = Shuffler(folder, case=case, pool=pool)
    await shuffler.start()
    openers, writer = (
        BareOpeners(case),
        BareWriter(folder / "bare.sqlite", length - 16 + _TAG_BYTES),
    )
    remote = await RemoteCaller.start(shuffler)
    await _ingest(shuffler, batches.pop())  # start the workers
    await remote.measure(batches.pop())
    before = peak_bytes()
    rates: list[tuple[float, float, float, float]] = []
    for batch, other in zip(batches[::2], batches[1::2], strict=True):
        opened = openers.measure(batch)
        written = writer.measure()
        ours = await _ingest(shuffler, batch)
        remotely = await remote.measure(other)
        opened = (opened + openers.measure(batch)) / 2
        rates.append((opened, written, ours, remotely))
    line(
        "ingest",
        reports_per_user=task.reports_per_user,
        submissions=2 * _ROUNDS * _ENVELOPES,
        bare_openings_per_second=statistics.median(rate[0] for rate in rates),
        bare_rows_per_second=statistics.median(rate[1] for rate in rates),
        submissions_per_second=statistics.median(rate[2] for rate in rates),
        rate_over_the_slower=statistics.median(ours / min(o, w) for o, w, ours, _ in rates),
        over_grpc_over_the_slower=statistics.median(r / min(o, w) for o, w, _, r in rates),
        best_over_best=max(r[2] for r in rates)
        / min(max(r[0] for r in rates), max(r[1] for r in rates)),
        memory_grown_by_bytes_each=(peak_bytes() - before) / (2 * _ROUNDS * _ENVELOPES),
    )
    openers.close()
    await remote.close()
    pool.close()
    shuffler.spool.close()


def main() -> None:
    """Measure users who send one report, and three."""
    for dummies_per_user in (0, 2):
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_measure(dummies_per_user, Path(folder)))


if __name__ == "__main__":
    main()
