import dataclasses

import pytest

from common.crypto.merkle import salted, split
from common.crypto.signing import SigningIdentity
from common.errors import ProofError
from common.messages.batch import BatchId
from common.messages.inclusion_proof import BatchCommitment, InclusionProof
from common.task_digest import TaskDigest
from tests.support.leaves import SALT, commitment_over, some_leaves, tree_over

_DIGEST = TaskDigest(b"d" * 32)
_ANALYZER = SigningIdentity.generate()
_LEAVES = some_leaves(1500)
_TREE = tree_over(_LEAVES)
_COMMITMENT = commitment_over(_LEAVES, _ANALYZER, _DIGEST)


def _proof(leaf: bytes) -> InclusionProof:
    return InclusionProof.of(_TREE, _COMMITMENT, _COMMITMENT.prefix_of(leaf))


def _holds(proof: InclusionProof, leaf: bytes) -> bool:
    return proof.holds(leaf, _ANALYZER.public_identity(), _DIGEST)


def test_a_proof_shows_whether_a_leaf_arrived() -> None:
    """By the bucket that its first bits name, which is whole and signed."""
    for own in _LEAVES[::100]:
        assert _holds(_proof(own), own)
    for absent in some_leaves(20, start=10**6):
        assert not _holds(_proof(absent), absent)


def test_an_absent_leaf_cannot_be_slipped_into_its_bucket() -> None:
    """Nor can a present one be taken out: the bucket leads elsewhere."""
    [absent] = some_leaves(1, start=10**6)
    proof = _proof(absent)
    added = b"".join(sorted([*split(proof.bucket), salted(SALT, absent)]))
    with pytest.raises(ProofError, match="does not lead to the root"):
        _holds(dataclasses.replace(proof, bucket=added), absent)

    own = _LEAVES[0]
    proof = _proof(own)
    left_out = b"".join(leaf for leaf in split(proof.bucket) if leaf != salted(SALT, own))
    with pytest.raises(ProofError, match="does not lead to the root"):
        _holds(dataclasses.replace(proof, bucket=left_out), own)


def test_another_bucket_proves_nothing() -> None:
    """The place of a bucket is part of its way: no absence is shown by a bucket elsewhere."""
    own = _LEAVES[0]
    elsewhere = InclusionProof.of(_TREE, _COMMITMENT, _COMMITMENT.prefix_of(own) ^ 1)

    with pytest.raises(ProofError, match="does not lead to the root"):
        _holds(elsewhere, own)


def test_every_field_of_a_commitment_is_signed() -> None:
    """A shuffler that shows a tree of its own under the analyzer's signature is not believed."""
    others = {
        "task_digest": TaskDigest(b"e" * 32),
        "batch_id": BatchId(b"e" * 16),
        "n_leaves": _COMMITMENT.n_leaves + 1,
        "bits": _COMMITMENT.bits + 1,
        "salt": bytes(len(SALT)),
        "root": tree_over(_LEAVES[1:]).root,
        "signature": bytes(64),
    }
    _COMMITMENT.check(_ANALYZER.public_identity(), _DIGEST)
    assert list(others) == [field.name for field in dataclasses.fields(_COMMITMENT)]
    for name, value in others.items():
        forged = dataclasses.replace(_COMMITMENT, **{name: value})  # type: ignore[arg-type]
        with pytest.raises(ProofError):
            forged.check(_ANALYZER.public_identity(), forged.task_digest)


def test_no_bit_of_a_proof_can_be_changed() -> None:
    """Of the bucket, of any hash on the way, of the salt, of the root and of the signature."""
    own = _LEAVES[7]
    proof = _proof(own)

    def flipped(field: bytes, bit: int) -> bytes:
        changed = bytearray(field)
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)

    changed = [
        dataclasses.replace(proof, bucket=flipped(proof.bucket, bit))
        for bit in range(0, 8 * len(proof.bucket), 331)
    ]
    for step, beside in enumerate(proof.path):
        for bit in range(256):
            path = [*proof.path[:step], flipped(beside, bit), *proof.path[step + 1 :]]
            changed.append(dataclasses.replace(proof, path=path))
    for name in ("salt", "root", "signature", "batch_id", "task_digest"):
        field: bytes = getattr(_COMMITMENT, name)
        for bit in range(8 * len(field)):
            commitment = dataclasses.replace(_COMMITMENT, **{name: flipped(field, bit)})  # type: ignore[arg-type]
            changed.append(dataclasses.replace(proof, commitment=commitment))
    for one in changed:
        with pytest.raises(ProofError):
            _holds(one, own)


@pytest.mark.parametrize("path_change", [-1, 1])
def test_the_way_has_the_length_that_the_commitment_says(path_change: int) -> None:
    """A shorter way would let a node pass for a bucket."""
    own = _LEAVES[0]
    proof = _proof(own)
    path = [*proof.path, bytes(32)][: len(proof.path) + path_change]

    with pytest.raises(ProofError, match="steps; it must have 2"):
        _holds(dataclasses.replace(proof, path=path), own)


@pytest.mark.parametrize(
    ("signer", "digest", "message"),
    [
        (SigningIdentity.generate(), _DIGEST, "not signed by the pinned analyzer"),
        (_ANALYZER, TaskDigest(b"e" * 32), "of another task"),
    ],
)
def test_only_the_pinned_analyzer_commits_to_a_task(
    signer: SigningIdentity, digest: TaskDigest, message: str
) -> None:
    """A commitment over the same reports, by another signer or for another task, is refused."""
    with pytest.raises(ProofError, match=message):
        commitment_over(_LEAVES, signer, digest).check(_ANALYZER.public_identity(), _DIGEST)


@pytest.mark.parametrize(("n_leaves", "bits"), [(1500, 3), (1500, 1), (511, 1), (10**6, 32)])
def test_a_tree_of_another_depth_is_refused_though_it_is_signed(n_leaves: int, bits: int) -> None:
    """Small buckets would tell whoever relays them which leaf was asked for."""
    shaped = dataclasses.replace(_COMMITMENT, n_leaves=n_leaves, bits=bits)

    with pytest.raises(ProofError, match=f"has {bits} bits"):
        shaped.check(_ANALYZER.public_identity(), _DIGEST)


def test_committing_again_gives_the_same_bytes() -> None:
    """A second delivery of the batch is answered as the first was."""
    batch_id = BatchId(bytes(16))

    assert _COMMITMENT == BatchCommitment.sign(_ANALYZER, _DIGEST, batch_id, _TREE, SALT)


def test_a_tree_of_another_salt_proves_nothing() -> None:
    """Neither beside the signed root nor, though it is signed, under the salt that was signed."""
    own, other = _LEAVES[0], bytes(32)
    elsewhere = tree_over(_LEAVES, other)
    wrongly_signed = BatchCommitment.sign(_ANALYZER, _DIGEST, BatchId(bytes(16)), elsewhere, SALT)

    with pytest.raises(ProofError, match="does not lead to the root"):
        _holds(InclusionProof.of(elsewhere, _COMMITMENT, _COMMITMENT.prefix_of(own)), own)
    place = InclusionProof.of(elsewhere, wrongly_signed, wrongly_signed.prefix_of(own))
    assert not _holds(place, own)
    rightly_signed = commitment_over(_LEAVES, _ANALYZER, _DIGEST, other)
    assert _holds(InclusionProof.of(elsewhere, rightly_signed, rightly_signed.prefix_of(own)), own)
