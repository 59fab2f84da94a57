from dataclasses import replace

import pytest

from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import WireError
from shuffledp.common.messages import batch
from shuffledp.common.messages.inclusion_proof import leaf, prefix_of
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire import batches
from shuffledp.common.wire.fields import MAX_MESSAGE_BYTES
from shuffledp.protos.shuffledp.v1 import analyzer_pb2, shuffler_pb2
from tests.support.leaves import GrownTree, commitment_over, some_leaves

_MANIFEST = batch.BatchManifest(
    task_digest=TaskDigest(b"d" * 32),
    batch_id=batch.BatchId(b"b" * 16),
    n_users=3,
    n_reports=6,
    n_discarded=2,
)


@pytest.mark.parametrize("state", batch.BatchState)
def test_a_batchs_state_is_read_back_as_it_was_written(state: batch.BatchState) -> None:
    """For devices and for the shuffler's operator; an unknown state is refused."""
    with pytest.raises(WireError, match="batch state 0 is unknown to this program"):
        batches.status_from_wire(shuffler_pb2.GetBatchStatusResponse())
    status = batch.BatchStatus(state=state, n_users=5, n_min=2, shuffle_seconds=0.5, reason="a é")
    progress = batch.BatchProgress(
        state=state,
        n_users=5,
        n_min=2,
        target_size=9,
        deadline=2**31,
        refused={"conflict": 3},
        repeated=4,
    )

    assert status == batches.status_from_wire(batches.status_to_wire(status))
    assert progress == batches.progress_from_wire(batches.progress_to_wire(progress))


_PART = batch.BatchPart(
    task_digest=TaskDigest(b"d" * 32), part=7, n_reports=6, content_hash=bytes(range(32))
)


def test_a_delivery_is_announced_and_answered() -> None:
    """With its number of parts; the answer names those that have arrived."""
    announced = batches.delivery_to_wire(_MANIFEST, batch.MAX_PARTS)

    assert (_MANIFEST, batch.MAX_PARTS) == batches.delivery_from_wire(announced)
    for n_parts in (0, batch.MAX_PARTS + 1):
        wrong = batches.delivery_to_wire(_MANIFEST, n_parts)
        with pytest.raises(WireError, match=f"n_parts is {n_parts}; it must lie between 1 and"):
            batches.delivery_from_wire(wrong)
    for arrived, staged in (([], False), ([0, batch.MAX_PARTS - 1], False), ([0, 1], True)):
        answer = analyzer_pb2.BeginDeliveryResponse(arrived=arrived, staged=staged)
        assert (set(arrived), staged) == batches.arrived_from_wire(answer)


def _chunk(reports: bytes) -> analyzer_pb2.DeliverPartRequest:
    return analyzer_pb2.DeliverPartRequest(sealed_reports=reports)


def test_a_part_is_a_header_followed_by_reports() -> None:
    """The two kinds of message cannot be swapped."""
    header, chunk = batches.part_to_wire(_PART), _chunk(b"chunk")

    assert _PART == batches.part_from_wire(header)
    assert b"chunk" == batches.chunk_from_wire(chunk)
    for wrong in (chunk, analyzer_pb2.DeliverPartRequest()):
        with pytest.raises(WireError, match="must begin with its header"):
            batches.part_from_wire(wrong)
    for wrong, rule in (
        (header, "must contain only sealed reports"),
        (_chunk(b""), "at least one report"),
        (_chunk(bytes(2**20 + 1)), "at most 1048576"),
    ):
        with pytest.raises(WireError, match=rule):
            batches.chunk_from_wire(wrong)
    for change, rule in (
        ({"part": batch.MAX_PARTS}, "part is 8192"),
        ({"content_hash": bytes(31)}, "content_hash has 31 bytes; it must have 32"),
        ({"task_digest": b""}, "task_digest"),
    ):
        with pytest.raises(WireError, match=rule):
            batches.part_from_wire(batches.part_to_wire(replace(_PART, **change)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_size": 0}, "target_size is 0; it must lie between 1 and 1000000000"),
        ({"n_min": 0}, "n_min is 0"),
        ({"n_users": 10**9 + 1}, "n_users is 1000000001"),
        ({"deadline": 2**40 + 1}, "deadline is 1099511627777"),
    ],
)
def test_progress_out_of_range_is_refused(change: dict[str, int], message: str) -> None:
    """Displays divide by these figures."""
    figures = {"n_users": 5, "n_min": 2, "target_size": 9, "deadline": 2**31} | change
    answer = shuffler_pb2.GetBatchProgressResponse(
        state=shuffler_pb2.BATCH_STATE_COLLECTING,
        **figures,  # type: ignore[arg-type]  # each is a whole number
    )

    with pytest.raises(WireError, match=message):
        batches.progress_from_wire(answer)


_DIGEST = TaskDigest(b"d" * 32)
_LEAVES = some_leaves(2500)
_TREE = GrownTree(_LEAVES)
_ANALYZER = SigningIdentity.generate()
_COMMITMENT = commitment_over(_LEAVES, _ANALYZER, _DIGEST)


def test_every_value_is_read_back_as_it_was_written() -> None:
    """Both directions of each pair agree."""
    proof = _TREE.prove(_COMMITMENT, 5)
    written = batches.proof_to_wire(proof, _TREE.largest_bucket)
    planned = [b"".join(_LEAVES[:2]), b"".join(_LEAVES[2:4])]

    assert proof == batches.proof_from_wire(written)
    assert _COMMITMENT == batches.commitment_from_bytes(
        batches.commitment_to_wire(_COMMITMENT).SerializeToString()
    )
    for prefix in (None, 0, 5, 2**32 - 1):
        asked = batches.prefix_to_wire(_DIGEST, prefix)
        assert (_DIGEST, prefix) == batches.prefix_from_wire(asked)
    for acknowledged in (False, True):
        registered = analyzer_pb2.RegisterSentinelsRequest(
            task_digest=_DIGEST, sentinels=planned, acknowledged=acknowledged
        )
        assert (_DIGEST, planned, acknowledged) == batches.sentinels_from_wire(registered)


def test_the_length_of_a_question_is_independent_of_the_bucket() -> None:
    """Protobuf would encode the number 0 in no byte."""
    questions = [batches.prefix_to_wire(_DIGEST, prefix) for prefix in range(8)]

    assert 1 == len({len(question.SerializeToString()) for question in questions})


def test_reports_ground_into_one_bucket_do_not_lengthen_answers() -> None:
    """A twentieth of 21,000 reports is ground into one of 64 buckets, or copied from one."""
    honest = some_leaves(20_000)
    ground = [one for one in some_leaves(64_000, start=10**6) if prefix_of(one, 6) == 0]
    copied = ground[:1] * len(ground)

    def answer(leaves: list[bytes]) -> int:
        tree = GrownTree(leaves)
        proof = tree.prove(commitment_over(leaves, _ANALYZER, _DIGEST), 0)
        return len(batches.proof_to_wire(proof, tree.largest_bucket).SerializeToString())

    assert 900 < len(ground) < 1100
    for crafted in (ground, copied):
        assert answer([*honest, *crafted]) < 1.1 * answer(honest)


def test_a_commitment_without_a_salt_is_not_accepted() -> None:
    """The senders of reports could have chosen their buckets."""
    message = batches.commitment_to_wire(_COMMITMENT)
    message.ClearField("salt")

    with pytest.raises(WireError, match="salt has 0 bytes; it must have 32"):
        batches.commitment_from_bytes(message.SerializeToString())
    with pytest.raises(WireError, match="salt has 0 bytes; it must have 32"):
        batches.proof_from_wire(shuffler_pb2.GetInclusionResponse(commitment=message))


def test_malformed_evidence_is_refused() -> None:
    """Lengths of buckets, prefixes and sentinels, their number and a damaged file are checked."""
    for sentinels, rule in (
        ([leaf(b"")] * 10_001, "the number of sentinels is 10001; it may be at most 10000"),
        ([b""], "a sentinel has 0 bytes of leaves"),
        ([bytes(33)], "a sentinel has 33 bytes of leaves; each leaf has 32"),
    ):
        request = analyzer_pb2.RegisterSentinelsRequest(task_digest=_DIGEST, sentinels=sentinels)
        with pytest.raises(WireError, match=rule):
            batches.sentinels_from_wire(request)
    proof = _TREE.prove(_COMMITMENT, 0)
    message = batches.proof_to_wire(proof, _TREE.largest_bucket)
    message.bucket = (10**6).to_bytes(4) + message.bucket[4:]
    with pytest.raises(WireError, match="a bucket of 1000000 leaves"):
        batches.proof_from_wire(message)
    for length in (1, 3, 5):
        asked = shuffler_pb2.GetInclusionRequest(task_digest=_DIGEST, prefix=bytes(length))
        with pytest.raises(WireError, match=f"prefix has {length} bytes; it must have 4"):
            batches.prefix_from_wire(asked)
    with pytest.raises(WireError, match="stored commitment of this batch is damaged"):
        batches.commitment_from_bytes(b"\xff")


@pytest.mark.parametrize(("count", "reports"), [(10_000, 14), (20_001, 1), (3, 20_000), (0, 1)])
def test_sentinels_are_split_into_calls_within_the_limits(count: int, reports: int) -> None:
    """The parts are complete, in order, and in messages that a server accepts."""
    planned = [number.to_bytes(32) * reports for number in range(count)]
    parts = list(batches.sentinel_parts(planned))

    assert planned == [leaves for part in parts for leaves in part]
    for part in parts:
        message = analyzer_pb2.RegisterSentinelsRequest(
            task_digest=_DIGEST, sentinels=part, acknowledged=True
        )
        assert message.ByteSize() <= MAX_MESSAGE_BYTES
        assert len(batches.sentinels_from_wire(message)[1]) == len(part) > 0
