import asyncio
import sqlite3
from collections.abc import AsyncIterator

import pytest

from common.accounting.guarantees import guarantees
from common.crypto.hpke import report_context
from common.errors import (
    BatchStateError,
    ConflictError,
    DeliveryUnderWayError,
    UnknownTaskError,
    UnusableBatchError,
    WireError,
)
from common.messages.batch import BatchId, BatchManifest
from common.task_digest import TaskDigest
from deploy.audit.harness.analyzer_core import chunks_of
from protos.shuffledp.v1 import inclusion_pb2
from tests.support.analyzer_core import BATCH, AnalyzerCore


async def test_a_batch_becomes_a_result_with_both_guarantees(analyzer: AnalyzerCore) -> None:
    """And the ledger says what it cost; the staged reports are gone."""
    await analyzer.releases.deliver(analyzer.manifest(50), chunks_of(analyzer.sealed(50)))
    await analyzer.settle()
    result = await analyzer.releases.result(analyzer.signed.digest())

    assert (50, 100, 50) == (result.n_users, result.n_reports, result.n_dummies)
    assert guarantees(analyzer.task, 50, 0) == result.guarantees
    assert int(result.histogram.frequencies.argmax()) == 0
    assert await analyzer.store.chunk(BATCH, 0) is None
    connection = sqlite3.connect(analyzer.path / "analyzer.sqlite")
    rows = connection.execute("SELECT n_users, epsilon, delta FROM ledger").fetchall()
    connection.close()
    assert [(50, result.guarantees[0].epsilon, analyzer.task.delta)] == rows


async def test_refused_reports_are_counted_and_cost_privacy(analyzer: AnalyzerCore) -> None:
    """Repeats and unreadable ones are named by cause, and taken for honest users' reports."""
    sealed = analyzer.sealed(50)
    sealed[3] = sealed[4]
    sealed[5] = bytes(60)
    await analyzer.releases.deliver(analyzer.manifest(50), chunks_of(sealed))
    await analyzer.settle()
    result = await analyzer.releases.result(analyzer.signed.digest())

    assert {"repeated": 1, "unreadable": 1, "malformed": 0} == result.refused
    assert guarantees(analyzer.task, 50, 2) == result.guarantees


async def test_delivering_again_changes_nothing(analyzer: AnalyzerCore) -> None:
    """Before and after the release: one batch, one ledger entry."""
    sealed = analyzer.sealed(50)
    for _ in range(3):
        await analyzer.releases.deliver(analyzer.manifest(50), chunks_of(sealed))
        await analyzer.settle()
    connection = sqlite3.connect(analyzer.path / "analyzer.sqlite")
    assert [(1,)] == connection.execute("SELECT count(*) FROM ledger").fetchall()
    connection.close()


async def test_one_task_is_one_release(analyzer: AnalyzerCore) -> None:
    """A second batch for the task is refused, and so is the same under another manifest."""
    await analyzer.releases.deliver(analyzer.manifest(3), chunks_of(analyzer.sealed(3)))
    for other in (analyzer.manifest(3, batch=BatchId(b"o" * 16)), analyzer.manifest(4)):
        with pytest.raises(ConflictError):
            await analyzer.releases.deliver(other, chunks_of(analyzer.sealed(other.n_users)))


async def test_a_release_writes_into_the_database_alone(analyzer: AnalyzerCore) -> None:
    """No file is left that an opened report could lie in."""
    before = sorted(analyzer.path.rglob("*"))
    await analyzer.releases.deliver(analyzer.manifest(3), chunks_of(analyzer.sealed(3)))
    await analyzer.settle()

    assert 3 == (await analyzer.releases.result(analyzer.signed.digest())).n_users
    assert before == sorted(analyzer.path.rglob("*"))


async def test_a_delivery_that_broke_off_is_forgotten(analyzer: AnalyzerCore) -> None:
    """The next try starts from the beginning and counts every report once."""
    sealed = analyzer.sealed(200)

    async def broken() -> AsyncIterator[bytes]:
        async for chunk in chunks_of(sealed[:250]):
            yield chunk
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await analyzer.releases.deliver(analyzer.manifest(200), broken())
    with pytest.raises(BatchStateError):
        await analyzer.releases.result(analyzer.signed.digest())
    await analyzer.releases.deliver(analyzer.manifest(200), chunks_of(sealed))
    await analyzer.settle()

    assert {"repeated": 0, "unreadable": 0, "malformed": 0} == (
        await analyzer.releases.result(analyzer.signed.digest())
    ).refused


async def test_a_staged_batch_is_released_after_a_crash(analyzer: AnalyzerCore) -> None:
    """Acknowledged means staged; the next start goes on from there."""
    manifest = analyzer.manifest(50)
    await analyzer.store.begin_batch(manifest)
    await analyzer.store.add_chunks(BATCH, 0, [b"".join(analyzer.sealed(50))])
    await analyzer.store.finish_batch(BATCH)
    analyzer.store.close()
    await analyzer.start()
    await analyzer.releases.resume()
    await analyzer.settle()

    assert 50 == (await analyzer.releases.result(analyzer.signed.digest())).n_users


@pytest.mark.parametrize(
    ("users", "reports", "sent", "message"),
    [
        (2, 4, 4, "needs at least 3"),
        (5, 9, 9, "a batch of 5 users has 10"),
        (5, 10, 9, "9 reports came; 10 were announced"),
        (5, 10, 11, "reports came; 10 were announced"),
    ],
)
async def test_a_batch_must_be_what_its_manifest_says(
    analyzer: AnalyzerCore, users: int, reports: int, sent: int, message: str
) -> None:
    """Users, reports and what really came must agree, and n_min is kept here too."""
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


async def test_a_batch_for_an_unknown_task_is_refused(analyzer: AnalyzerCore) -> None:
    """Nothing is staged."""
    manifest = BatchManifest(
        task_digest=TaskDigest(bytes(32)), batch_id=BATCH, n_users=3, n_reports=6
    )
    with pytest.raises(UnknownTaskError):
        await analyzer.releases.deliver(manifest, chunks_of([]))


@pytest.mark.parametrize("statement", ["UPDATE ledger SET epsilon = 0", "DELETE FROM ledger"])
async def test_the_ledger_is_append_only(analyzer: AnalyzerCore, statement: str) -> None:
    """The file itself refuses to forget."""
    await analyzer.releases.deliver(analyzer.manifest(3), chunks_of(analyzer.sealed(3)))
    await analyzer.settle()
    connection = sqlite3.connect(analyzer.path / "analyzer.sqlite")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(statement)
    connection.close()


async def test_a_batch_of_nothing_readable_is_given_up_with_a_reason(
    analyzer: AnalyzerCore,
) -> None:
    """Not "not yet" for ever: the operator is told; and the task takes no other batch."""
    garbage = [bytes([number]) * 60 for number in range(6)]
    await analyzer.releases.deliver(analyzer.manifest(3), chunks_of(garbage))
    await analyzer.settle()

    with pytest.raises(UnusableBatchError, match="none of the batch's 6 reports"):
        await analyzer.releases.result(analyzer.signed.digest())
    other = analyzer.manifest(3, batch=BatchId(b"o" * 16))
    with pytest.raises(ConflictError):
        await analyzer.releases.deliver(other, chunks_of(analyzer.sealed(3)))


async def test_padding_that_the_task_has_no_room_for_is_refused(analyzer: AnalyzerCore) -> None:
    """With a fixed number of dummies a null report stands where a report should."""
    sealed = analyzer.sealed(50)
    seal = analyzer.keys.reports.public_key().sealer(report_context(analyzer.signed.digest()))
    sealed[:2] = [seal(b"\xff" * 12), seal(b"\xff" * 12)]
    await analyzer.releases.deliver(analyzer.manifest(50), chunks_of(sealed))
    await analyzer.settle()
    result = await analyzer.releases.result(analyzer.signed.digest())

    assert result.refused["malformed"] == 2
    assert guarantees(analyzer.task, 50, 2) == result.guarantees


async def test_a_second_delivery_at_the_same_time_may_come_back(analyzer: AnalyzerCore) -> None:
    """ABORTED is passing: the shuffler does not quarantine a good batch for it."""
    sealed, going_on = analyzer.sealed(3), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        await going_on.wait()
        yield b"".join(sealed)

    first = asyncio.create_task(analyzer.releases.deliver(analyzer.manifest(3), slow()))
    await asyncio.sleep(0.05)
    with pytest.raises(DeliveryUnderWayError) as caught:
        await analyzer.releases.deliver(analyzer.manifest(3), chunks_of(sealed))
    going_on.set()
    await first

    assert caught.value.status == "ABORTED"


async def test_a_delivery_that_never_came_whole_holds_no_place(analyzer: AnalyzerCore) -> None:
    """Another batch id may come after it: a stray manifest cannot block the real batch."""
    stray = analyzer.manifest(5, batch=BatchId(b"s" * 16))
    with pytest.raises(WireError):
        await analyzer.releases.deliver(stray, chunks_of(analyzer.sealed(3)))
    await analyzer.releases.deliver(analyzer.manifest(50), chunks_of(analyzer.sealed(50)))
    await analyzer.settle()

    assert 50 == (await analyzer.releases.result(analyzer.signed.digest())).n_users


async def test_a_salt_is_drawn_when_a_batch_has_wholly_come(analyzer: AnalyzerCore) -> None:
    """None for a delivery that breaks off, and another for every batch."""
    before = analyzer.staging._rng.bit_generator.state
    with pytest.raises(WireError):
        await analyzer.releases.deliver(analyzer.manifest(5), chunks_of(analyzer.sealed(3)))
    assert before == analyzer.staging._rng.bit_generator.state

    salts = set()
    for _ in range(2):
        digest = (await analyzer.publish()).digest()
        manifest = analyzer.manifest(5, batch=BatchId(digest[:16]))
        commitment = await analyzer.releases.deliver(manifest, chunks_of(analyzer.sealed(5)))
        assert commitment is not None
        salts.add(commitment.salt)
    assert 2 == len(salts)


async def test_a_batch_that_an_earlier_version_staged_is_delivered_again_without_a_commitment(
    analyzer: AnalyzerCore,
) -> None:
    """What it signed had no salt, and is shown to nobody any more."""
    manifest, sealed = analyzer.manifest(50), analyzer.sealed(50)
    earlier = inclusion_pb2.BatchCommitment(signature=bytes(64)).SerializeToString()
    await analyzer.store.begin_batch(manifest)
    await analyzer.store.add_chunks(BATCH, 0, [b"".join(sealed)])
    await analyzer.store.finish_batch(BATCH, earlier)

    assert await analyzer.releases.deliver(manifest, chunks_of(sealed)) is None


async def test_a_batch_staged_by_a_call_that_was_cut_off_is_released(
    analyzer: AnalyzerCore,
) -> None:
    """The transaction was committed, the caller was gone: the redelivery starts the release."""
    sealed, manifest = analyzer.sealed(50), analyzer.manifest(50)
    await analyzer.store.begin_batch(manifest)
    await analyzer.store.add_chunks(BATCH, 0, [b"".join(sealed)])
    await analyzer.store.finish_batch(BATCH)
    await analyzer.releases.deliver(manifest, chunks_of(sealed))
    await analyzer.settle()

    assert 50 == (await analyzer.releases.result(analyzer.signed.digest())).n_users


async def test_staged_reports_leave_the_disk_with_the_release(analyzer: AnalyzerCore) -> None:
    """The log of the database too."""
    sealed = analyzer.sealed(50)
    await analyzer.releases.deliver(analyzer.manifest(50), chunks_of(sealed))
    await analyzer.settle()

    files = b"".join(file.read_bytes() for file in analyzer.path.glob("analyzer.sqlite*"))
    assert not [report for report in sealed if report[:32] in files]
