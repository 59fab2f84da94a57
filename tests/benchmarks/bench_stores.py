"""
Bulk submissions through a front-end's core into each store, beside the bare opening.

Processor time of everything: this process, its workers, and PostgreSQL's. The server's own costs
are those of the capacity model (lab/planning/measured_costs.toml).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import psutil
import psycopg
import pytest
from numpy.typing import NDArray

from shuffledp.common.crypto.hpke import envelope_context
from shuffledp.common.crypto.hpke_pool import HpkePool, open_each
from shuffledp.common.messages.submission import Outcome
from shuffledp.common.task.task import SUBMISSION_ID_BYTES
from shuffledp.deploy.load.users import GroupContributor
from shuffledp.lab.planning.capacity import cost, measure_opening_seconds
from shuffledp.shuffler.storage.submission_store import SubmissionStore
from tests.benchmarks.conftest import Best, Line, best_of
from tests.support.postgres import postgres_server
from tests.support.shuffler_core import Shuffler
from tests.support.stores import postgres_store
from tests.support.tasks import PublishedTask, published

_CALL: Final = 1000
_CALLS: Final = 20
_ROUNDS: Final = 3
_CALLS_AT_ONCE: Final = 4
_DEVICES_AT_ONCE: Final = 64
T = TypeVar("T")
Seconds = NDArray[np.float64]


class _OnPostgres(Shuffler):
    """A shuffler's core on PostgreSQL."""

    uri = ""

    def open_store(self) -> SubmissionStore:  # type: ignore[override]
        """Connect to the server."""
        return postgres_store(self.uri)


def _sealed(case: PublishedTask, calls: int) -> list[list[bytes]]:
    contributor, rng = GroupContributor(case.task, case.signed.digest()), np.random.default_rng(1)
    return [
        contributor.prepare_group(
            [0] * _CALL, [rng.bytes(SUBMISSION_ID_BYTES) for _ in range(_CALL)], rng
        )
        for _ in range(calls)
    ]


def _seconds(of: psutil.Process) -> float:
    """Processor time of a process and all its children."""
    used = [process.cpu_times() for process in (of, *of.children(recursive=True))]
    return sum(each.user + each.system for each in used)


class _Rounds:
    """Rounds of calls through a shuffler's core, and the processor seconds of each."""

    def __init__(self, shuffler: Shuffler, server: psutil.Process) -> None:
        self._shuffler = shuffler
        self._digest = shuffler.case.signed.digest()
        self._processes = (psutil.Process(), server)

    async def run(self, calls: list[list[bytes]]) -> tuple[Seconds, Seconds]:
        """Submit in bulk, then singly; the first round, which starts workers, is not counted."""
        await self._shuffler.start()
        bulk = [await self._timed(self._bulk, each) for each in _split(calls[:-1], _CALLS)]
        single = await self._timed(self._one_by_one, calls[-1])
        self._shuffler.store.close()
        return np.array(bulk[1:]).min(axis=0) / (_CALLS * _CALL), single / _CALL

    async def _timed(self, work: Callable[[list[T]], Awaitable[None]], items: list[T]) -> Seconds:
        """Return processor seconds of this process with its workers, and of the server."""
        before = self._used()
        await work(items)
        return self._used() - before

    def _used(self) -> Seconds:
        return np.array([_seconds(process) for process in self._processes])

    async def _bulk(self, calls: list[list[bytes]]) -> None:
        submit = self._shuffler.collection.submit_bulk
        for at_once in _split(calls, _CALLS_AT_ONCE):
            answers = await asyncio.gather(*(submit(self._digest, call) for call in at_once))
            assert all([Outcome.STORED] * _CALL == outcomes for outcomes in answers)

    async def _one_by_one(self, envelopes: list[bytes]) -> None:
        submit = self._shuffler.collection.submit
        for at_once in _split(envelopes, _DEVICES_AT_ONCE):
            outcomes = await asyncio.gather(*(submit(self._digest, each) for each in at_once))
            assert {Outcome.STORED} == set(outcomes)


def _split(items: list[T], size: int) -> list[list[T]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _stored_bytes(uri: str) -> tuple[float, float]:
    """Return the bytes of all rows of a batch, and of the index of its submissions."""
    with psycopg.connect(uri) as connection:
        [sizes] = connection.execute(
            "SELECT sum(pg_table_size(oid))::float8, "
            "sum(pg_indexes_size(oid)) FILTER (WHERE relname LIKE 'tags%')::float8 "
            "FROM pg_class WHERE relkind = 'r' AND relname ~ '^(tags|groups|tokens)_'"
        )
    return sizes


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_bulk_submissions(kind: str, best: Best, line: Line, tmp_path: Path) -> None:
    """Rounds of twenty calls of a thousand submissions with two reports, then a thousand alone."""
    total = (_ROUNDS + 1) * _CALLS
    case = published(n_min=2, target_size=(total + 1) * _CALL, dummies_per_user=1)
    calls, pool = _sealed(case, total + 1), HpkePool(2)
    opening = measure_opening_seconds()
    context = envelope_context(case.signed.digest())

    def open_bare() -> None:
        sealed = b"".join(calls[0])
        open_each(case.shuffler_key, sealed, case.task.envelope_sizes[-1], context)

    bare = best_of(_ROUNDS, open_bare, time.process_time) / _CALL
    found: list[tuple[Seconds, Seconds]] = []
    with postgres_server(settings="") as server:
        lines = (server.data / "postmaster.pid").read_text(encoding="ascii").splitlines()
        uri = server.database()
        shuffler = Shuffler(tmp_path, case=case, pool=pool)
        if kind == "postgresql":
            shuffler = on_postgres = _OnPostgres(tmp_path, case=case, pool=pool)
            on_postgres.uri = uri
        rounds = _Rounds(shuffler, psutil.Process(int(lines[0])))
        best(1, lambda: found.append(asyncio.run(rounds.run(calls))))
        [(bulk, single)] = found
        if kind == "postgresql":
            rows, index = _stored_bytes(uri)
            stored = len(calls) * _CALL
            sent = case.task.lengths[-1] * case.task.sealed_report_bytes
            measured = {
                "device row": single[1] / opening,
                "bulk row": bulk[1] / opening,
                "row bytes": rows / stored - sent,
                "index bytes": index / stored,
            }
            for name, value in measured.items():
                line(f"capacity: {name}", measured=value, shipped=cost(name))
    pool.close()
    line(
        f"bulk submissions into {kind}",
        microseconds=1e6 * bulk.sum(),
        bare_opening_microseconds=1e6 * bare,
        share_of_bare_opening_rate=bare / bulk.sum(),
    )
