"""
A prefix tree of hashes over a batch's sealed reports: one root for what arrived. Pure.

A leaf is SHA-256(0 ‖ sealed report). Leaves are sorted and put into 2^bits buckets by their first
`bits` bits; a bucket's hash is SHA-256(1 ‖ its leaves in order), a node's SHA-256(2 ‖ left ‖
right). Whoever knows the root can be shown that a leaf is in its bucket, or that it is not, by
that bucket and `bits` hashes; a whole bucket is shown, so that asking for one's own leaf does not
tell which it is. The first byte keeps leaves, buckets and nodes apart.

`bits` follows from the number of leaves alone, so that nobody can narrow a bucket down.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

HASH_BYTES: Final = 32
MAX_BITS: Final = 32
"""What fits a prefix on the wire."""
BUCKET_LEAVES: Final = 256
"""A bucket holds between so many leaves and twice as many, on average, where there are enough."""

_LEAF, _BUCKET, _NODE = b"\x00", b"\x01", b"\x02"


def bits_for(n_leaves: int) -> int:
    """Give the depth of the tree over so many leaves; 0 below 2 · BUCKET_LEAVES. A public rule."""
    return min(MAX_BITS, max(0, (n_leaves // BUCKET_LEAVES).bit_length() - 1))


def leaf(sealed_report: bytes) -> bytes:
    """Give a sealed report's leaf."""
    return hashlib.sha256(_LEAF + sealed_report).digest()


def leaves_of(sealed_reports: bytes, size: int) -> bytes:
    """
    Give the leaves of sealed reports, one after the other.

    Cost: about a microsecond each.
    """
    starts = range(0, len(sealed_reports), size)
    return b"".join([leaf(sealed_reports[start : start + size]) for start in starts])


def split(leaves: bytes) -> list[bytes]:
    """Take leaves that stand one after the other apart."""
    return [leaves[start : start + HASH_BYTES] for start in range(0, len(leaves), HASH_BYTES)]


def prefix_of(leaf: bytes, bits: int) -> int:
    """Give a leaf's first bits: the number of its bucket."""
    return int.from_bytes(leaf[:4]) >> (32 - bits)


def bucket_hash(leaves: bytes) -> bytes:
    """Give the hash of a bucket, from its sorted leaves one after the other."""
    return hashlib.sha256(_BUCKET + leaves).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Give the hash of an inner node."""
    return hashlib.sha256(_NODE + left + right).digest()


def sorted_leaves(leaves: bytearray) -> NDArray[np.uint8]:
    """
    Sort leaves that stand one after the other, in place.

    Args:
        leaves: Whole leaves, collected as they came; the array that is given back is their memory.

    Returns:
        All of them in ascending order, shape (n, HASH_BYTES), repeats included.

    Cost: 10^7 in two seconds, and no memory but theirs.
    """
    rows = np.frombuffer(leaves, dtype=np.uint8)
    # numpy compares byte strings as memcmp does, but for zeros at their ends; of one length, the
    # order is the same.
    rows.view(f"S{HASH_BYTES}").sort()
    return rows.reshape(-1, HASH_BYTES)


class Tree:
    """The tree over sorted leaves."""

    def __init__(self, leaves: NDArray[np.uint8]) -> None:
        """
        Build it.

        Args:
            leaves: In ascending order, shape (n, HASH_BYTES); may be mapped from a file.

        Cost: one pass of SHA-256 over the leaves.
        """
        self.n_leaves = len(leaves)
        self.bits = bits_for(self.n_leaves)
        self._leaves = leaves
        edges = np.arange((1 << self.bits) + 1, dtype=np.uint64) << np.uint64(32 - self.bits)
        heads = np.ascontiguousarray(leaves[:, :4]).view(">u4").ravel().astype(np.uint64)
        self._edges = np.searchsorted(heads, edges)
        level = [bucket_hash(self.bucket(number)) for number in range(1 << self.bits)]
        self._levels = [level]
        while len(level) > 1:
            pairs = zip(level[::2], level[1::2], strict=True)
            level = [node_hash(left, right) for left, right in pairs]
            self._levels.append(level)

    @property
    def root(self) -> bytes:
        """The hash that stands for all leaves."""
        return self._levels[-1][0]

    @property
    def largest_bucket(self) -> int:
        """Leaves in the fullest bucket."""
        return int(np.diff(self._edges).max())

    def bucket(self, prefix: int) -> bytes:
        """Give a bucket's leaves in order, one after the other."""
        return self._leaves[self._edges[prefix] : self._edges[prefix + 1]].tobytes()

    def path(self, prefix: int) -> list[bytes]:
        """Give the hashes beside the way from a bucket to the root, the bucket's own first."""
        return [level[(prefix >> up) ^ 1] for up, level in enumerate(self._levels[:-1])]


def root_of(bucket: bytes, prefix: int, path: Iterable[bytes]) -> bytes:
    """Give the root that a bucket in this place, and the hashes beside its way, lead to."""
    found = bucket_hash(bucket)
    for beside in path:
        left, right = (beside, found) if prefix & 1 else (found, beside)
        found, prefix = node_hash(left, right), prefix >> 1
    return found
