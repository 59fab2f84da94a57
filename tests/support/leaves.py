"""Leaves of invented reports, and trees over them."""

from typing import Final

from common.crypto.signing import SigningIdentity
from common.messages import inclusion_proof
from common.messages.batch import BatchId
from common.messages.inclusion_proof import BatchCommitment, InclusionProof, Tree, leaf
from common.task_digest import TaskDigest

SALT: Final = bytes(range(32))


def some_leaves(count: int, start: int = 0) -> list[bytes]:
    """Return the leaves of reports that hold only their number."""
    return [leaf(number.to_bytes(8)) for number in range(start, start + count)]


def tree_over(leaves: list[bytes], salt: bytes = SALT) -> Tree:
    """Return the tree over leaves in any order."""
    tree, _ = inclusion_proof.tree_over(b"".join(leaves), salt)
    return tree


def proof_over(leaves: list[bytes], commitment: BatchCommitment, prefix: int) -> InclusionProof:
    """Return the proof of a bucket of the tree over leaves in any order."""
    tree, buckets = inclusion_proof.tree_over(b"".join(leaves), commitment.salt)
    return InclusionProof.of(tree, commitment, prefix, buckets[prefix])


def commitment_over(
    leaves: list[bytes], identity: SigningIdentity, digest: TaskDigest, salt: bytes = SALT
) -> BatchCommitment:
    """Return the commitment that an analyzer signs for these leaves."""
    tree = tree_over(leaves, salt)
    return BatchCommitment.sign(identity, digest, BatchId(bytes(16)), tree, salt)
