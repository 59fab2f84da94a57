"""
The cost of a large batch at the shuffler and at the analyzer: seconds and peak memory.

Sealing and opening are left out: other benchmarks measure them, and they would take longer than all
the rest. Each case runs in its own process:
`python -m tests.benchmarks.bench_large_batches CASE REPORTS` prints its figures as JSON.
"""

import asyncio
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from shuffledp.common.crypto.hpke import SUITES, HpkePrivateKey, Opener, SealContext, split_every
from shuffledp.common.crypto.hpke_pool import Opened
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.messages import batch
from shuffledp.common.messages.submission import Outcome
from shuffledp.common.receiving.receiver import Receiver
from shuffledp.common.task.task import SUBMISSION_ID_BYTES
from shuffledp.shuffler.storage.group import Arrival, form_group
from tests.benchmarks.conftest import Best, Line
from tests.support.analyzer_core import AnalyzerCore
from tests.support.analyzers import CountingAnalyzer, word_sum
from tests.support.chains import chain
from tests.support.relays import RELAY_KEY, Relay
from tests.support.shuffler_core import InlinePool, Shuffler
from tests.support.tasks import published

_USUAL: Final = 1_000_000
_CALL: Final = 1000
_DEVICES: Final = 100
_PART_BYTES: Final = 2**24
_TASK: Final[dict[str, Any]] = {
    "domain_size": 915,
    "buckets": 53,
    "dummies_per_user": 0,
    "delta": 1e-8,
}


def _strip(key: HpkePrivateKey, sealed: bytes, sealed_bytes: int, context: SealContext) -> Opened:
    """Strip what sealing adds instead of opening, which would take longer than all the rest."""
    del context
    rows = np.frombuffer(sealed, dtype=np.uint8).reshape(-1, sealed_bytes)
    plaintexts = rows[:, SUITES[key.suite].overhead_bytes :].tobytes()
    return Opened(plaintexts=plaintexts, readable=b"\1" * len(rows))


def _strip_each(key: HpkePrivateKey, _context: SealContext) -> Opener:
    overhead = SUITES[key.suite].overhead_bytes
    return lambda sealed: bytes(sealed[overhead:])


def _peak_mib() -> float:
    """Peak resident memory; getrusage would count what a parent held before the fork."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(x.split()[1]) for x in status.splitlines() if x.startswith("VmHWM:")) / 1024


async def _seconds(work: Awaitable[object]) -> float:
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


def _shuffler(folder: Path, n_users: int, **changes: Any) -> Shuffler:
    case = published(n_min=n_users, target_size=n_users + 1, **_TASK | changes)
    return Shuffler(folder, case=case, pool=InlinePool(_strip_each))


async def _shuffle(n_users: int, folder: Path) -> dict[str, float]:
    """Take `n_users` submissions of one report, restart, permute and deliver."""
    shuffler = _shuffler(folder, n_users, deadline=2_000_000_000)
    case, task = shuffler.case, shuffler.case.task
    digest = case.signed.digest()
    analyzer = CountingAnalyzer(case.signed, case.identity, task.sealed_report_bytes)
    shuffler.analyzer = analyzer
    await shuffler.start()
    rng, sent = np.random.default_rng(1), 0

    async def submit(count: int) -> list[bytes]:
        nonlocal sent
        envelopes = split_every(rng.bytes(count * task.envelope_sizes[-1]), task.envelope_sizes[-1])
        outcomes = await shuffler.collection.submit_bulk(digest, envelopes)
        assert [Outcome.STORED] * count == outcomes
        inside = SUITES[task.suite].overhead_bytes + SUBMISSION_ID_BYTES
        sent += sum(word_sum(envelope[inside:]) for envelope in envelopes)
        return envelopes

    started = time.perf_counter()
    for start in range(0, n_users, 4 * _CALL):
        counts = [_CALL] * (min(4 * _CALL, n_users - start) // _CALL)
        envelopes = (await asyncio.gather(*(submit(count) for count in counts)))[0]
    ingested, ingest_peak = time.perf_counter() - started, _peak_mib()
    shuffler.store.close()
    started = time.perf_counter()
    await shuffler.start()
    again = await shuffler.collection.submit_bulk(digest, envelopes)
    restarted = time.perf_counter() - started
    assert {Outcome.REPEATED} == {*again}
    assert n_users == await shuffler.users()
    shuffler.clock.seconds = 2_000_000_000.0
    analyzer.reachable = False
    permuted = await _seconds(shuffler.advance())
    assert await shuffler.batch_state() is batch.BatchState.PERMUTED
    analyzer.reachable = True
    delivered = await _seconds(shuffler.advance())
    assert await shuffler.batch_state() is batch.BatchState.ERASED
    assert (n_users, sent % 2**64) == (analyzer.n_reports, analyzer.checksum)
    shuffled = (await shuffler.collection.status(digest)).shuffle_seconds
    shuffler.store.close()
    return {
        "reports": n_users,
        "ingest_s": ingested,
        "restart_s": restarted,
        "permute_s": permuted,
        "of_which_permutation_s": shuffled,
        "deliver_s": delivered,
        "ingest_peak_mib": ingest_peak,
        "peak_mib": _peak_mib(),
    }


async def _restart(n_users: int, folder: Path) -> dict[str, float]:
    """Start on `n_users` undelivered submissions that came one by one, a hundred at a time."""
    shuffler = _shuffler(folder, n_users)
    task = shuffler.case.task
    await shuffler.start()
    await shuffler.batches.find_or_begin(shuffler.case.signed.digest())
    [found], rng = shuffler.batches.unfinished(), np.random.default_rng(1)
    size, key = task.envelope_sizes[-1] - SUITES[task.suite].overhead_bytes, found.key

    def arrival() -> Arrival:
        groups = [form_group([rng.bytes(size)], key.private_bytes())[0]]
        return Arrival(
            batch_id=found.batch_id, key=key, groups=groups, deadline=found.closing_rule.deadline
        )

    for _ in range(0, n_users, _DEVICES):
        arrivals = [arrival() for _ in range(_DEVICES)]
        await asyncio.gather(*map(shuffler.store.append, arrivals))
    shuffler.store.close()
    started = time.perf_counter()
    await shuffler.start()
    assert [[Outcome.REPEATED]] == await shuffler.store.append(arrivals[0])
    restarted = time.perf_counter() - started
    shuffler.store.close()
    return {"submissions": n_users, "restart_s": restarted, "peak_mib": _peak_mib()}


async def _receive(
    receiver: Receiver[Any],
    manifest: batch.BatchManifest,
    size: int,
    sealed: Callable[[int], bytes],
) -> None:
    """Deliver all parts of a batch; `sealed` makes so many reports."""
    n_parts = -(-manifest.n_reports * size // _PART_BYTES)
    edges = [manifest.n_reports * part // n_parts for part in range(n_parts + 1)]

    async def chunks(content: bytes) -> AsyncIterator[bytes]:
        for start in range(0, len(content), _CALL * size):
            yield content[start : start + _CALL * size]

    await receiver.begin(manifest, n_parts)
    for part, (start, end) in enumerate(pairwise(edges)):
        content = sealed(end - start)
        header = batch.BatchPart(
            task_digest=manifest.task_digest,
            part=part,
            n_reports=end - start,
            content_hash=hashlib.sha256(content).digest(),
        )
        await receiver.receive(header, chunks(content))


async def _relay(n_users: int, folder: Path) -> dict[str, float]:
    """Receive a batch of layers, open, permute and deliver it."""
    fields = chain(relay_key=RELAY_KEY) | {"domain_size": 915, "deadline": 2_000_000_000}
    case = published(n_min=n_users, target_size=n_users + 1, **fields)
    relay, task, digest = Relay(folder, case), case.task, case.signed.digest()
    relay.analyzer = CountingAnalyzer(case.signed, case.identity, task.sealed_report_bytes)
    await relay.start()
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr("shuffledp.shuffler.relay.layer_jobs.open_each", _strip)
    size, rng = task.report_bytes_at(1), np.random.default_rng(1)
    manifest = batch.BatchManifest(
        task_digest=digest,
        batch_id=batch.chain_batch_id(digest),
        n_users=n_users,
        n_reports=n_users + task.hop(0).expected_dummies,
    )
    receiving = _receive(relay.staging, manifest, size, lambda count: rng.bytes(count * size))
    received = await _seconds(receiving)
    staged = await _seconds(relay.staging.finish_delivery(digest))
    stage_peak = _peak_mib()
    delivered = await _seconds(relay.deliveries.advance())
    assert await relay.state_of() is batch.BatchState.ERASED
    stored = await relay.store.get(digest)
    assert (0, relay.analyzer.n_reports) == (stored.n_discarded, stored.n_reports)
    relay.store.close()
    monkeypatch.undo()
    return {
        "reports": manifest.n_reports,
        "receive_s": received,
        "stage_s": staged,
        "open_and_deliver_s": delivered,
        "stage_peak_mib": stage_peak,
        "peak_mib": _peak_mib(),
    }


async def _release(n_reports: int, folder: Path) -> dict[str, float]:
    """Receive a batch of `n_reports` reports, count it and release the result."""
    analyzer = AnalyzerCore(folder)
    await analyzer.start()
    signed = await analyzer.publish(**_TASK)
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr("shuffledp.analyzer.count_job.open_each", _strip)
    mechanism, rng = mechanism_of(analyzer.task), np.random.default_rng(1)
    overhead, size = SUITES[analyzer.task.suite].overhead_bytes, analyzer.task.sealed_report_bytes

    def sealed(count: int) -> bytes:
        reports = mechanism.randomize(np.zeros(count, np.int64), rng)
        plain = reports.view(np.uint8).reshape(count, -1)
        around = rng.integers(0, 256, (count, overhead), dtype=np.uint8)
        return np.concatenate([around, plain], axis=1).tobytes()

    async def deliver() -> None:
        await _receive(analyzer.staging, manifest, size, sealed)
        await analyzer.staging.finish_delivery(signed.digest())

    manifest = batch.BatchManifest(
        task_digest=signed.digest(),
        batch_id=batch.BatchId(bytes(16)),
        n_users=n_reports,
        n_reports=n_reports,
    )
    staged = await _seconds(deliver())
    stage_peak = _peak_mib()
    released = await _seconds(analyzer.releases.settled())
    result = await analyzer.releases.result(signed.digest())
    assert (n_reports, 0) == (result.n_reports, sum(result.refused.values()))
    await analyzer.stop()
    monkeypatch.undo()
    return {
        "reports": n_reports,
        "stage_s": staged,
        "release_s": released,
        "of_which_intake_s": result.open_seconds,
        "stage_peak_mib": stage_peak,
        "peak_mib": _peak_mib(),
    }


_CASES: Final = {"shuffler": _shuffle, "restart": _restart, "relay": _relay, "analyzer": _release}


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
