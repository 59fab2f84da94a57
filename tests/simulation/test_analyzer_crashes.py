"""
A crash of the analyzer at any boundary of a delivery in parts, or of the release, changes nothing.

Boundaries are around transactions, changes of key files, and parts of every stage.
"""

from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from shuffledp.audit.harness.party_cores import chunks_of, part_header, parts_of
from shuffledp.common.crypto.hpke import report_context
from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import PeerError
from shuffledp.common.mechanisms.base import Counts
from shuffledp.common.mechanisms.registry import mechanism_of
from shuffledp.common.messages.batch import BatchId, BatchManifest, BatchPart
from shuffledp.common.messages.inclusion_proof import BatchCommitment, leaf
from shuffledp.common.task.task import Task
from tests.support.analyzer_party import AnalyzerParty, Surroundings
from tests.support.count_jobs import divide_finely
from tests.support.faults import Boundary, Crash, Life
from tests.support.leaves import GrownTree
from tests.support.ledger_entries import releases
from tests.support.tasks import draft

_USERS: Final = 30
_PARTS: Final = 3
_PLANTED: Final = 2
_EARLIER: Final = BatchId(b"e" * 16)
_BATCH: Final = BatchId(b"b" * 16)


class _Delivery:
    """A published task, its sealed batch with sentinels, and a shuffler that retries."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.around = Surroundings(path)
        self.analyzer = AnalyzerParty(self.around)
        self._shuffler = Life("stranger", self.around.faults)

    async def prepare(self) -> None:
        """Publish a task, seal a batch with two sentinels, and begin another batch's delivery."""
        await self.analyzer.start()
        self.signed: SignedTask = await self.analyzer.publish(
            draft(n_min=_USERS, target_size=_USERS + _PLANTED, dummies_per_user=0)
        )
        task = Task.from_bytes(self.signed.task_bytes)
        mechanism, rng = mechanism_of(task), np.random.default_rng(1)
        reports = mechanism.randomize(np.arange(_USERS + _PLANTED) % 4, rng)
        key = self.analyzer.keys.reports.public_key(task.suite)
        seal = key.sealer(report_context(self.signed.digest()))
        self.sealed = [seal(report.tobytes()) for report in reports]
        self.expected: Counts = mechanism.tally(reports[_PLANTED:])
        digest = self.signed.digest()
        planted = list(map(leaf, self.sealed[:_PLANTED]))
        await self.analyzer.registry.register_sentinels(digest, planted, acknowledged=True)
        self.sealed = [self.sealed[place] for place in rng.permutation(len(self.sealed))]
        await self.analyzer.staging.begin(self._manifest(_EARLIER), 2)
        earlier = part_header(digest, 1, self.sealed[:9])
        await self.analyzer.staging.receive(earlier, chunks_of(self.sealed[:9]))
        self.left = self.files()
        self.around.faults.crossed.clear()

    def _manifest(self, batch_id: BatchId) -> BatchManifest:
        return BatchManifest(
            task_digest=self.signed.digest(),
            batch_id=batch_id,
            n_users=len(self.sealed),
            n_reports=len(self.sealed),
        )

    def files(self) -> set[str]:
        """Return the names of all files that the analyzer keeps, but for its database's."""
        root = self.analyzer.path
        names = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
        return {name for name in names if not name.startswith("analyzer.sqlite")}

    async def deliver(self) -> BatchCommitment:
        """Deliver the batch like a shuffler, which begins again after each failure."""
        while True:
            try:
                return await self._try_to_deliver()
            except PeerError:
                await self.restart()

    async def restart(self) -> None:
        """Restart the analyzer after a crash, even if it crashes while it starts."""
        while self.analyzer.life.over.is_set():
            await self.analyzer.end()
            try:
                await self.analyzer.start()
            except Crash:
                continue

    async def _try_to_deliver(self) -> BatchCommitment:
        staging = self.analyzer.staging
        call = self.around.network.call
        lives = (self._shuffler, self.analyzer.life)
        arrived, staged = await call(
            *lives, "begin", lambda: staging.begin(self._manifest(_BATCH), _PARTS)
        )
        for number, reports in enumerate(parts_of(self.sealed, _PARTS)):
            if not staged and number not in arrived:
                header = part_header(self.signed.digest(), number, reports)
                await call(*lives, "part", partial(self._send_part, header, reports))
        return await call(*lives, "finish", lambda: staging.finish_delivery(self.signed.digest()))

    async def _send_part(self, header: BatchPart, reports: list[bytes]) -> None:
        await self.analyzer.staging.receive(header, chunks_of(reports))

    async def settle(self) -> None:
        """Wait until the batch is released and erased, whatever crashes."""
        await self.analyzer.settle()
        while self.analyzer.life.over.is_set():
            await self.restart()
            await self.analyzer.settle()


async def _run(path: Path, crash: int | None) -> list[Boundary]:
    """Deliver and release a batch with a crash at a boundary; return the boundaries crossed."""
    delivery = _Delivery(path)
    await delivery.prepare()
    faults = delivery.around.faults
    faults.countdown = crash
    commitments = {await delivery.deliver()}
    await delivery.settle()
    boundaries = list(faults.crossed)
    commitments.add(await delivery.deliver())
    await delivery.settle()
    analyzer = delivery.analyzer
    result = await analyzer.releases.result(delivery.signed.digest())
    [cells] = await analyzer.store.run(lambda c: c.execute("SELECT cells FROM results").fetchone())
    left, entries = delivery.files(), releases(await analyzer.store.ledger(0))
    await analyzer.end()

    assert (crash is None) == (not faults.crashes), "the crash was not reached"
    np.testing.assert_array_equal(delivery.expected, np.frombuffer(cells, np.int64))
    assert (_USERS, 0, _PLANTED) == (
        result.n_users,
        sum(result.refused.values()),
        result.n_sentinels,
    )
    assert [(_BATCH, _USERS)] == [(entry.batch_id, entry.n_users) for entry in entries]
    [commitment] = commitments
    leaves = [leaf(report) for report in delivery.sealed]
    assert GrownTree(leaves, commitment.salt).root == commitment.root
    assert left < delivery.left, "a key or a block of a batch is left"
    assert not [name for name in left if "batch-" in name or "blocks" in name]
    return boundaries


@pytest.mark.parametrize(
    "every",
    [pytest.param(False, id="a sixth"), pytest.param(True, id="all", marks=pytest.mark.slow)],
)
async def test_a_crash_of_the_analyzer_at_any_boundary_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, every: bool
) -> None:
    """
    Same cells, one release, one ledger entry, one commitment, and no key or block left.

    An earlier, incomplete delivery is replaced meanwhile. The short form crashes at the first
    boundary of every sixth kind.
    """
    divide_finely(monkeypatch)
    monkeypatch.setattr("shuffledp.analyzer.release.retry_pause", lambda _: 0.0)
    boundaries = await _run(tmp_path / "no crash", None)
    acts = {boundary.act for boundary in boundaries}
    stages = {"split", "merge", "hash_buckets", "match", "count"}
    steps = {"begin delivery", "accept delivery", "add part", "fix salt", "finish delivery"}
    assert stages | steps | {"release", "make key", "destroy key"} <= acts
    first = {boundary: number for number, boundary in reversed(list(enumerate(boundaries)))}
    for number in range(len(boundaries)) if every else list(first.values())[::6]:
        await _run(tmp_path / f"crash {number}", number)
