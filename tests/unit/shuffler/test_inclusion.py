import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path, PosixPath

import pytest

from common.crypto.hpke import split_every
from common.errors import DamagedStorageError, ProofError, WireError
from common.messages.batch import BatchManifest, BatchState
from common.messages.inclusion_proof import BatchCommitment, InclusionProof, leaf, leaves_of, salted
from common.task.dummy_spec import ShufflerSpec
from common.task_digest import TaskDigest
from common.wire.batches import commitment_to_wire, prefix_to_wire, proof_from_wire
from shuffler.admission import ConnectionLimit
from shuffler.inclusion import SentBatch
from shuffler.receipts import Receipts
from shuffler.servicer import ShufflerServicer
from tests.support.leaves import SALT, commitment_over, some_leaves
from tests.support.shuffler_core import CASE, DIGEST, Shuffler
from tests.support.tasks import SHUFFLER_NOISE, published

_SIZE = CASE.task.sealed_report_bytes
_ANALYZER = CASE.identity.public_identity()
_SAMPLED = published(
    **SHUFFLER_NOISE,
    n_min=5,
    target_size=20,
    shuffler=ShufflerSpec(law="binomial", keep_weight=2**31, trials=40, most=40),
)


@pytest.fixture
async def delivered(shuffler: Shuffler) -> Shuffler:
    """A shuffler that has delivered a batch of ten reports."""
    await shuffler.submit(5)
    await shuffler.advance()
    assert BatchState.ERASED is await shuffler.state()
    return shuffler


def _file(shuffler: Shuffler, kind: str) -> Path:
    return shuffler.path / "inclusion" / f"{DIGEST.hex()}.{kind}"


def _delivered(shuffler: Shuffler) -> list[bytes]:
    return split_every(shuffler.analyzer.delivered[0][1], _SIZE)


async def _proof(shuffler: Shuffler, own: bytes) -> InclusionProof:
    commitment, _ = await shuffler.inclusions.relay(DIGEST, None)
    assert isinstance(commitment, BatchCommitment)
    proof, _ = await shuffler.inclusions.relay(DIGEST, commitment.prefix_of(own))
    assert isinstance(proof, InclusionProof)
    return proof


async def test_delivered_reports_can_be_proven_after_the_batch_is_erased(
    delivered: Shuffler,
) -> None:
    """A restart changes nothing; other reports cannot be proven, and leaves are stored sorted."""
    await delivered.restart()

    for report in _delivered(delivered):
        proof = await _proof(delivered, leaf(report))
        assert proof.includes(leaf(report), _ANALYZER, DIGEST)
    standing = [salted(SALT, leaf(report)) for report in _delivered(delivered)]
    assert b"".join(sorted(standing)) == _file(delivered, "leaves").read_bytes()
    other = leaf(bytes(_SIZE))
    assert not (await _proof(delivered, other)).includes(other, _ANALYZER, DIGEST)


async def test_a_commitment_to_other_reports_is_kept_as_evidence(
    shuffler: Shuffler, caplog: pytest.LogCaptureFixture
) -> None:
    """The mismatch is logged; the batch counts as delivered."""
    await shuffler.submit(5)
    shuffler.analyzer.forget = 1
    await shuffler.advance()

    assert "analyzer signed other reports than were sent" in caplog.messages
    assert BatchState.ERASED is await shuffler.state()
    commitment, _ = await shuffler.inclusions.relay(DIGEST, None)
    assert isinstance(commitment, BatchCommitment)
    assert 9 == commitment.n_leaves


@pytest.mark.parametrize("listen", [False, True])
async def test_a_repeated_delivery_raises_no_alarm(
    shuffler: Shuffler, caplog: pytest.LogCaptureFixture, *, listen: bool
) -> None:
    """The analyzer may read the reports again or not."""
    await shuffler.submit(5)
    shuffler.analyzer.lose_answers = True
    await shuffler.advance()
    shuffler.analyzer.lose_answers, shuffler.analyzer.listen = False, listen
    await shuffler.advance()

    assert not [message for message in caplog.messages if message.startswith("analyzer")]
    assert BatchState.ERASED is await shuffler.state()


async def test_invalid_requests_for_proofs_are_refused(shuffler: Shuffler) -> None:
    """Requests come before the delivery, for an unknown task, or for a bucket beyond the last."""
    await shuffler.submit(1)
    for digest in (DIGEST, TaskDigest(bytes(32))):
        with pytest.raises(ProofError, match="has not been delivered"):
            await shuffler.inclusions.relay(digest, None)
    await shuffler.submit(4)
    await shuffler.advance()
    with pytest.raises(WireError, match="the prefix is 1; there are 1 buckets"):
        await shuffler.inclusions.relay(DIGEST, 1)


@pytest.mark.parametrize("forget", [0, 1])
async def test_no_proof_is_kept_for_a_task_that_samples(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, forget: int
) -> None:
    """Which reports were kept is secret; the commitment is compared all the same."""
    shuffler = Shuffler(tmp_path, _SAMPLED)
    await shuffler.start()
    await shuffler.submit(20)
    shuffler.analyzer.forget = forget
    shuffler.clock.seconds = float(_SAMPLED.task.deadline)
    await shuffler.advance()

    assert BatchState.ERASED is await shuffler.state()
    assert forget == caplog.messages.count("analyzer signed other reports than were sent")
    assert [] == list((tmp_path / "inclusion").iterdir())
    with pytest.raises(ProofError, match="or the task samples"):
        await shuffler.inclusions.relay(_SAMPLED.signed.digest(), None)
    shuffler.store.close()


async def test_a_commitment_without_a_salt_is_not_served(delivered: Shuffler) -> None:
    """An earlier version stored it; it is deleted like any other."""
    commitment, _ = await delivered.inclusions.relay(DIGEST, None)
    assert isinstance(commitment, BatchCommitment)
    message = commitment_to_wire(commitment)
    message.ClearField("salt")
    kept = _file(delivered, "commitment")
    kept.write_bytes(kept.read_bytes()[:8] + message.SerializeToString())
    await delivered.restart()

    with pytest.raises(ProofError, match="was delivered without a salt"):
        await delivered.inclusions.relay(DIGEST, None)
    delivered.clock.seconds = float(CASE.task.deadline + 1001)
    delivered.inclusions.delete_expired()
    assert [] == list((delivered.path / "inclusion").iterdir())


async def test_a_commitment_by_another_signer_is_not_kept(
    shuffler: Shuffler, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the pinned analyzer's commitment is kept."""
    await shuffler.submit(5)
    shuffler.analyzer.become_a_stranger()
    await shuffler.advance()

    assert "analyzer's commitment does not verify" in caplog.messages
    with pytest.raises(ProofError):
        await shuffler.inclusions.relay(DIGEST, None)


class _Stopped(BaseException):
    """The process ends here."""


class _Crashing(PosixPath):
    """A path that deletes `left` files below it, then crashes."""

    left = 0

    def unlink(self, missing_ok: bool = False) -> None:  # noqa: FBT001, FBT002  # as the real one
        """Delete a file, or crash."""
        if not _Crashing.left:
            raise _Stopped
        _Crashing.left -= 1
        super().unlink(missing_ok)


@pytest.mark.parametrize("deletions", [0, 1, 2])
async def test_expired_proofs_are_deleted_despite_crashes(
    delivered: Shuffler, deletions: int
) -> None:
    """They expire 1000 seconds after the deadline; crashes come around the two deletions."""
    delivered.clock.seconds = float(CASE.task.deadline + 1000)
    delivered.inclusions.delete_expired()
    await delivered.inclusions.relay(DIGEST, None)
    delivered.clock.seconds += 1
    folder, _Crashing.left = delivered.path / "inclusion", deletions
    delivered.inclusions._directory = _Crashing(folder)
    with suppress(_Stopped):
        delivered.inclusions.delete_expired()
    assert 2 - deletions == len(list(folder.iterdir()))

    # Without a start between, whose sweep would hide it.
    delivered.inclusions._directory = folder
    delivered.inclusions.delete_expired()
    assert [] == list(folder.iterdir())


async def test_a_start_deletes_unfinished_files(delivered: Shuffler) -> None:
    """Leaves without a commitment and temporary files go; unknown files stay."""
    folder, other = delivered.path / "inclusion", "ab" * 32
    whole = sorted(folder.iterdir())
    left = [f"{other}.leaves", f".{other}.leaves.17", f".{other}.commitment.17"]
    strangers = ["backup.leaves", f"{other}.leaves.old", ".hidden"]
    for name in (*left, *strangers):
        (folder / name).write_bytes(bytes(32))
    await delivered.restart()

    assert sorted([*whole, *(folder / name for name in strangers)]) == sorted(folder.iterdir())
    await _proof(delivered, bytes(32))


async def test_all_answers_for_a_batch_have_one_length(
    shuffler: Shuffler, caplog: pytest.LogCaptureFixture
) -> None:
    """Ciphertext lengths do not reveal which bucket was requested. No request is logged."""
    caplog.set_level(logging.DEBUG)
    leaves = some_leaves(2000)
    commitment = commitment_over(leaves, CASE.identity, DIGEST)
    manifest = BatchManifest(
        task_digest=DIGEST, batch_id=commitment.batch_id, n_users=1000, n_reports=2000
    )
    await shuffler.inclusions.keep(manifest, CASE.task, commitment, bytearray(b"".join(leaves)))
    servicer = ShufflerServicer(
        shuffler.collection, ConnectionLimit(0), Receipts(CASE.identity), shuffler.inclusions
    )
    answers = [
        await servicer.GetInclusion(prefix_to_wire(DIGEST, prefix), None)
        for prefix in range(1 << commitment.bits)
    ]
    await servicer.GetInclusion(prefix_to_wire(DIGEST, None), None)

    assert [] == caplog.records
    assert 4 == len(answers) == len({len(proof_from_wire(answer).bucket) for answer in answers})
    assert 1 == len({len(answer.SerializeToString()) for answer in answers})
    # Room for the fullest and no more: nobody pays for emptiness.
    fullest = max(len(proof_from_wire(answer).bucket) for answer in answers)
    assert {fullest + 4} == {len(answer.bucket) for answer in answers}


@pytest.mark.parametrize(
    ("kind", "content"),
    [("leaves", b""), ("leaves", bytes(33)), ("commitment", b""), ("commitment", b"\xff" * 90)],
)
async def test_a_damaged_proof_is_a_storage_error(
    delivered: Shuffler, kind: str, content: bytes
) -> None:
    """The caller is not blamed."""
    _file(delivered, kind).write_bytes(content)

    with pytest.raises(DamagedStorageError, match="proof is damaged"):
        await delivered.inclusions.relay(DIGEST, None)


async def test_leaves_that_are_read_again_start_from_scratch() -> None:
    """An earlier call may still be reading its chunks."""
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
