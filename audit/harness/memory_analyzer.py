"""A party that keeps what a shuffler delivers to it: an analyzer, or a relay."""

import hashlib
from collections.abc import Iterable
from typing import Final

from common.crypto.signing import SignedTask, SigningIdentity
from common.errors import PeerError, PeerRefusalError
from common.messages.batch import BatchManifest, BatchPart
from common.messages.inclusion_proof import (
    HASH_BYTES,
    SALT_BYTES,
    BatchCommitment,
    leaves_of,
    tree_over,
)
from common.task_digest import TaskDigest

SALT: Final = bytes(range(SALT_BYTES))


class MemoryAnalyzer:
    """Serves one task and keeps what is delivered."""

    def __init__(self, signed: SignedTask, identity: SigningIdentity | None = None) -> None:
        self._signed = signed
        self._identity = identity or SigningIdentity.generate()
        self.forget: int = 0
        """Number of received reports that the commitment omits."""
        self.begun: BatchManifest | None = None
        self.n_parts = 0
        self.parts: dict[int, bytes] = {}
        self.received: list[int] = []
        """Parts in the order of arrival, repeated ones again."""
        self.staged = False
        self.lose_parts = False
        """Whether every second part is lost on its way."""
        self.delivered: list[tuple[BatchManifest, bytes]] = []
        self.reachable = True
        self.lose_answers = False
        self.refuse_with: str | None = None
        self.fetched = 0

    def become_a_stranger(self) -> None:
        """Sign with another identity from now on."""
        self._identity = SigningIdentity.generate()

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Return the task, or NOT_FOUND."""
        self.fetched += 1
        if not self.reachable:
            raise PeerError("away")
        if digest != self._signed.digest():
            raise PeerRefusalError("NOT_FOUND", "none")
        return self._signed

    async def begin_delivery(self, manifest: BatchManifest, n_parts: int) -> tuple[set[int], bool]:
        """Expect a batch, unless it is staged."""
        if not self.reachable:
            raise PeerError("away")
        if self.refuse_with is not None:
            raise PeerRefusalError(self.refuse_with, "no")
        if not self.staged:
            self.begun, self.n_parts = manifest, n_parts
        return set(self.parts), self.staged

    async def deliver_part(self, part: BatchPart, chunks: Iterable[memoryview]) -> None:
        """Keep a part."""
        content = b"".join(chunks)
        if hashlib.sha256(content).digest() != part.content_hash:
            raise ValueError("another part arrived than was announced")
        if self.lose_parts and part.part % 2:
            raise PeerError("the part was lost")
        self.parts[part.part] = content
        self.received.append(part.part)

    def stage(self, blob: bytes) -> None:
        """Stage a batch of one part, as if an earlier delivery had arrived."""
        self.parts, self.n_parts, self.staged = {0: blob}, 1, True

    async def finish_delivery(self, digest: TaskDigest) -> BatchCommitment:
        """Keep the batch, and commit to it."""
        if self.begun is None or set(range(self.n_parts)) != set(self.parts):
            raise ValueError("parts are missing")
        blob = b"".join(self.parts[part] for part in range(self.n_parts))
        if not self.staged:
            self.delivered.append((self.begun, blob))
            self.staged = True
        if self.lose_answers:
            raise PeerError("the answer was lost")
        leaves = leaves_of(blob, len(blob) // self.begun.n_reports)[HASH_BYTES * self.forget :]
        tree, _ = tree_over(leaves, SALT)
        return BatchCommitment.sign(self._identity, digest, self.begun.batch_id, tree, SALT)
