"""A party that keeps what a shuffler delivers to it: an analyzer, or a relay."""

from collections.abc import Iterable

from common.crypto.signing import SignedTask, SigningIdentity
from common.errors import PeerError
from common.messages.batch import BatchManifest, BatchPart
from common.messages.inclusion_proof import (
    HASH_BYTES,
    SALT_BYTES,
    BatchCommitment,
    leaves_of,
    tree_over,
)
from common.task_digest import TaskDigest


class Recipient:
    """Serves one task, and takes every delivery from its start, as if nothing had arrived."""

    lose_answers = False
    """Whether the commitment is lost on its way."""
    forget = 0
    """Number of received reports that the commitment omits."""

    def __init__(self, signed: SignedTask, identity: SigningIdentity) -> None:
        self.signed, self.identity = signed, identity
        self.delivered: list[tuple[BatchManifest, bytes]] = []

    async def get_task(self, _: TaskDigest) -> SignedTask:
        """Return the task."""
        return self.signed

    async def begin_delivery(self, manifest: BatchManifest, n_parts: int) -> tuple[set[int], bool]:
        """Expect a batch."""
        self.begun, self.n_parts, self.parts = manifest, n_parts, dict[int, bytes]()
        return set(), False

    async def deliver_part(self, part: BatchPart, chunks: Iterable[memoryview]) -> None:
        """Keep a part."""
        self.parts[part.part] = b"".join(chunks)

    async def finish_delivery(self, digest: TaskDigest) -> BatchCommitment:
        """Keep the batch, and commit to it."""
        blob = b"".join(content for _, content in sorted(self.parts.items()))
        self.delivered.append((self.begun, blob))
        if self.lose_answers:
            raise PeerError("the answer was lost")
        leaves, salt = leaves_of(blob, len(blob) // self.begun.n_reports), bytes(SALT_BYTES)
        tree, _ = tree_over(leaves[HASH_BYTES * self.forget :], salt)
        return BatchCommitment.sign(self.identity, digest, self.begun.batch_id, tree, salt)
