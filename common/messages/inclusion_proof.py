"""
Proofs that a report is in its batch: a tree of hashes, and the receiver's commitment to it. Pure.

docs/wire.md defines the tree: each distinct report's leaf is salted, the salted leaves sorted and
put into 2^bits buckets by their first `bits` bits. The first byte separates the four kinds of
hashes. `bits` depends on the number of leaves alone, and a batch has a maximum, so that nobody can
shrink a bucket. The salt is drawn after the last report: senders, who choose their sealed reports,
could otherwise make a bucket as long as they like.

The receiver, the analyzer or a relay, signs the root and the salt before it acknowledges the
delivery. The shuffler relays proofs; a request names only a bucket, so it does not reveal a leaf.
Both parties build the tree in parts: each part of the batch is salted and split into ranges of the
salted leaves' first bits; each range, from all parts, is sorted and cut into its buckets.
"""

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Final, Self

import numpy as np
from numpy.typing import NDArray

from shuffledp.common.crypto.hpke import split_every
from shuffledp.common.crypto.signing import SIGNATURE_BYTES, PublicIdentity, SigningIdentity
from shuffledp.common.errors import ProofError
from shuffledp.common.limits import parse_count, parse_fixed
from shuffledp.common.messages.batch import BATCH_ID_BYTES, BatchId
from shuffledp.common.task_digest import TaskDigest

HASH_BYTES: Final = 32
SALT_BYTES: Final = 32
MAX_BITS: Final = 32
"""Maximum number of bits of a prefix on the wire."""
BUCKET_LEAVES: Final = 256
"""Average leaves per bucket: at least this many and under twice this, or all in one bucket."""

RANGE_LEAVES: Final = 1 << 14
"""Minimum average number of leaves in a range, unless there is only one."""
MAX_RANGES: Final = 1 << 10
"""Maximum number of ranges. It bounds the number of blocks, which is that of ranges times parts."""

_LEAF, _BUCKET, _NODE, _SALTED = b"\x00", b"\x01", b"\x02", b"\x03"


def bits_for(n_leaves: int) -> int:
    """Return the depth of the tree over n leaves: 0 below 2 · BUCKET_LEAVES, at most MAX_BITS."""
    return min(MAX_BITS, max(0, (n_leaves // BUCKET_LEAVES).bit_length() - 1))


def leaf(sealed_report: bytes) -> bytes:
    """Return a sealed report's leaf, 32 bytes."""
    return hashlib.sha256(_LEAF + sealed_report).digest()


def leaves_of(sealed_reports: bytes, size: int) -> bytes:
    """Concatenate the leaves of sealed reports of `size` bytes each. Cost: 1 µs per report."""
    return b"".join([leaf(report) for report in split_every(sealed_reports, size)])


def split(leaves: bytes) -> list[bytes]:
    """Split concatenated leaves into a list of leaves."""
    return split_every(leaves, HASH_BYTES)


def salted(salt: bytes, leaf: bytes) -> bytes:
    """Return a leaf's salted hash, 32 bytes."""
    return hashlib.sha256(_SALTED + salt + leaf).digest()


def prefix_of(leaf: bytes, bits: int) -> int:
    """Return the number of a salted leaf's bucket: the leaf's first `bits` bits."""
    return int.from_bytes(leaf[:4]) >> (32 - bits)


def bucket_hash(leaves: bytes) -> bytes:
    """Return the hash of a bucket from its sorted, concatenated leaves."""
    return hashlib.sha256(_BUCKET + leaves).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return hashlib.sha256(_NODE + left + right).digest()


def salted_leaves(leaves: bytes, salt: bytes) -> NDArray[np.uint8]:
    """Salt concatenated leaves; return an array of shape (n, HASH_BYTES). Cost: 0.6 µs per leaf."""
    prefix = _SALTED + salt
    hashes = b"".join([hashlib.sha256(prefix + leaf).digest() for leaf in split(leaves)])
    return np.frombuffer(hashes, dtype=np.uint8).reshape(-1, HASH_BYTES)


def range_count(n_reports: int) -> int:
    """Return the number of ranges for a batch: a power of two, up to MAX_RANGES."""
    ranges = 1 << max(0, (n_reports // RANGE_LEAVES).bit_length() - 1)
    return min(MAX_RANGES, ranges)


def split_ranges(rows: NDArray[np.uint8], n_ranges: int) -> list[NDArray[np.uint8]]:
    """
    Split rows, (n, width), that begin with a salted leaf into ranges of the leaves' first bits.

    `n_ranges` is a power of two.
    """
    heads = np.ascontiguousarray(rows[:, :4]).view(">u4").ravel()
    numbers = (heads.astype(np.uint64) * np.uint64(n_ranges)) >> np.uint64(32)
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers.astype(np.intp), minlength=n_ranges))
    return np.split(rows[order], ends[:-1])


def distinct_rows(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Sort rows of shape (n, width) by the leaf that they begin with, and drop repeated leaves."""
    # numpy compares byte strings like memcmp, except that it ignores trailing zeros, which does not
    # matter for strings of one length.
    leaves = np.ascontiguousarray(rows[:, :HASH_BYTES]).view(f"S{HASH_BYTES}").ravel()
    _, firsts = np.unique(leaves, return_index=True)
    return rows[firsts]


def bucket_hashes(
    leaves: NDArray[np.uint8], n_buckets: int, bits: int
) -> tuple[bytes, NDArray[np.int64]]:
    """
    Hash the buckets of a range of the tree, whose number is a power of two.

    `leaves` are the range's distinct salted leaves in ascending order, shape (n, HASH_BYTES);
    `bits` is the depth of the tree. Returns the buckets' hashes, concatenated, and their numbers of
    leaves, shape (n_buckets,).
    """
    heads = np.ascontiguousarray(leaves[:, :4]).view(">u4").ravel().astype(np.uint64)
    buckets = (heads >> np.uint64(32 - bits)) & np.uint64(n_buckets - 1)
    edges = np.searchsorted(buckets, np.arange(n_buckets + 1, dtype=np.uint64)).astype(np.int64)
    ends = itertools.pairwise(edges.tolist())
    hashes = [bucket_hash(leaves[start:end].tobytes()) for start, end in ends]
    return b"".join(hashes), np.diff(edges)


class Tree:
    """The tree over the hashes of a batch's buckets."""

    def __init__(self, n_leaves: int, hashes: bytes) -> None:
        """Build the tree over `n_leaves` distinct leaves from its buckets' concatenated hashes."""
        self.n_leaves = n_leaves
        self.bits = bits_for(n_leaves)
        level = split(hashes)
        self._levels = [level]
        while len(level) > 1:
            pairs = zip(level[::2], level[1::2], strict=True)
            level = [node_hash(left, right) for left, right in pairs]
            self._levels.append(level)

    @property
    def root(self) -> bytes:
        """The root hash."""
        return self._levels[-1][0]

    def path(self, prefix: int) -> list[bytes]:
        """Return the sibling hashes on the path from a bucket to the root."""
        return [level[(prefix >> up) ^ 1] for up, level in enumerate(self._levels[:-1])]


def tree_over(leaves: bytes, salt: bytes) -> tuple[Tree, list[NDArray[np.uint8]]]:
    """
    Salt concatenated leaves, and build the tree over the distinct ones at once, not in parts.

    Returns the tree, and each bucket's salted leaves, shape (n, HASH_BYTES). Cost: two microseconds
    per leaf.
    """
    rows = distinct_rows(salted_leaves(leaves, salt))
    bits = bits_for(len(rows))
    hashes, sizes = bucket_hashes(rows, 1 << bits, bits)
    return Tree(len(rows), hashes), np.split(rows, np.cumsum(sizes)[:-1])


def root_of(bucket: bytes, prefix: int, path: Iterable[bytes]) -> bytes:
    """Compute the root from a bucket's leaves, its number, and the sibling hashes of its path."""
    found = bucket_hash(bucket)
    for sibling in path:
        left, right = (sibling, found) if prefix & 1 else (found, sibling)
        found, prefix = node_hash(left, right), prefix >> 1
    return found


PREFIX_BYTES: Final = 4
"""Length of a bucket's number on the wire."""
PROOF_DAYS: Final = 14
"""Days after a task's deadline for which shufflers keep proofs and devices request them."""
_LABEL: Final = b"shuffledp v1 batch commitment"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCommitment:
    """The root of the tree over what the analyzer received, or a relay; it signs it."""

    task_digest: TaskDigest
    batch_id: Annotated[BatchId, partial(parse_fixed, length=BATCH_ID_BYTES)]
    n_leaves: int
    """Number of distinct sealed reports."""
    bits: Annotated[int, partial(parse_count, maximum=MAX_BITS)]
    salt: Annotated[bytes, partial(parse_fixed, length=SALT_BYTES)]
    root: Annotated[bytes, partial(parse_fixed, length=HASH_BYTES)]
    signature: Annotated[bytes, partial(parse_fixed, length=SIGNATURE_BYTES)]

    @classmethod
    def sign(
        cls,
        identity: SigningIdentity,
        digest: TaskDigest,
        batch_id: BatchId,
        tree: Tree,
        salt: bytes,
    ) -> Self:
        """Commit to a salted tree. Run by the analyzer and by relays. Deterministic."""
        blank = cls(
            task_digest=digest,
            batch_id=batch_id,
            n_leaves=tree.n_leaves,
            bits=tree.bits,
            salt=salt,
            root=tree.root,
            signature=bytes(SIGNATURE_BYTES),
        )
        return replace(blank, signature=identity.sign_message(_LABEL, blank._message()))

    def verify(self, identity: PublicIdentity, digest: TaskDigest, most: int) -> None:
        """Raise ProofError for another task, depth or signer, or more leaves than `most`."""
        if self.task_digest != digest:
            raise ProofError("the batch commitment belongs to another task")
        if self.n_leaves > most:
            raise ProofError(f"the commitment has {self.n_leaves} leaves, not {most} at most")
        if self.bits != bits_for(self.n_leaves):
            raise ProofError(
                f"the batch commitment has {self.bits} bits; for {self.n_leaves} leaves it must "
                f"have {bits_for(self.n_leaves)}"
            )
        if not identity.is_valid_signature(_LABEL, self._message(), self.signature):
            raise ProofError("the batch commitment is not signed by the pinned identity")

    def prefix_of(self, leaf: bytes) -> int:
        """Return the number of the bucket that contains a leaf if the leaf is in the tree."""
        return prefix_of(salted(self.salt, leaf), self.bits)

    def _message(self) -> bytes:
        """Encode the signed fields, each of fixed length."""
        return b"".join(
            (
                self.task_digest,
                self.batch_id,
                self.n_leaves.to_bytes(8),
                self.bits.to_bytes(1),
                self.salt,
                self.root,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InclusionProof:
    """One bucket of a batch's tree, and the sibling hashes on its path to the root."""

    commitment: BatchCommitment
    bucket: bytes
    """The bucket's salted leaves, sorted and concatenated."""
    path: Sequence[bytes]

    def includes(
        self, leaf: bytes, identity: PublicIdentity, digest: TaskDigest, most_leaves: int
    ) -> bool:
        """
        Return whether the party of this identity received a leaf. Run by the user agent.

        False is a proof of absence, since the proof contains the leaf's whole bucket.

        Raises:
            ProofError: The commitment is invalid, or the proof does not lead to the signed root.
        """
        self.commitment.verify(identity, digest, most_leaves)
        bits, prefix = self.commitment.bits, self.commitment.prefix_of(leaf)
        if len(self.path) != bits or any(len(sibling) != HASH_BYTES for sibling in self.path):
            raise ProofError(
                f"the path to the root has {len(self.path)} steps; it must have {bits}"
            )
        if root_of(self.bucket, prefix, self.path) != self.commitment.root:
            raise ProofError("the bucket does not lead to the signed root")
        return salted(self.commitment.salt, leaf) in split(self.bucket)
