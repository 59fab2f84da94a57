"""
The growth of an append-only log, recomputed from its new entries. Pure.

A tree's state is the roots of its full subtrees, one for each bit of its size. They give its root,
and with further leaves the roots of all larger trees, at about a hash a leaf.
"""

from collections.abc import Sequence
from functools import reduce

from common.errors import ProofError
from common.transparency.merkle import EMPTY_ROOT, OLD_COPY, Path, node_hash


def joined_root(subtrees: Path) -> bytes:
    """Return the root of the tree that full subtrees make up, the largest first."""
    if not subtrees:
        return EMPTY_ROOT
    return reduce(lambda right, left: node_hash(left, right), reversed(subtrees))


def verify_growth(
    old_size: int,
    old_root: bytes,
    size: int,
    root: bytes,
    *,
    subtrees: Path,
    leaves: Sequence[bytes],
) -> None:
    """
    Check that the tree with this size and root is the old one and these leaves, none left out.

    `subtrees` are the roots of the old tree's full subtrees. Raises ProofError if it is not.
    """
    if len(subtrees) != old_size.bit_count() or joined_root(subtrees) != old_root:
        raise ProofError(
            f"the log's first {old_size} entries are not those of its last checkpoint: {OLD_COPY}"
        )
    grown = list(subtrees)
    for number, leaf in enumerate(leaves, old_size + 1):
        for _ in range((number & -number).bit_length() - 1):
            leaf = node_hash(grown.pop(), leaf)  # noqa: PLW2901  # grows upward
        grown.append(leaf)
    if size != old_size + len(leaves) or joined_root(grown) != root:
        raise ProofError(
            f"the {len(leaves)} entries after the first {old_size} do not lead to the root of size "
            f"{size}: one is left out, moved or changed"
        )
