import logging
from pathlib import Path

import numpy as np
import pytest

from shuffledp.audit.harness.party_cores import InlineExecutor
from shuffledp.common.crypto.batch_key import BatchKey
from shuffledp.common.crypto.hpke import split_every
from shuffledp.common.crypto.key_ring import DAY
from shuffledp.common.errors import DamagedStorageError, ProofError, WireError
from shuffledp.common.messages.batch import BatchId, BatchManifest, BatchState
from shuffledp.common.messages.inclusion_proof import BatchCommitment, InclusionProof, leaf, salted
from shuffledp.common.runtime.blocks import SealedBlocks
from shuffledp.common.task.shuffler_spec import BinomialNoise, ShufflerSpec
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire.batches import prefix_to_wire, proof_from_wire
from shuffledp.shuffler.inclusion import ProofJob, proof_folder
from shuffledp.shuffler.servicer import ShufflerServicer
from tests.support.leaves import SALT, GrownTree, commitment_over
from tests.support.shuffler_core import CASE, DIGEST, Shuffler
from tests.support.tasks import SHUFFLER_NOISE, published

_SIZE = CASE.task.sealed_report_bytes
_ANALYZER = CASE.identity.public_identity()
_SAMPLED = published(
    **SHUFFLER_NOISE,
    n_min=5,
    target_size=20,
    shuffler=ShufflerSpec(keep_weight=2**31, noise=BinomialNoise(trials=40)),
)


@pytest.fixture
async def delivered(shuffler: Shuffler) -> Shuffler:
    """A shuffler that has delivered a batch of ten reports."""
    await shuffler.submit(5)
    await shuffler.advance()
    assert BatchState.ERASED is await shuffler.batch_state()
    return shuffler


def _file(shuffler: Shuffler, kind: str) -> Path:
    return shuffler.path / "blocks" / f"proof-{DIGEST.hex()}" / kind


def _folders(shuffler: Shuffler) -> list[Path]:
    return list((shuffler.path / "blocks").glob("*"))


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
        assert proof.includes(leaf(report), _ANALYZER, DIGEST, 10**6)
    salt = proof.commitment.salt
    standing = [salted(salt, leaf(report)) for report in _delivered(delivered)]
    assert b"".join(sorted(standing)) == _file(delivered, "leaves.0").read_bytes()
    other = leaf(bytes(_SIZE))
    assert not (await _proof(delivered, other)).includes(other, _ANALYZER, DIGEST, 10**6)


async def test_a_commitment_to_other_reports_is_kept_as_evidence(
    shuffler: Shuffler, caplog: pytest.LogCaptureFixture
) -> None:
    """The mismatch is logged; the batch counts as delivered."""
    await shuffler.submit(5)
    shuffler.analyzer.forget = 1
    await shuffler.advance()

    assert "analyzer signed other reports than were sent" in caplog.messages
    assert BatchState.ERASED is await shuffler.batch_state()
    commitment, _ = await shuffler.inclusions.relay(DIGEST, None)
    assert isinstance(commitment, BatchCommitment)
    assert 9 == commitment.n_leaves


async def test_a_lost_answer_raises_no_alarm(
    shuffler: Shuffler, caplog: pytest.LogCaptureFixture
) -> None:
    """The analyzer has staged the batch and answers again."""
    await shuffler.submit(5)
    shuffler.analyzer.lose_answers = True
    await shuffler.advance()
    shuffler.analyzer.lose_answers = False
    await shuffler.advance()

    assert not [message for message in caplog.messages if message.startswith("analyzer")]
    assert BatchState.ERASED is await shuffler.batch_state()


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

    assert BatchState.ERASED is await shuffler.batch_state()
    assert forget == caplog.messages.count("analyzer signed other reports than were sent")
    assert [] == _folders(shuffler)
    with pytest.raises(ProofError, match="or the task samples"):
        await shuffler.inclusions.relay(_SAMPLED.signed.digest(), None)
    shuffler.store.close()


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


async def test_expired_proofs_are_deleted(delivered: Shuffler) -> None:
    """They expire 30 days after the deadline."""
    delivered.clock.seconds = float(CASE.task.deadline + 30 * DAY)
    delivered.inclusions.delete_expired()
    await delivered.inclusions.relay(DIGEST, None)
    delivered.clock.seconds += 1
    delivered.inclusions.delete_expired()

    assert [] == _folders(delivered)
    with pytest.raises(ProofError, match="has expired"):
        await delivered.inclusions.relay(DIGEST, None)


async def test_a_start_deletes_incomplete_proofs(delivered: Shuffler) -> None:
    """A crash left leaves without a commitment; while the service runs, they may be under way."""
    incomplete = delivered.path / "blocks" / ("proof-" + "ab" * 32)
    other = delivered.path / "blocks" / "backup"
    for folder in (incomplete, other):
        folder.mkdir()
        (folder / "leaves.0").write_bytes(bytes(32))
    delivered.inclusions.delete_expired()
    assert incomplete.exists()
    await delivered.restart()

    assert not incomplete.exists()
    assert other.exists()
    await _proof(delivered, bytes(32))


async def _keep(
    shuffler: Shuffler, reports: list[bytes], commitment: BatchCommitment, n_ranges: int = 2
) -> None:
    """Keep the proof of a batch whose permuted reports are stored in three parts."""
    blocks = SealedBlocks(shuffler.blocks, bytes(16).hex(), BatchKey(bytes(32)))
    for part in range(3):
        blocks.put(f"permuted/{part}", b"".join(reports[part::3]))
    job = ProofJob(
        batch_id=BatchId(bytes(16)),
        key=bytes(32),
        blocks=shuffler.blocks,
        proof_folder=proof_folder(DIGEST),
        report_bytes=_SIZE,
        salt=SALT,
        n_parts=3,
        n_ranges=n_ranges,
    )
    manifest = BatchManifest(
        task_digest=DIGEST, batch_id=commitment.batch_id, n_users=1000, n_reports=len(reports)
    )
    await shuffler.inclusions.keep(
        manifest,
        CASE.task,
        commitment,
        job,
        executor=InlineExecutor(),
        receiver=shuffler.deliveries.receiver(CASE.task),
    )


@pytest.mark.parametrize(
    ("n_reports", "n_ranges"), [(2000, 1), (2000, 2), (2000, 4), (600, 16), (200, 4)]
)
async def test_every_report_is_proven_however_the_tree_is_divided(
    shuffler: Shuffler, n_reports: int, n_ranges: int
) -> None:
    """The root is the whole tree's, even if a bucket has several ranges; copies count once."""
    reports = split_every(np.random.default_rng(5).bytes(n_reports * _SIZE), _SIZE)
    leaves = list(map(leaf, reports))
    commitment = commitment_over(leaves, CASE.identity, DIGEST)
    await _keep(shuffler, [*reports, *reports[:7]], commitment, n_ranges)

    for own in leaves[::20]:
        assert (await _proof(shuffler, own)).includes(own, _ANALYZER, DIGEST, 10**6)
    _, largest = await shuffler.inclusions.relay(DIGEST, None)
    assert GrownTree(leaves).largest_bucket == largest


async def test_all_answers_for_a_batch_have_one_length(
    shuffler: Shuffler, caplog: pytest.LogCaptureFixture
) -> None:
    """Ciphertext lengths do not reveal which bucket was requested. No request is logged."""
    caplog.set_level(logging.DEBUG)
    reports = split_every(np.random.default_rng(6).bytes(2000 * _SIZE), _SIZE)
    commitment = commitment_over(list(map(leaf, reports)), CASE.identity, DIGEST)
    await _keep(shuffler, reports, commitment)
    servicer = ShufflerServicer(shuffler)
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
    [("buckets", b""), ("buckets", bytes(35)), ("commitment", b""), ("commitment", b"\xff" * 90)],
)
async def test_a_damaged_proof_is_a_storage_error(
    delivered: Shuffler, kind: str, content: bytes
) -> None:
    """The caller is not blamed."""
    _file(delivered, kind).write_bytes(content)

    with pytest.raises(DamagedStorageError, match="proof is damaged"):
        await delivered.inclusions.relay(DIGEST, None)
