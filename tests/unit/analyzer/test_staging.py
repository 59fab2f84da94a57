import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing

import pytest

from common.crypto.hpke import split_every
from common.errors import DeliveryUnderWayError, UnusableBatchError, WireError
from common.messages.batch import BatchId, BatchManifest
from common.messages.inclusion_proof import BatchCommitment, leaves_of
from deploy.audit.harness.analyzer_core import chunks_of
from protos.shuffledp.v1 import inclusion_pb2
from tests.support.analyzer_core import BATCH, AnalyzerCore
from tests.support.leaves import commitment_over


@pytest.mark.parametrize(
    ("users", "reports", "sent", "message"),
    [
        (2, 4, 4, "needs at least 3"),
        (5, 9, 9, "a batch of 5 users must have 10"),
        (5, 10, 9, "9 reports arrived; 10 were announced"),
        (5, 10, 11, "reports arrived; 10 were announced"),
    ],
)
async def test_a_batch_must_agree_with_its_manifest(
    analyzer: AnalyzerCore, users: int, reports: int, sent: int, message: str
) -> None:
    """Checked are the users, at least n_min, the announced reports and those that arrive."""
    manifest = BatchManifest(
        task_digest=analyzer.signed.digest(), batch_id=BATCH, n_users=users, n_reports=reports
    )
    with pytest.raises(WireError, match=message):
        await analyzer.releases.deliver(manifest, chunks_of(analyzer.sealed(6)[:sent]))


async def test_half_a_report_is_refused(analyzer: AnalyzerCore) -> None:
    """Chunks hold whole sealed reports."""

    async def odd() -> AsyncIterator[bytes]:
        yield bytes(61)

    with pytest.raises(WireError, match="it must hold whole reports of 60"):
        await analyzer.releases.deliver(analyzer.manifest(3), odd())


async def test_a_concurrent_delivery_is_refused_retryably(analyzer: AnalyzerCore) -> None:
    """The shuffler does not quarantine a batch for ABORTED."""
    sealed, started, going_on = analyzer.sealed(3), asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        started.set()
        await going_on.wait()
        yield b"".join(sealed)

    first = asyncio.create_task(analyzer.releases.deliver(analyzer.manifest(3), slow()))
    await started.wait()
    with pytest.raises(DeliveryUnderWayError) as caught:
        await analyzer.releases.deliver(analyzer.manifest(3), chunks_of(sealed))
    going_on.set()
    await first

    assert caught.value.status == "ABORTED"


async def test_the_salt_is_drawn_after_the_last_report(analyzer: AnalyzerCore) -> None:
    """An interrupted delivery draws none and blocks no other; every batch draws its own."""
    before = analyzer.staging._rng.bit_generator.state
    stray = analyzer.manifest(5, batch=BatchId(b"s" * 16))
    with pytest.raises(WireError):
        await analyzer.releases.deliver(stray, chunks_of(analyzer.sealed(3)))
    assert before == analyzer.staging._rng.bit_generator.state
    await analyzer.deliver(50, analyzer.sealed(50))
    assert 50 == (await analyzer.result()).n_users

    salts = set()
    for _ in range(2):
        digest = (await analyzer.publish()).digest()
        manifest = analyzer.manifest(5, batch=BatchId(digest[:16]))
        commitment = await analyzer.releases.deliver(manifest, chunks_of(analyzer.sealed(5)))
        assert commitment is not None
        salts.add(commitment.salt)
    assert 2 == len(salts)


async def test_a_batch_staged_by_an_earlier_version_has_no_commitment(
    analyzer: AnalyzerCore,
) -> None:
    """That version signed without a salt."""
    manifest, sealed = analyzer.manifest(50), analyzer.sealed(50)
    earlier = inclusion_pb2.BatchCommitment(signature=bytes(64)).SerializeToString()
    await analyzer.store.begin_batch(manifest)
    await analyzer.store.add_chunks(BATCH, 0, [b"".join(sealed)])
    await analyzer.store.finish_batch(BATCH, bytes(32), earlier)

    assert await analyzer.releases.deliver(manifest, chunks_of(sealed)) is None


_USERS = 50


async def _stage_and_damage(analyzer: AnalyzerCore, damage: str) -> None:
    """Stage a batch of 50 chunks, stop before it is released, damage it, and start again."""
    sealed = analyzer.sealed(_USERS)
    await analyzer.staging.receive(analyzer.manifest(_USERS), chunks_of(sealed, size=2))
    # Staged in one group, so each chunk is a row.
    analyzer.store.close()
    with closing(sqlite3.connect(analyzer.path / "analyzer.sqlite")) as connection:
        connection.executescript(damage)
    await analyzer.start()
    await analyzer.releases.resume()
    await analyzer.settle()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DELETE FROM chunks WHERE position = 49", "98 are on the disk"),
        ("DELETE FROM chunks WHERE position = 40", "80 are on the disk"),
        (
            "UPDATE chunks SET sealed_reports = zeroblob(120) WHERE position = 40",
            "damaged on the disk",
        ),
        (
            """
            UPDATE chunks SET position = 99 WHERE position = 0;
            UPDATE chunks SET position = 0 WHERE position = 1;
            UPDATE chunks SET position = 1 WHERE position = 99;
            """,
            "damaged on the disk",
        ),
        ("DELETE FROM staged_hashes", "or the hash stored with them, are damaged"),
    ],
    ids=["last chunk lost", "chunk lost", "chunk changed", "chunks exchanged", "hash lost"],
)
async def test_a_batch_damaged_on_the_disk_is_not_estimated(
    analyzer: AnalyzerCore, damage: str, said: str
) -> None:
    """Damage counts neither as fewer reports nor as unreadable ones."""
    await _stage_and_damage(analyzer, damage)

    with pytest.raises(UnusableBatchError, match=said):
        await analyzer.result()


async def test_a_batch_always_gets_the_same_commitment(analyzer: AnalyzerCore) -> None:
    """The commitment covers all reports, also after the release and a restart."""
    sealed = analyzer.sealed(5)
    leaves = leaves_of(b"".join(sealed), analyzer.task.sealed_report_bytes)
    answers: list[BatchCommitment | None] = []
    for _ in range(2):
        answers.append(await analyzer.releases.deliver(analyzer.manifest(5), chunks_of(sealed)))
        await analyzer.settle()
    await analyzer.restart()
    answers.append(await analyzer.releases.deliver(analyzer.manifest(5), chunks_of(sealed[::-1])))

    [first] = {answer for answer in answers if answer is not None}
    identity = analyzer.keys.identity
    first.verify(identity.public_identity(), analyzer.signed.digest())
    assert 3 == len(answers)
    assert 10 == first.n_leaves
    wanted = commitment_over(
        split_every(leaves, 32), identity, analyzer.signed.digest(), first.salt
    )
    assert wanted.root == first.root
