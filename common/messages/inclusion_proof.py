"""
The analyzer's signed commitment to the reports it received, and inclusion proofs. Pure.

The analyzer signs the root of a batch's tree (`merkle.py`) and the tree's salt before it
acknowledges the delivery. The shuffler relays the commitment and single buckets; devices verify
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from common.crypto.merkle import HASH_BYTES, Tree, bits_for, prefix_of, root_of, salted, split
from common.crypto.signing import SIGNATURE_BYTES, PublicIdentity, SigningIdentity
from common.errors import ProofError
from common.messages.batch import BatchId
from common.task_digest import TaskDigest

PREFIX_BYTES: Final = 4
PROOF_DAYS: Final = 14
"""Days after a task's deadline during which devices ask for proofs and shufflers keep them."""
_LABEL: Final = b"shuffledp v1 batch commitment"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCommitment:
    """The root of the tree over a batch's reports, signed by the analyzer."""

    task_digest: TaskDigest
    batch_id: BatchId
    n_leaves: int
    """Number of distinct sealed reports."""
    bits: int
    salt: bytes
    root: bytes
    signature: bytes

    @classmethod
    def sign(
        cls,
        identity: SigningIdentity,
        digest: TaskDigest,
        batch_id: BatchId,
        tree: Tree,
        salt: bytes,
    ) -> Self:
        """Commit to a salted tree. Run by the analyzer. Signing again gives the same bytes."""
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

    def check(self, identity: PublicIdentity, digest: TaskDigest) -> None:
        """Check task, depth of the tree and signature; raise ProofError if one is wrong."""
        if self.task_digest != digest:
            raise ProofError("the batch commitment belongs to another task")
        if self.bits != bits_for(self.n_leaves):
            raise ProofError(
                f"the batch commitment has {self.bits} bits; for {self.n_leaves} leaves it must "
                f"have {bits_for(self.n_leaves)}"
            )
        if not identity.signed(_LABEL, self._message(), self.signature):
            raise ProofError("the batch commitment is not signed by the pinned analyzer")

    def prefix_of(self, leaf: bytes) -> int:
        """Return the number of the bucket that contains a leaf if it arrived."""
        return prefix_of(salted(self.salt, leaf), self.bits)

    def _message(self) -> bytes:
        """Encode the signed message: every field has a fixed length."""
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
    """Its salted leaves, sorted and concatenated."""
    path: Sequence[bytes]

    @classmethod
    def of(cls, tree: Tree, commitment: BatchCommitment, prefix: int) -> Self:
        """Extract a bucket from a tree. Run by the shuffler."""
        return cls(commitment=commitment, bucket=tree.bucket(prefix), path=tree.path(prefix))

    def holds(self, leaf: bytes, identity: PublicIdentity, digest: TaskDigest) -> bool:
        """
        Return whether the analyzer received a leaf. Run by the user agent.

        False is proven as well: the complete bucket lacks the leaf.

        Raises:
            ProofError: The proof has another task or signer, or does not lead to the root.
        """
        self.commitment.check(identity, digest)
        bits, prefix = self.commitment.bits, self.commitment.prefix_of(leaf)
        if len(self.path) != bits or any(len(sibling) != HASH_BYTES for sibling in self.path):
            raise ProofError(
                f"the path to the root has {len(self.path)} steps; it must have {bits}"
            )
        if root_of(self.bucket, prefix, self.path) != self.commitment.root:
            raise ProofError("the bucket does not lead to the root that the analyzer signed")
        return salted(self.commitment.salt, leaf) in split(self.bucket)
