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
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from common.hpke import HpkePublicKey, SealContext, envelope_context
from common.hpke_pool import HpkePool
from common.submission import Outcome
from tests.benchmarks.measure import line
from tests.support.memory import peak_bytes
from tests.support.shuffler_core import Shuffler
from tests.support.tasks import PublishedTask, published

_ROUNDS: Final = 7
_ENVELOPES: Final = 20_000
"""In each round."""
_CALL: Final = 1000
"""Envelopes in one call, and rows in one commit."""
_CALLERS: Final = 4
"""Calls in flight."""
_PROCESSES: Final = 2
_TAG_BYTES: Final = 32
"""What is stored beside the sealed reports of a submission: keyed hashes of id and content."""


def _make(key: bytes, context: SealContext, length: int, count: int) -> list[bytes]:
    """Make envelopes. The reports in them are random bytes: the shuffler cannot tell."""
    seal = HpkePublicKey(key).sealer(context)
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


async def _ingest(shuffler: Shuffler, envelopes: list[bytes]) -> float:
    """Give submissions a second that are opened, checked, and committed."""
    digest = shuffler.case.signed.digest()
    calls = iter([envelopes[at : at + _CALL] for at in range(0, len(envelopes), _CALL)])

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
            for _ in range(_ROUNDS + 1)
        ]
        batches = [future.result() for future in made]
    pool = HpkePool(case.shuffler_key, _PROCESSES)
    shuffler = Shuffler(folder, case=case, pool=pool)
    await shuffler.start()
    openers, writer = (
        BareOpeners(case),
        BareWriter(folder / "bare.sqlite", length - 16 + _TAG_BYTES),
    )
    await _ingest(shuffler, batches.pop())  # start the workers
    before = peak_bytes()
    rates: list[tuple[float, float, float]] = []
    for batch in batches:
        opened = openers.measure(batch)
        written = writer.measure()
        ours = await _ingest(shuffler, batch)
        rates.append((openers.measure(batch) / 2 + opened / 2, written, ours))
    line(
        "ingest",
        reports_per_user=task.reports_per_user,
        submissions=_ROUNDS * _ENVELOPES,
        bare_openings_per_second=statistics.median(rate[0] for rate in rates),
        bare_rows_per_second=statistics.median(rate[1] for rate in rates),
        submissions_per_second=statistics.median(rate[2] for rate in rates),
        rate_over_the_slower=statistics.median(ours / min(o, w) for o, w, ours in rates),
        best_over_best=max(r[2] for r in rates)
        / min(max(r[0] for r in rates), max(r[1] for r in rates)),
        memory_grown_by_bytes_each=(peak_bytes() - before) / (_ROUNDS * _ENVELOPES),
    )
    openers.close()
    pool.close()
    shuffler.spool.close()


def main() -> None:
    """Measure users who send one report, and three."""
    for dummies_per_user in (0, 2):
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_measure(dummies_per_user, Path(folder)))


if __name__ == "__main__":
    main()
