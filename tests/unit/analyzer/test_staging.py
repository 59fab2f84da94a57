import asyncio
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shuffledp.audit.harness.party_cores import chunks_of, part_header, parts_of
from shuffledp.common.crypto.hpke import split_every
from shuffledp.common.errors import (
    ConflictError,
    DamagedStorageError,
    DeliveryUnderWayError,
    UnusableBatchError,
    WireError,
)
from shuffledp.common.messages.batch import BatchId, BatchManifest
from shuffledp.common.messages.inclusion_proof import BatchCommitment, leaf, leaves_of
from shuffledp.common.messages.ledger_entry import LedgerEntry
from shuffledp.common.messages.submission import plain_reports
from shuffledp.common.runtime.blocks import FolderBlocks, SealedBlocks
from shuffledp.common.task.sealing import report_sealer
from shuffledp.deploy.results.verification import check_fits
from tests.support.analyzer_core import BATCH, AnalyzerCore
from tests.support.chains import chain
from tests.support.leaves import GrownTree, commitment_over


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
        await analyzer.deliver_parts(manifest, analyzer.sealed(6)[:sent])


@pytest.mark.parametrize(
    ("by_length", "message"),
    [
        ((5, 0), "submissions of 2 lengths are announced; the task has 1"),
        ((4,), "4 submissions of 5 users are announced"),
    ],
)
async def test_the_submissions_by_length_must_agree_with_the_task(
    analyzer: AnalyzerCore, by_length: tuple[int, ...], message: str
) -> None:
    """Their number is that of the users; they survive a restart."""
    manifest = replace(analyzer.manifest(5), by_length=by_length)
    with pytest.raises(WireError, match=message):
        await analyzer.staging.begin(manifest, 1)
    fine = replace(manifest, by_length=(5,))
    await analyzer.deliver_parts(fine, analyzer.sealed(5))
    await analyzer.restart()

    assert fine in await analyzer.store.staged() or await analyzer.store.result(fine.task_digest)


async def test_reports_that_a_relay_dropped_are_refused_reports_that_arrived(
    analyzer: AnalyzerCore,
) -> None:
    """
    Of fifty users, whose layers of two did not open; the number survives a restart.

    It must fit the number of users with the noise of both shufflers, and needs a relay.
    """
    with pytest.raises(WireError, match="2 reports were discarded; the task has no relay"):
        await analyzer.staging.begin(replace(analyzer.manifest(5), n_discarded=2), 1)
    signed = await analyzer.publish(**chain(), domain_size=5, delta=1e-3)
    task, seal = analyzer.task, report_sealer(analyzer.task, signed.digest(), hop=2)
    added = task.shuffler.draw_dummies(np.random.default_rng(4))
    items = np.repeat(np.arange(5), np.array([48, 0, 0, 0, 0]) + added)
    sealed = [seal(item.tobytes()) for item in plain_reports(items)]
    fine = replace(analyzer.manifest(50), n_reports=len(sealed), n_discarded=2)
    for wrong in (replace(fine, n_discarded=300), replace(fine, n_reports=10, n_discarded=10)):
        with pytest.raises(WireError, match=r"are announced, \d+ of them discarded; a batch of 50"):
            await analyzer.staging.begin(wrong, 1)

    await analyzer.receive(fine, sealed)
    await analyzer.restart()
    await analyzer.deliver_parts(fine, sealed)
    await analyzer.settle()
    result = await analyzer.result()

    assert {"repeated": 0, "unreadable": 0, "malformed": 0, "discarded": 2} == result.refused
    assert (50, len(sealed) + 2) == (result.n_users, result.n_reports)
    check_fits(result, task)
    [entry] = await analyzer.store.ledger(0)
    assert isinstance(entry, LedgerEntry)
    assert 2 == entry.n_refused
    shares = result.histogram.frequencies
    assert 1 == pytest.approx(shares[0], abs=6 * result.histogram.standard_errors[0])


_SIZE = 60


async def _chunks(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@pytest.mark.parametrize(
    ("header", "chunks", "message"),
    [
        ({}, [bytes(61)], "a chunk has 61 bytes; it must hold whole reports of 60"),
        ({}, [bytes(60)], "1 reports of a part arrived; 3 were announced"),
        ({}, [bytes(120), bytes(120), bytes(10**6)], "4 reports of a part arrived; 3 were"),
        ({}, [bytes(179) + b"x"], "part 1 has another SHA-256 than was announced"),
        ({"part": 2}, [], "the part's number is 2; there are 2 parts"),
        ({"n_reports": 11}, [], "11 reports arrived; 10 were announced"),
        (
            {"n_reports": 2**29 // 60 + 1},
            [],
            r"a part has 5368709\d\d bytes; it may have at most 268435456",
        ),
    ],
)
async def test_a_part_must_agree_with_its_header(
    analyzer: AnalyzerCore, header: dict[str, Any], chunks: list[bytes], message: str
) -> None:
    """A refused part leaves nothing, so that it can be delivered again."""
    manifest, digest = analyzer.manifest(5), analyzer.signed.digest()
    await analyzer.staging.begin(manifest, 2)
    honest = part_header(digest, 1, [bytes(_SIZE)] * 3)
    with pytest.raises(WireError, match=message):
        await analyzer.staging.receive(replace(honest, **header), _chunks(*chunks))

    assert ([], False) == await analyzer.staging.begin(manifest, 2)
    await analyzer.staging.receive(honest, _chunks(bytes(180)))
    assert ([1], False) == await analyzer.staging.begin(manifest, 2)


async def test_parts_arrive_in_any_order_and_once(analyzer: AnalyzerCore) -> None:
    """A part that is there is not read again; another under its number is refused."""
    sealed, digest = analyzer.sealed(50), analyzer.signed.digest()
    parts = parts_of(sealed, 7)
    headers = [part_header(digest, number, part) for number, part in enumerate(parts)]
    asked = []

    async def deliver(number: int) -> None:
        async def ask() -> None:
            asked.append(number)

        chunks = chunks_of(parts[number])
        await analyzer.staging.receive(headers[number], chunks, ask)

    await analyzer.staging.begin(analyzer.manifest(50), 7)
    await asyncio.gather(*map(deliver, (5, 3, 0)))
    await analyzer.restart()
    assert ([0, 3, 5], False) == await analyzer.staging.begin(analyzer.manifest(50), 7)
    with pytest.raises(WireError, match="3 of 7 parts of the batch have arrived"):
        await analyzer.staging.finish_delivery(digest)
    other = part_header(digest, 3, parts[4])
    with pytest.raises(ConflictError, match="another part 3"):
        await analyzer.staging.receive(other, chunks_of(parts[4]))
    await asyncio.gather(*map(deliver, (6, 5, 4, 3, 2, 1)))
    commitment = await analyzer.staging.finish_delivery(digest)
    assert ([*range(7)], True) == await analyzer.staging.begin(analyzer.manifest(50), 7)
    await analyzer.settle()

    assert list(range(7)) == sorted(asked)
    leaves = [leaf(report) for report in sealed]
    assert GrownTree(leaves, commitment.salt).root == commitment.root
    assert 50 == (await analyzer.result()).n_users


async def test_one_part_is_delivered_by_one_call_at_a_time(analyzer: AnalyzerCore) -> None:
    """The shuffler does not quarantine a batch for ABORTED."""
    sealed, started, going_on = analyzer.sealed(3), asyncio.Event(), asyncio.Event()
    header = part_header(analyzer.signed.digest(), 0, sealed)

    async def slow() -> AsyncIterator[bytes]:
        started.set()
        await going_on.wait()
        yield b"".join(sealed)

    with pytest.raises(DeliveryUnderWayError, match="has not begun"):
        await analyzer.staging.receive(header, slow())
    await analyzer.staging.begin(analyzer.manifest(3), 1)
    first = asyncio.create_task(analyzer.staging.receive(header, slow()))
    await started.wait()
    with pytest.raises(DeliveryUnderWayError) as caught:
        await analyzer.staging.receive(header, chunks_of(sealed))
    with pytest.raises(DeliveryUnderWayError, match="another batch of this task"):
        await analyzer.staging.begin(analyzer.manifest(3), 2)
    going_on.set()
    await first

    assert "ABORTED" == caught.value.status
    assert ([0], False) == await analyzer.staging.begin(analyzer.manifest(3), 1)


async def test_a_part_whose_call_was_cancelled_is_stored_before_another_is_accepted(
    analyzer: AnalyzerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its thread could replace the block of a part that was accepted meanwhile."""
    sealed, writing, written = analyzer.sealed(3), threading.Event(), threading.Event()
    header, put = part_header(analyzer.signed.digest(), 0, sealed), SealedBlocks.put

    def slow(*args: Any, **kwargs: Any) -> None:
        writing.set()
        time.sleep(0.2)
        put(*args, **kwargs)
        written.set()

    monkeypatch.setattr(SealedBlocks, "put", slow)
    await analyzer.staging.begin(analyzer.manifest(3), 1)
    call = asyncio.create_task(analyzer.staging.receive(header, chunks_of(sealed)))
    await asyncio.to_thread(writing.wait)
    call.cancel()
    await asyncio.sleep(0)
    with pytest.raises(DeliveryUnderWayError):
        await analyzer.staging.receive(header, chunks_of(sealed))
    with pytest.raises(asyncio.CancelledError):
        await call

    assert written.is_set()
    assert ([0], False) == await analyzer.staging.begin(analyzer.manifest(3), 1)


async def test_an_incomplete_delivery_is_replaced(analyzer: AnalyzerCore) -> None:
    """By another batch, whose parts are its own; nothing of the first one is left."""
    first, digest = analyzer.manifest(4, batch=BatchId(b"f" * 16)), analyzer.signed.digest()
    await analyzer.receive(first, analyzer.sealed(4))
    assert ([], False) == await analyzer.staging.begin(first, 3)
    await analyzer.receive(first, analyzer.sealed(4))
    assert first.batch_id.hex() in _names(analyzer)
    sealed = analyzer.sealed(50)
    await analyzer.receive(analyzer.manifest(50), sealed)
    assert first.batch_id.hex() not in _names(analyzer)
    commitment = await analyzer.staging.finish_delivery(digest)
    await analyzer.settle()

    assert (BATCH, 100) == (commitment.batch_id, commitment.n_leaves)
    assert 50 == (await analyzer.result()).n_users


def _names(analyzer: AnalyzerCore) -> str:
    """Return the names of all files and folders."""
    return " ".join(str(path) for path in analyzer.path.rglob("*"))


async def test_calls_that_finish_a_delivery_share_the_work(analyzer: AnalyzerCore) -> None:
    """It continues if a caller hangs up, and its outcome stays."""
    digest = analyzer.signed.digest()
    await analyzer.receive(analyzer.manifest(50), analyzer.sealed(50))
    hung_up, *calls = [
        asyncio.create_task(analyzer.staging.finish_delivery(digest)) for _ in range(4)
    ]
    await asyncio.sleep(0)
    hung_up.cancel()
    answers = await asyncio.gather(*calls, analyzer.staging.finish_delivery(digest))
    await analyzer.settle()

    assert 1 == len(set(answers))
    stages = {"split": 2, "merge": 1, "hash_buckets": 1, "count": 1}
    assert stages == dict(+analyzer.executor.parts)
    assert 1 == len(await analyzer.store.ledger(0))


async def test_the_salt_is_drawn_after_the_last_report(analyzer: AnalyzerCore) -> None:
    """An interrupted delivery draws none and blocks no other; every batch draws its own."""
    before = analyzer.staging.rng.bit_generator.state
    stray = analyzer.manifest(5, batch=BatchId(b"s" * 16))
    with pytest.raises(WireError):
        await analyzer.deliver_parts(stray, analyzer.sealed(3))
    assert before == analyzer.staging.rng.bit_generator.state
    await analyzer.deliver(50, analyzer.sealed(50))
    assert 50 == (await analyzer.result()).n_users

    salts = set()
    for _ in range(2):
        digest = (await analyzer.publish()).digest()
        manifest = analyzer.manifest(5, batch=BatchId(digest[:16]))
        commitment = await analyzer.deliver_parts(manifest, analyzer.sealed(5))
        salts.add(commitment.salt)
    assert 2 == len(salts)


_USERS = 50


async def _stage(analyzer: AnalyzerCore) -> Path:
    """Stage a batch of 5 parts, and stop before it is released; return its folder of blocks."""
    manifest = analyzer.manifest(_USERS)
    await analyzer.receive(manifest, analyzer.sealed(_USERS), 5)
    await analyzer.finish_unreleased(manifest.task_digest)
    return analyzer.path / "blocks" / BATCH.hex()


async def _release(analyzer: AnalyzerCore) -> None:
    await analyzer.restart()
    await analyzer.releases.resume()
    await analyzer.settle()


def _lose(arrived: Path) -> None:
    (arrived / "4").unlink()


def _cut_off(arrived: Path) -> None:
    (arrived / "2").write_bytes((arrived / "2").read_bytes()[:-60])


def _change(arrived: Path) -> None:
    content = bytearray((arrived / "2").read_bytes())
    content[100] ^= 1
    (arrived / "2").write_bytes(content)


def _exchange(arrived: Path) -> None:
    (arrived / "0").rename(arrived / "2'")
    (arrived / "2").rename(arrived / "0")
    (arrived / "2'").rename(arrived / "2")


@pytest.mark.parametrize("damage", [_lose, _cut_off, _change, _exchange])
async def test_a_batch_damaged_on_the_disk_is_not_estimated(
    analyzer: AnalyzerCore, damage: Callable[[Path], None]
) -> None:
    """Damage counts neither as fewer reports nor as unreadable ones. What is left is kept."""
    folder = await _stage(analyzer)
    damage(folder / "arrived")
    left = _files(analyzer.path)
    await _release(analyzer)
    await _release(analyzer)

    with pytest.raises(UnusableBatchError, match=r"of the batch's 5 staged parts is damaged on"):
        await analyzer.result()
    assert left <= _files(analyzer.path)


def _files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() and "arrived" in path.parts}


async def test_blocks_that_were_computed_are_computed_again_if_they_are_damaged(
    analyzer: AnalyzerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash of the machine as in the run that staged the batch."""
    monkeypatch.setattr("shuffledp.analyzer.release.retry_pause", lambda _: 0.0)
    folder = await _stage(analyzer)
    [merged] = (folder / "merged").iterdir()
    merged.unlink()
    await analyzer.releases.resume()
    await analyzer.settle()
    assert _USERS == (await analyzer.result()).n_users

    signed = await analyzer.publish()
    await analyzer.stage(analyzer.manifest(_USERS, batch=BatchId(b"2" * 16)), signed)
    shutil.rmtree(analyzer.path / "blocks" / (b"2" * 16).hex() / "merged")
    await _release(analyzer)
    assert _USERS == (await analyzer.result()).n_users


async def test_parts_damaged_before_they_are_staged_are_delivered_again(
    analyzer: AnalyzerCore,
) -> None:
    """The shuffler still has them: it is told to retry."""
    manifest, sealed = analyzer.manifest(_USERS), analyzer.sealed(_USERS)
    await analyzer.receive(manifest, sealed)
    (analyzer.path / "blocks" / BATCH.hex() / "arrived" / "1").write_bytes(b"")
    with pytest.raises(DamagedStorageError, match="deliver it again"):
        await analyzer.staging.finish_delivery(manifest.task_digest)
    assert ([], False) == await analyzer.staging.begin(manifest, 2)
    await analyzer.deliver_parts(manifest, sealed)
    await analyzer.settle()

    assert _USERS == (await analyzer.result()).n_users


async def test_a_worker_that_mounts_other_blocks_does_not_make_a_batch_unusable(
    analyzer: AnalyzerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator reads the part itself; the batch is staged once the worker is right."""
    sealed, run = analyzer.sealed(5), analyzer.executor.run

    async def misplaced(stage: Any, job: Any, parts: Any) -> list[Any]:
        other = replace(job, blocks=FolderBlocks(analyzer.path / "elsewhere"))
        return await run(stage, other, parts)

    monkeypatch.setattr(analyzer.executor, "run", misplaced)
    with pytest.raises(DamagedStorageError, match="a worker cannot read a part"):
        await analyzer.deliver_parts(analyzer.manifest(5), sealed)
    monkeypatch.undo()
    assert ([0, 1], False) == await analyzer.staging.begin(analyzer.manifest(5), 2)
    await analyzer.staging.finish_delivery(analyzer.signed.digest())
    await analyzer.settle()

    assert 5 == (await analyzer.result()).n_users


async def test_a_start_erases_what_no_batch_needs(analyzer: AnalyzerCore) -> None:
    """Blocks and keys of released and of unknown batches; others are kept."""
    staged, stray = await analyzer.publish(), BatchId(b"?" * 16)
    await analyzer.stage(analyzer.manifest(_USERS), staged)
    released = await analyzer.publish()
    await analyzer.release(_USERS, released)
    for batch_id in (BatchId(released.digest()[:16]), stray):
        analyzer.blocks.open(batch_id).put("arrived/0", b"reports")
    other = analyzer.path / "blocks" / "not a batch"
    other.mkdir()
    await analyzer.staging.sweep()

    assert ["batch-" + BATCH.hex() + ".key"] == analyzer.state.names("batch-*.key")
    assert {BATCH.hex(), other.name} == {path.name for path in other.parent.iterdir()}


async def test_a_batch_always_gets_the_same_commitment(analyzer: AnalyzerCore) -> None:
    """The commitment covers all reports, also after the release and a restart."""
    sealed = analyzer.sealed(5)
    leaves = leaves_of(b"".join(sealed), analyzer.task.sealed_report_bytes)
    answers: list[BatchCommitment] = []
    for _ in range(2):
        answers.append(await analyzer.deliver_parts(analyzer.manifest(5), sealed))
        await analyzer.settle()
    await analyzer.restart()
    answers.append(await analyzer.deliver_parts(analyzer.manifest(5), sealed[::-1]))

    [first] = set(answers)
    identity = analyzer.keys.identity
    first.verify(identity.public_identity(), analyzer.signed.digest(), 10)
    assert 3 == len(answers)
    assert 10 == first.n_leaves
    wanted = commitment_over(
        split_every(leaves, 32), identity, analyzer.signed.digest(), first.salt
    )
    assert wanted.root == first.root
