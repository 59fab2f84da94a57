"""
Bulk submissions through a front-end's core into each store, beside the bare opening.

Processor time of everything: this process, its workers, and PostgreSQL's.
"""

import asyncio
import time
from pathlib import Path
from typing import Final

import numpy as np
import psutil
import pytest

from common.crypto.hpke import envelope_context
from common.crypto.hpke_pool import HpkePool, open_each
from common.messages.submission import Outcome
from common.task.task import SUBMISSION_ID_BYTES
from deploy.load.users import GroupContributor
from shuffler.storage.submission_store import SubmissionStore
from tests.benchmarks.conftest import Best, Line
from tests.support.postgres import postgres_server
from tests.support.shuffler_core import Shuffler
from tests.support.stores import postgres_store
from tests.support.tasks import PublishedTask, published

_CALL: Final = 1000
_CALLS: Final = 20
_ROUNDS: Final = 3


class _OnPostgres(Shuffler):
    """A shuffler's core on PostgreSQL."""

    uri = ""

    def open_store(self) -> SubmissionStore:  # type: ignore[override]
        """Connect to the server."""
        return postgres_store(self.uri, self.metrics.record_move)


def _sealed(case: PublishedTask, calls: int) -> list[list[bytes]]:
    contributor, rng = GroupContributor(case.task, case.signed.digest()), np.random.default_rng(1)
    return [
        contributor.prepare_group(
            [0] * _CALL, [rng.bytes(SUBMISSION_ID_BYTES) for _ in range(_CALL)], rng
        )
        for _ in range(calls)
    ]


def _seconds(*others: psutil.Process) -> float:
    """Processor time of this process, of others, and of all their children."""
    here = [psutil.Process(), *others]
    every = [*here, *(child for each in here for child in each.children(recursive=True))]
    used = [process.cpu_times() for process in set(every)]
    return sum(each.user + each.system for each in used)


async def _through(
    shuffler: Shuffler, calls: list[list[bytes]], *others: psutil.Process
) -> list[float]:
    """Return the processor time of each round of calls but the first, which starts workers."""
    await shuffler.start()
    digest, rounds = shuffler.case.signed.digest(), []
    for first in range(0, len(calls), _CALLS):
        before = _seconds(*others)
        for start in range(first, first + _CALLS, 4):
            answers = await asyncio.gather(
                *(shuffler.collection.submit_bulk(digest, one) for one in calls[start : start + 4])
            )
            assert all([Outcome.STORED] * _CALL == outcomes for outcomes in answers)
        rounds.append(_seconds(*others) - before)
    shuffler.store.close()
    return rounds[1:]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_bulk_submissions(kind: str, best: Best, line: Line, tmp_path: Path) -> None:
    """Twenty calls of a thousand submissions with two reports."""
    total = (_ROUNDS + 1) * _CALLS
    case = published(n_min=2, target_size=(total + 1) * _CALL, dummies_per_user=1)
    calls, pool = _sealed(case, total), HpkePool(2)
    sealed, context = b"".join(calls[-1]), envelope_context(case.signed.digest())

    def open_bare() -> None:
        open_each(case.shuffler_key, sealed, case.task.envelope_bytes, context)

    bare = []
    for _ in range(_ROUNDS):
        started = time.process_time()
        open_bare()
        bare.append(time.process_time() - started)
    found: list[float] = []
    with postgres_server(settings="") as server:
        lines = (server.data / "postmaster.pid").read_text(encoding="ascii").splitlines()
        shuffler, others = Shuffler(tmp_path, case=case, pool=pool), []
        if kind == "postgresql":
            shuffler = _OnPostgres(tmp_path, case=case, pool=pool)
            shuffler.uri, others = server.database(), [psutil.Process(int(lines[0]))]
        best(1, lambda: found.extend(asyncio.run(_through(shuffler, calls, *others))))
    pool.close()
    each = min(found) / (_CALLS * _CALL)
    line(
        f"bulk submissions into {kind}",
        microseconds=1e6 * each,
        bare_opening_microseconds=1e6 * min(bare) / _CALL,
        share_of_bare_opening_rate=min(bare) / _CALL / each,
    )
