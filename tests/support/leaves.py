"""Leaves of made-up reports, and trees over them."""

from common.batch import BatchId
from common.inclusion import BatchCommitment
from common.merkle import Tree, leaf, sorted_leaves
from common.signing import SigningIdentity
from common.task_digest import TaskDigest


def some_leaves(count: int, start: int = 0) -> list[bytes]:
    """Leaves of reports that hold nothing but their number."""
    return [leaf(number.to_bytes(8)) for number in range(start, start + count)]


def tree_over(leaves: list[bytes]) -> Tree:
    """The tree over leaves in any order."""
    return Tree(sorted_leaves(bytearray(b"".join(leaves))))


def commitment_over(
    leaves: list[bytes], identity: SigningIdentity, digest: TaskDigest
) -> BatchCommitment:
    """What an analyzer that received them signs."""
    return BatchCommitment.sign(identity, digest, BatchId(bytes(16)), tree_over(leaves))
