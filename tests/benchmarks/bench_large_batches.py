"""
The cost of a large batch at the shuffler and at the analyzer: seconds and peak memory.

As in the services, but nothing is sealed and nothing opened, which other benchmarks measure and
which would take longer than all the rest. Each case runs in a process of its own:
`python -m tests.benchmarks.bench_large_batches CASE REPORTS` prints its figures as JSON.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from common.crypto.hpke import SUITES
from common.mechanisms.registry import mechanism_of
from common.messages.batch import BatchId, BatchManifest, BatchState
from common.messages.submission import Outcome
from common.task.task import SUBMISSION_ID_BYTES
from shuffler.storage.group import form_group
from shuffler.storage.submissions import Arrival
from tests.benchmarks.conftest import Best, Line
from tests.support.analyzer_core import AnalyzerCore
from tests.support.analyzers import CountingAnalyzer, word_sum
from tests.support.memory import peak_bytes
from tests.support.pools import StrippingPool
from tests.support.shuffler_core import Shuffler
from tests.support.tasks import published

_USUAL: Final = 1_000_000
_CALL: Final = 1000
_DEVICES: Final = 100
_TASK: Final[dict[str, Any]] = {
    "domain_size": 915,
    "buckets": 53,
    "dummies_per_user": 0,
    "delta": 1e-8,
}


class _Stopwatch:
    """Seconds since it was last asked."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    def lap(self) -> float:
        """Give seconds, and begin again."""
        since, self._since = self._since, time.perf_counter()
        return self._since - since


async def _shuffle(n_users: int, folder: Path) -> dict[str, float]:
    """Take so many submissions of one report, restart, permute and deliver."""
    case = published(n_min=n_users, target_size=n_users + 1, deadline=2_000_000_000, **_TASK)
    digest, task = case.signed.digest(), case.task
    shuffler = Shuffler(folder, case=case, pool=StrippingPool())
    analyzer = CountingAnalyzer(case.signed, task.sealed_report_bytes)
    shuffler.analyzer = analyzer  # type: ignore[assignment]
    await shuffler.start()
    rng, sent, watch = np.random.default_rng(1), 0, _Stopwatch()

    async def submit(count: int) -> list[bytes]:
        nonlocal sent
        size = task.envelope_bytes
        drawn = rng.bytes(count * size)
        envelopes = [drawn[start : start + size] for start in range(0, len(drawn), size)]
        if await shuffler.collection.submit_bulk(digest, envelopes) != [Outcome.STORED] * count:
            raise RuntimeError("a submission was not stored")
        inside = SUITES[task.suite].overhead_bytes + SUBMISSION_ID_BYTES
        sent += sum(word_sum(envelope[inside:]) for envelope in envelopes)
        return envelopes

    for start in range(0, n_users, 4 * _CALL):
        counts = [_CALL] * (min(4 * _CALL, n_users - start) // _CALL)
        envelopes = (await asyncio.gather(*(submit(count) for count in counts)))[0]
    ingested, ingest_peak = watch.lap(), peak_bytes()
    shuffler.spool.close()
    watch.lap()
    await shuffler.start()
    again = await shuffler.collection.submit_bulk(digest, envelopes)
    restarted = watch.lap()
    if again != [Outcome.REPEATED] * len(again) or await shuffler.users() != n_users:
        raise RuntimeError("a submission was forgotten")
    shuffler.clock.seconds = 2_000_000_000.0
    analyzer.reachable = False
    watch.lap()
    await shuffler.deliveries.advance()
    permuted = watch.lap()
    if await shuffler.state() is not BatchState.PERMUTED:
        raise RuntimeError("the batch was not permuted")
    analyzer.reachable = True
    watch.lap()
    await shuffler.deliveries.advance()
    if (n_users, sent % 2**64) != (analyzer.n_reports, analyzer.checksum):
        raise RuntimeError("a report was lost")
    figures = {
        "reports": n_users,
        "ingest_s": ingested,
        "restart_s": restarted,
        "permute_s": permuted,
        "of_which_permutation_s": (await shuffler.collection.status(digest)).shuffle_seconds,
        "deliver_s": watch.lap(),
        "ingest_peak_mib": ingest_peak / 2**20,
        "peak_mib": peak_bytes() / 2**20,
    }
    shuffler.spool.close()
    return figures


async def _restart(n_users: int, folder: Path) -> dict[str, float]:
    """Start on so many undelivered submissions that came one by one, a hundred at the same time."""
    case = published(n_min=n_users, target_size=n_users + 1, **_TASK)
    digest, task = case.signed.digest(), case.task
    shuffler = Shuffler(folder, case=case, pool=StrippingPool())
    await shuffler.start()
    await shuffler.rounds.find_or_begin(digest)
    [found], rng = shuffler.rounds.unfinished(), np.random.default_rng(1)
    size, key = task.envelope_bytes - SUITES[task.suite].overhead_bytes, found.key
    watch = _Stopwatch()
    arrivals: list[Arrival] = []
    for _ in range(0, n_users, _DEVICES):
        arrivals = [
            Arrival(
                batch_id=found.batch_id,
                key=key,
                groups=[form_group([rng.bytes(size)], key)[0]],
                in_time=True,
            )
            for _ in range(_DEVICES)
        ]
        await asyncio.gather(*(shuffler.spool.append(arrival) for arrival in arrivals))
    ingested = watch.lap()
    shuffler.spool.close()
    watch.lap()
    await shuffler.start()
    started = watch.lap()
    if await shuffler.spool.append(arrivals[0]) != [[Outcome.REPEATED]]:
        raise RuntimeError("a submission was forgotten")
    figures = {
        "submissions": n_users,
        "ingest_s": ingested,
        "restart_s": started + watch.lap(),
        "of_which_start_s": started,
        "peak_mib": peak_bytes() / 2**20,
    }
    shuffler.spool.close()
    return figures


async def _release(n_reports: int, folder: Path) -> dict[str, float]:
    """Receive a batch of so many reports, take it in and release the result."""
    analyzer = AnalyzerCore(folder)
    await analyzer.start()
    signed = await analyzer.publish(**_TASK)
    analyzer.releases._pool = StrippingPool()
    mechanism, rng = mechanism_of(analyzer.task), np.random.default_rng(1)
    overhead = SUITES[analyzer.task.suite].overhead_bytes

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, n_reports, _CALL):
            count = min(_CALL, n_reports - start)
            reports = mechanism.randomize(np.zeros(count, np.int64), rng)
            plain = reports.view(np.uint8).reshape(count, -1)
            around = rng.integers(0, 256, (count, overhead), dtype=np.uint8)
            yield np.concatenate([around, plain], axis=1).tobytes()

    manifest = BatchManifest(
        task_digest=signed.digest(),
        batch_id=BatchId(bytes(16)),
        n_users=n_reports,
        n_reports=n_reports,
    )
    watch = _Stopwatch()
    await analyzer.releases.deliver(manifest, chunks())
    staged, stage_peak = watch.lap(), peak_bytes()
    await analyzer.releases.settled()
    released = watch.lap()
    result = await analyzer.releases.result(signed.digest())
    if (n_reports, 0) != (result.n_reports, sum(result.refused.values())):
        raise RuntimeError("a report was lost")
    figures = {
        "reports": n_reports,
        "stage_s": staged,
        "release_s": released,
        "of_which_intake_s": result.open_seconds,
        "stage_peak_mib": stage_peak / 2**20,
        "peak_mib": peak_bytes() / 2**20,
    }
    await analyzer.stop()
    return figures


_CASES: Final = {"shuffler": _shuffle, "restart": _restart, "analyzer": _release}


def main(case: str, count: str) -> None:
    """Run one case in this process, and print its figures."""
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(_CASES[case](int(count), Path(folder)))))


@pytest.mark.parametrize("case", _CASES)
def test_large_batches(case: str, best: Best, line: Line) -> None:
    """A million reports, in a process whose memory is measured."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_large_batches", case, str(_USUAL)]
    printed: list[str] = []
    best(1, lambda: printed.append(subprocess.check_output(command, text=True)))
    line(f"large batch: {case}", **json.loads(printed[0].splitlines()[-1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
