"""
The shuffler's ingest of bulk submissions against the two things that it cannot do without.

One is opening the envelopes, bare, in as many processes; the other is storing the same bytes, bare,
with a thousand per commit. All are measured in turns within one run; the figure is the ratio to the
slower of the two. Every envelope is opened, checked and committed before it counts.
"""

import asyncio
import multiprocessing
import secrets
import sqlite3
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from common.crypto.hpke import DEFAULT_SUITE, HpkePublicKey, SealContext, envelope_context
from common.crypto.hpke_pool import HpkePool
from common.messages.submission import Outcome
from common.task_digest import TaskDigest
from tests.benchmarks.conftest import Best, Line
from tests.support.shuffler_core import Shuffler
from tests.support.tasks import published

_ROUNDS: Final = 5
_ENVELOPES: Final = 48_000
"""In each round: a second or two, beside which the first and the last call weigh little."""
_CALL: Final = 1000
"""Envelopes in one call, and rows in one commit."""
_CALLERS: Final = 4
"""Calls in flight."""
_PROCESSES: Final = 2
_TAG_BYTES: Final = 32
"""Keyed hashes of id and content, stored beside the sealed reports of a submission."""

Submit = Callable[[TaskDigest, list[bytes]], Awaitable[Sequence[Outcome]]]
_held: list[bytes] = []
"""Envelopes that this process is to work on: handing them over is not measured."""


def _make(key: bytes, context: SealContext, length: int) -> list[bytes]:
    """Make envelopes. The reports in them are random bytes: the shuffler cannot tell."""
    seal = HpkePublicKey(DEFAULT_SUITE, key).sealer(context)
    return [seal(secrets.token_bytes(length)) for _ in range(_ENVELOPES)]


def _hold(envelopes: list[bytes]) -> None:
    _held[:] = envelopes


def _open_held(key: bytes, info: bytes) -> None:
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
    private = X25519PrivateKey.from_private_bytes(key)
    for envelope in _held:
        suite.decrypt(envelope, private, info)


async def _submit_all(submit: Submit, digest: TaskDigest, envelopes: list[bytes]) -> None:
    """Submit in calls, some in flight at once; all must be stored."""
    calls = iter([envelopes[at : at + _CALL] for at in range(0, len(envelopes), _CALL)])

    async def caller() -> None:
        for call in calls:
            assert [Outcome.STORED] * len(call) == await submit(digest, call)

    await asyncio.gather(*(caller() for _ in range(_CALLERS)))


async def _rate(work: Awaitable[object]) -> float:
    """Return the rate in envelopes per second."""
    started = time.perf_counter()
    await work
    return _ENVELOPES / (time.perf_counter() - started)


def _store_bare(connection: sqlite3.Connection, row: bytes) -> None:
    for _ in range(_ENVELOPES // _CALL):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO rows VALUES (?)", [(row,)] * _CALL)
        connection.execute("COMMIT")


async def _measure(dummies_per_user: int, folder: Path, line: Line) -> None:
    shape = {"domain_size": 915, "buckets": 53, "n_min": 10**8, "target_size": 10**8}
    case = published(dummies_per_user=dummies_per_user, **shape)
    digest, context = case.signed.digest(), envelope_context(case.signed.digest())
    length = case.task.envelope_sizes[-1] - 48
    spawn = multiprocessing.get_context("spawn")
    workers = [ProcessPoolExecutor(1, mp_context=spawn) for _ in range(_PROCESSES)]
    batches = [
        made.result()
        for made in [
            workers[number % _PROCESSES].submit(_make, case.task.shuffler_key, context, length)
            for number in range(_ROUNDS + 1)
        ]
    ]
    pool = HpkePool(_PROCESSES)
    shuffler = Shuffler(folder, case=case, pool=pool)
    await shuffler.start()
    connection = sqlite3.connect(folder / "bare", isolation_level=None, check_same_thread=False)
    connection.executescript(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE rows (row BLOB);"
    )
    row = secrets.token_bytes(length - 16 + _TAG_BYTES)

    async def bare(batch: list[bytes]) -> float:
        for number, worker in enumerate(workers):
            worker.submit(_hold, batch[number::_PROCESSES]).result()
        private, info = case.shuffler_key.private_bytes(), context.info()
        opening = [asyncio.wrap_future(w.submit(_open_held, private, info)) for w in workers]
        return await _rate(asyncio.gather(*opening))

    rates: list[tuple[float, float, float]] = []
    await _submit_all(shuffler.collection.submit_bulk, digest, batches.pop())
    for batch in batches:
        opened = await bare(batch)
        written = await _rate(asyncio.to_thread(_store_bare, connection, row))
        ours = await _rate(_submit_all(shuffler.collection.submit_bulk, digest, batch))
        rates.append(((opened + await bare(batch)) / 2, written, ours))
    line(
        "ingest",
        reports_per_user=case.task.lengths[-1],
        submissions=_ROUNDS * _ENVELOPES,
        bare_openings_per_second=statistics.median(rate[0] for rate in rates),
        bare_rows_per_second=statistics.median(rate[1] for rate in rates),
        submissions_per_second=statistics.median(rate[2] for rate in rates),
        rate_over_the_slower=statistics.median(ours / min(o, w) for o, w, ours in rates),
    )
    for worker in workers:
        worker.shutdown()
    connection.close()
    pool.close()
    shuffler.store.close()


@pytest.mark.parametrize("dummies_per_user", [0, 2])
def test_ingest(dummies_per_user: int, tmp_path: Path, best: Best, line: Line) -> None:
    """Users send one report, or three."""
    best(1, lambda: asyncio.run(_measure(dummies_per_user, tmp_path, line)))
