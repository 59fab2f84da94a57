"""Leaves of invented reports, and trees over them."""

from typing import Final

from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.messages.batch import BatchId
from shuffledp.common.messages.inclusion_proof import (
    HASH_BYTES,
    BatchCommitment,
    InclusionProof,
    leaf,
    tree_over,
)
from shuffledp.common.task_digest import TaskDigest

SALT: Final = bytes(range(32))


def some_leaves(count: int, start: int = 0) -> list[bytes]:
    """Return the leaves of reports that hold only their number."""
    return [leaf(number.to_bytes(8)) for number in range(start, start + count)]


class GrownTree:
    """A tree with its buckets' leaves."""

    def __init__(self, leaves: list[bytes], salt: bytes = SALT) -> None:
        self.tree, buckets = tree_over(b"".join(leaves), salt)
        self.buckets = [bucket.tobytes() for bucket in buckets]
        self.root = self.tree.root
        self.largest_bucket = max(map(len, self.buckets)) // HASH_BYTES

    def prove(self, commitment: BatchCommitment, prefix: int) -> InclusionProof:
        """Return the proof of one bucket."""
        bucket, path = self.buckets[prefix], self.tree.path(prefix)
        return InclusionProof(commitment=commitment, bucket=bucket, path=path)


def commitment_over(
    leaves: list[bytes], identity: SigningIdentity, digest: TaskDigest, salt: bytes = SALT
) -> BatchCommitment:
    """Return the commitment that an analyzer signs for these leaves."""
    tree, _ = tree_over(b"".join(leaves), salt)
    return BatchCommitment.sign(identity, digest, BatchId(bytes(16)), tree, salt)
