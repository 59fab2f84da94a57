import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path, PosixPath

import pytest

from common.crypto.merkle import Tree, leaf, leaves_of, salted
from common.crypto.signing import SigningIdentity
from common.errors import DamagedStorageError, ProofError, WireError
from common.messages.batch import BatchManifest, BatchState
from common.messages.inclusion_proof import BatchCommitment, InclusionProof
from common.task.shuffler_spec import ShufflerSpec
from common.task_digest import TaskDigest
from common.wire.evidence import commitment_to_wire, prefix_to_wire, proof_from_wire
from shuffler import inclusion
from shuffler.inclusion import InclusionProofs, SentBatch
from shuffler.servicer import ConnectionCount, Receipts, ShufflerServicer
from tests.support.leaves import SALT, commitment_over, some_leaves
from tests.support.shuffler_core import CASE, DIGEST, Shuffler
from tests.support.tasks import published

_SIZE = CASE.task.sealed_report_bytes
_ANALYZER = CASE.identity.public_identity()
_SAMPLED = published(
    protocol="sbin",
    buckets=0,
    dummies_per_user=0,
    local_epsilon=float("inf"),
    n_min=5,
    target_size=20,
    shuffler=ShufflerSpec(law="binomial", keep_weight=2**31, trials=40, most=40),
)


def _delivered(shuffler: Shuffler) -> list[bytes]:
    blob = shuffler.analyzer.delivered[0][1]
    return [blob[start : start + _SIZE] for start in range(0, len(blob), _SIZE)]


async def _proof(shuffler: Shuffler, own: bytes) -> InclusionProof:
    commitment, _ = await shuffler.inclusions.relay(DIGEST, None)
    assert isinstance(commitment, BatchCommitment)
    proof, _ = await shuffler.inclusions.relay(DIGEST, commitment.prefix_of(own))
    assert isinstance(proof, InclusionProof)
    return proof


async def test_whatever_was_delivered_can_be_proven_after_the_batch_is_erased(
    shuffler: Shuffler,
) -> None:
    """The key is gone; sorted hashes are left, also after a restart."""
    await shuffler.submit(5)
    await shuffler.deliveries.advance()
    assert BatchState.ERASED is await shuffler.state()
    shuffler.spool.close()
    await shuffler.start()

    for report in _delivered(shuffler):
        proof = await _proof(shuffler, leaf(report))
        assert proof.holds(leaf(report), _ANALYZER, DIGEST)
    other = leaf(bytes(_SIZE))
    assert not (await _proof(shuffler, other)).holds(other, _ANALYZER, DIGEST)


async def test_what_is_kept_tells_nothing_of_the_order(shuffler: Shuffler) -> None:
    """The leaves stand sorted, whatever the order of delivery was."""
    await shuffler.submit(5)
    await shuffler.deliveries.advance()
    kept = (shuffler.path / "inclusion" / f"{DIGEST.hex()}.leaves").read_bytes()

    standing = [salted(SALT, leaf(report)) for report in _delivered(shuffler)]
    assert b"".join(sorted(standing)) == kept


async def test_nothing_is_proven_before_the_delivery(shuffler: Shuffler) -> None:
    """Nor for a task that nobody knows."""
    await shuffler.submit(1)
    for digest in (DIGEST, TaskDigest(bytes(32))):
        with pytest.raises(ProofError, match="has not been delivered"):
            await shuffler.inclusions.relay(digest, None)


async def test_a_bucket_that_is_not_there_is_refused(shuffler: Shuffler) -> None:
    """Ten reports have one."""
    await shuffler.submit(5)
    await shuffler.deliveries.advance()

    with pytest.raises(WireError, match="the prefix is 1; there are 1 buckets"):
        await shuffler.inclusions.relay(DIGEST, 1)


async def test_an_analyzer_that_denies_reports_is_noticed(
    shuffler: Shuffler, caplog: pytest.LogCaptureFixture
) -> None:
    """Its signature over something else is kept as evidence; the batch is delivered."""
    await shuffler.submit(5)
    shuffler.analyzer.forget = 1
    await shuffler.deliveries.advance()

    assert "analyzer signed other reports than were sent" in caplog.messages
    assert BatchState.ERASED is await shuffler.state()
    commitment, _ = await shuffler.inclusions.relay(DIGEST, None)
    assert isinstance(commitment, BatchCommitment)
    assert 9 == commitment.n_leaves


async def test_an_honest_analyzer_raises_no_alarm(
    shuffler: Shuffler, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does a delivery that has to be made twice, since its answer was lost."""
    await shuffler.submit(5)
    shuffler.analyzer.lose_answers = True
    await shuffler.deliveries.advance()
    shuffler.analyzer.lose_answers = False
    await shuffler.deliveries.advance()

    assert not [message for message in caplog.messages if message.startswith("analyzer")]
    assert BatchState.ERASED is await shuffler.state()


async def test_an_analyzer_that_answers_before_the_end_is_no_alarm(
    shuffler: Shuffler, caplog: pytest.LogCaptureFixture
) -> None:
    """It has the batch already and does not listen: the leaves are taken from the batch again."""
    await shuffler.submit(5)
    shuffler.analyzer.lose_answers = True
    await shuffler.deliveries.advance()
    shuffler.analyzer.lose_answers, shuffler.analyzer.listen = False, False
    await shuffler.deliveries.advance()

    assert not [message for message in caplog.messages if message.startswith("analyzer")]
    assert BatchState.ERASED is await shuffler.state()


@pytest.mark.parametrize("forget", [0, 1])
async def test_where_the_shuffler_samples_it_keeps_no_proof(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, forget: int
) -> None:
    """Whether a report is there is a secret; what the analyzer signed is compared all the same."""
    shuffler = Shuffler(tmp_path, _SAMPLED)
    await shuffler.start()
    await shuffler.submit(20)
    shuffler.analyzer.forget = forget
    shuffler.clock.seconds = float(_SAMPLED.task.deadline)
    await shuffler.deliveries.advance()

    assert BatchState.ERASED is await shuffler.state()
    assert forget == caplog.messages.count("analyzer signed other reports than were sent")
    assert [] == list((tmp_path / "inclusion").iterdir())
    with pytest.raises(ProofError, match="or the task samples"):
        await shuffler.inclusions.relay(_SAMPLED.signed.digest(), None)
    shuffler.spool.close()


async def test_what_an_earlier_version_kept_is_not_shown(shuffler: Shuffler) -> None:
    """A commitment without a salt: no device would take it. It is deleted like any other."""
    await shuffler.submit(5)
    await shuffler.deliveries.advance()
    commitment, _ = await shuffler.inclusions.relay(DIGEST, None)
    assert isinstance(commitment, BatchCommitment)
    message = commitment_to_wire(commitment)
    message.ClearField("salt")
    kept = shuffler.path / "inclusion" / f"{DIGEST.hex()}.commitment"
    kept.write_bytes(kept.read_bytes()[:8] + message.SerializeToString())
    shuffler.spool.close()
    await shuffler.start()

    with pytest.raises(ProofError, match="was delivered without a salt"):
        await shuffler.inclusions.relay(DIGEST, None)
    shuffler.clock.seconds = float(CASE.task.deadline + 1001)
    shuffler.inclusions.delete_expired()
    assert [] == list((shuffler.path / "inclusion").iterdir())


async def test_a_strangers_commitment_is_not_kept(
    shuffler: Shuffler, caplog: pytest.LogCaptureFixture
) -> None:
    """Who is not the pinned analyzer commits to nothing."""
    await shuffler.submit(5)
    shuffler.analyzer.become_a_stranger()
    await shuffler.deliveries.advance()

    assert "analyzer's commitment does not verify" in caplog.messages
    with pytest.raises(ProofError):
        await shuffler.inclusions.relay(DIGEST, None)


async def test_proofs_are_deleted_after_a_while(shuffler: Shuffler) -> None:
    """A thousand seconds after the deadline here."""
    await shuffler.submit(5)
    await shuffler.deliveries.advance()
    shuffler.clock.seconds = float(CASE.task.deadline + 1000)
    shuffler.inclusions.delete_expired()
    await shuffler.inclusions.relay(DIGEST, None)

    shuffler.clock.seconds += 1
    shuffler.inclusions.delete_expired()
    with pytest.raises(ProofError):
        await shuffler.inclusions.relay(DIGEST, None)
    assert [] == list((shuffler.path / "inclusion").iterdir())


class _Stopped(BaseException):
    """Where the process would have ended."""


class _Crashing(PosixPath):
    """A path, and all below it, that deletes so many files and no more."""

    left = 0

    def unlink(self, missing_ok: bool = False) -> None:  # noqa: FBT001, FBT002  # as the real one
        """Delete a file, or crash."""
        if not _Crashing.left:
            raise _Stopped
        _Crashing.left -= 1
        super().unlink(missing_ok)


@pytest.mark.parametrize("deletions", [0, 1, 2])
async def test_a_crash_while_forgetting_leaves_nothing_for_ever(
    shuffler: Shuffler, deletions: int
) -> None:
    """Before, between and after the two files; what the crash left is deleted at the next look."""
    await shuffler.submit(5)
    await shuffler.deliveries.advance()
    shuffler.clock.seconds = float(CASE.task.deadline + 1001)
    folder, _Crashing.left = shuffler.path / "inclusion", deletions
    shuffler.inclusions._directory = _Crashing(folder)
    with suppress(_Stopped):
        shuffler.inclusions.delete_expired()
    assert 2 - deletions == len(list(folder.iterdir()))

    # Without a start between, whose sweep would hide it.
    shuffler.inclusions._directory = folder
    shuffler.inclusions.delete_expired()
    assert [] == list(folder.iterdir())


async def test_a_start_deletes_what_a_crash_left_half_written(shuffler: Shuffler) -> None:
    """Leaves without a commitment, and unfinished files; what is whole, or a stranger's, stays."""
    await shuffler.submit(5)
    await shuffler.deliveries.advance()
    folder, other = shuffler.path / "inclusion", "ab" * 32
    whole = sorted(folder.iterdir())
    left = [f"{other}.leaves", f".{other}.leaves.17", f".{other}.commitment.17"]
    strangers = ["backup.leaves", f"{other}.leaves.old", ".hidden"]
    for name in (*left, *strangers):
        (folder / name).write_bytes(bytes(32))
    shuffler.spool.close()
    await shuffler.start()

    assert sorted([*whole, *(folder / name for name in strangers)]) == sorted(folder.iterdir())
    await _proof(shuffler, bytes(32))


async def test_every_answer_of_a_batch_has_one_length(shuffler: Shuffler) -> None:
    """
    Whoever sees ciphertexts alone does not learn which bucket was asked for: from the request to
    the answer's bytes, over a batch of buckets of different sizes.
    """
    leaves = some_leaves(2000)
    commitment = commitment_over(leaves, CASE.identity, DIGEST)
    manifest = BatchManifest(
        task_digest=DIGEST, batch_id=commitment.batch_id, n_users=1000, n_reports=2000
    )
    await shuffler.inclusions.keep(manifest, CASE.task, commitment, bytearray(b"".join(leaves)))
    servicer = ShufflerServicer(
        shuffler.collection,
        ConnectionCount(0),
        Receipts(SigningIdentity.generate()),
        shuffler.inclusions,
    )
    answers = [
        await servicer.GetInclusion(prefix_to_wire(DIGEST, prefix), None)
        for prefix in range(1 << commitment.bits)
    ]

    assert 4 == len(answers) == len({len(proof_from_wire(answer).bucket) for answer in answers})
    assert 1 == len({len(answer.SerializeToString()) for answer in answers})
    # Room for the fullest and no more: nobody pays for emptiness.
    fullest = max(len(proof_from_wire(answer).bucket) for answer in answers)
    assert {fullest + 4} == {len(answer.bucket) for answer in answers}


async def _keep(inclusions: InclusionProofs, number: int) -> TaskDigest:
    """Keep a batch of eight buckets for the task of a number."""
    digest, leaves = TaskDigest(number.to_bytes(32)), some_leaves(2100)
    commitment = commitment_over(leaves, CASE.identity, digest)
    manifest = BatchManifest(
        task_digest=digest, batch_id=commitment.batch_id, n_users=1050, n_reports=2100
    )
    await inclusions.keep(manifest, CASE.task, commitment, bytearray(b"".join(leaves)))
    return digest


async def test_a_proof_that_is_held_waits_for_no_other(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has to be read, a large one, may take seconds."""
    held, other = [await _keep(shuffler.inclusions, number) for number in range(2)]
    await shuffler.inclusions.relay(held, 0)
    load, going_on = shuffler.inclusions._load, threading.Event()

    def slow(digest: TaskDigest) -> tuple[BatchCommitment, Tree]:
        going_on.wait(10)
        return load(digest)

    monkeypatch.setattr(shuffler.inclusions, "_load", slow)
    reading = asyncio.create_task(shuffler.inclusions.relay(other, 0))
    await asyncio.sleep(0.01)
    async with asyncio.timeout(5):
        await shuffler.inclusions.relay(held, 0)
    assert not reading.done()
    going_on.set()
    await reading


async def test_proofs_are_held_as_far_as_there_is_room(
    shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was asked for longest ago goes first, and the last one stays."""
    monkeypatch.setattr(inclusion, "_MAX_BUCKETS_HELD", 16)
    digests = [await _keep(shuffler.inclusions, number) for number in range(3)]
    for number in (0, 1, 0, 2):
        await shuffler.inclusions.relay(digests[number], 0)
    assert [digests[0], digests[2]] == list(shuffler.inclusions._trees)
    monkeypatch.setattr(inclusion, "_MAX_BUCKETS_HELD", 1)
    await shuffler.inclusions.relay(digests[1], 0)
    assert [digests[1]] == list(shuffler.inclusions._trees)


@pytest.mark.parametrize(
    ("kind", "content"),
    [("leaves", b""), ("leaves", bytes(33)), ("commitment", b""), ("commitment", b"\xff" * 90)],
)
async def test_a_damaged_proof_is_the_shufflers_own_failure(
    shuffler: Shuffler, kind: str, content: bytes
) -> None:
    """Half a leaf, none, or what is no commitment: whoever asks is not to blame."""
    await shuffler.submit(5)
    await shuffler.deliveries.advance()
    (shuffler.path / "inclusion" / f"{DIGEST.hex()}.{kind}").write_bytes(content)

    with pytest.raises(DamagedStorageError, match="proof is damaged"):
        await shuffler.inclusions.relay(DIGEST, None)


async def test_a_file_that_was_put_beside_the_proofs_stays(shuffler: Shuffler) -> None:
    """It stops nobody from forgetting what has been kept for long enough."""
    stranger = shuffler.path / "inclusion" / "backup.commitment"
    stranger.write_bytes(bytes(8))
    shuffler.inclusions.delete_expired()

    assert stranger.exists()


async def test_leaves_read_again_are_not_mixed_with_those_that_still_pass() -> None:
    """A call that was answered early may go on reading while its chunks are read once more."""
    reports = [bytes([number]) * 4 for number in range(6)]

    async def chunks() -> AsyncIterator[bytes]:
        for report in reports:
            yield report

    sent = SentBatch(4)
    late = sent.record(chunks())
    await anext(late)

    async def again() -> AsyncIterator[bytes]:
        async for report in chunks():
            await anext(late, b"")
            yield report

    assert leaves_of(b"".join(reports), 4) == await sent.leaves(6, again())
    with pytest.raises(DamagedStorageError, match="had 7 reports; 6 are on the disk"):
        await SentBatch(4).leaves(7, chunks())
