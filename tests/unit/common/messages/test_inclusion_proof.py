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
    """Its bucket holds it or lacks it. Committing again gives the same bytes."""
    again = BatchCommitment.sign(_ANALYZER, _DIGEST, BatchId(bytes(16)), _TREE, SALT)
    assert _COMMITMENT == again
    for own in _LEAVES[::100]:
        assert _holds(_proof(own), own)
    for absent in some_leaves(20, start=10**6):
        assert not _holds(_proof(absent), absent)


def test_a_changed_or_moved_bucket_proves_nothing() -> None:
    """A leaf is added or removed, or the bucket or the path is another."""
    [absent], own = some_leaves(1, start=10**6), _LEAVES[0]
    added = b"".join(sorted([*split(_proof(absent).bucket), salted(SALT, absent)]))
    proof = _proof(own)
    removed = b"".join(leaf for leaf in split(proof.bucket) if leaf != salted(SALT, own))
    paths = ([bytes(32), proof.path[1]], [proof.path[0], bytes(32)], proof.path[::-1])
    for forged, leaf in (
        (dataclasses.replace(_proof(absent), bucket=added), absent),
        (dataclasses.replace(proof, bucket=removed), own),
        (InclusionProof.of(_TREE, _COMMITMENT, _COMMITMENT.prefix_of(own) ^ 1), own),
        *((dataclasses.replace(proof, path=path), own) for path in paths),
    ):
        with pytest.raises(ProofError, match="does not lead to the root"):
            _holds(forged, leaf)
    for path in (proof.path[:-1], [*proof.path, bytes(32)]):
        with pytest.raises(ProofError, match="steps; it must have 2"):
            _holds(dataclasses.replace(proof, path=path), own)


def test_every_field_of_a_commitment_is_signed() -> None:
    """Another signer and another task are refused with their own messages."""
    for signer, digest, message in (
        (SigningIdentity.generate(), _DIGEST, "not signed by the pinned analyzer"),
        (_ANALYZER, TaskDigest(b"e" * 32), "belongs to another task"),
    ):
        shown = commitment_over(_LEAVES, signer, digest)
        with pytest.raises(ProofError, match=message):
            _holds(InclusionProof.of(_TREE, shown, shown.prefix_of(_LEAVES[0])), _LEAVES[0])
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


@pytest.mark.parametrize(("n_leaves", "bits"), [(1500, 3), (1500, 1), (511, 1), (10**6, 32)])
def test_a_tree_of_another_depth_is_refused_though_it_is_signed(n_leaves: int, bits: int) -> None:
    """Small buckets would reveal the leaf to the shuffler that relays them."""
    shaped = dataclasses.replace(_COMMITMENT, n_leaves=n_leaves, bits=bits)

    with pytest.raises(ProofError, match=f"has {bits} bits"):
        shaped.check(_ANALYZER.public_identity(), _DIGEST)


def test_a_tree_of_another_salt_proves_nothing() -> None:
    """Neither with the signed root, nor with a root signed under the wrong salt."""
    own, other = _LEAVES[0], bytes(32)
    elsewhere = tree_over(_LEAVES, other)
    wrongly_signed = BatchCommitment.sign(_ANALYZER, _DIGEST, BatchId(bytes(16)), elsewhere, SALT)

    with pytest.raises(ProofError, match="does not lead to the root"):
        _holds(InclusionProof.of(elsewhere, _COMMITMENT, _COMMITMENT.prefix_of(own)), own)
    place = InclusionProof.of(elsewhere, wrongly_signed, wrongly_signed.prefix_of(own))
    assert not _holds(place, own)
    rightly_signed = commitment_over(_LEAVES, _ANALYZER, _DIGEST, other)
    assert _holds(InclusionProof.of(elsewhere, rightly_signed, rightly_signed.prefix_of(own)), own)
