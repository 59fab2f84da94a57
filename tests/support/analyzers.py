"""In-memory analyzers, which fail as told; one for large batches."""

import hashlib
from collections.abc import Iterable

import numpy as np

from shuffledp.audit.harness.party_cores import Recipient
from shuffledp.common.crypto.signing import SignedTask, SigningIdentity
from shuffledp.common.errors import PeerError, PeerRefusalError
from shuffledp.common.messages.batch import BatchManifest, BatchPart
from shuffledp.common.messages.inclusion_proof import BatchCommitment, tree_over
from shuffledp.common.task_digest import TaskDigest
from tests.support.leaves import SALT


def word_sum(content: bytes | memoryview) -> int:
    """Add up the 32-bit words of some bytes: a checksum independent of the reports' order."""
    return int(np.frombuffer(content, dtype="<u4").sum(dtype=np.uint64))


class MemoryAnalyzer(Recipient):
    """Serves one task and keeps what is delivered, once."""

    def __init__(self, signed: SignedTask, identity: SigningIdentity | None = None) -> None:
        super().__init__(signed, identity or SigningIdentity.generate())
        self.n_parts, self.parts = 0, dict[int, bytes]()
        self.received: list[int] = []
        """Parts in the order of arrival, repeated ones again."""
        self.staged = False
        self.lose_parts = False
        """Whether every second part is lost on its way."""
        self.reachable = True
        self.refuse_with: str | None = None
        self.fetched = 0

    def become_a_stranger(self) -> None:
        """Sign with another identity from now on."""
        self.identity = SigningIdentity.generate()

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Return the task, or NOT_FOUND."""
        self.fetched += 1
        if not self.reachable:
            raise PeerError("away")
        if digest != self.signed.digest():
            raise PeerRefusalError("NOT_FOUND", "none")
        return await super().get_task(digest)

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
        """Keep the batch unless it is staged, and commit to it."""
        if set(range(self.n_parts)) != set(self.parts) or not self.n_parts:
            raise ValueError("parts are missing")
        kept = [*self.delivered]
        try:
            return await super().finish_delivery(digest)
        finally:
            if self.staged:
                self.delivered = kept
            self.staged = True


class CountingAnalyzer(MemoryAnalyzer):
    """Counts and sums delivered reports instead of keeping them, and commits to none of them."""

    def __init__(self, signed: SignedTask, identity: SigningIdentity, report_bytes: int) -> None:
        super().__init__(signed, identity)
        self._report_bytes = report_bytes
        self.n_reports = self.checksum = 0

    async def deliver_part(self, part: BatchPart, chunks: Iterable[memoryview]) -> None:
        """Count a part."""
        before = self.n_reports
        for chunk in chunks:
            self.n_reports += len(chunk) // self._report_bytes
            self.checksum = (self.checksum + word_sum(chunk)) % 2**64
        assert part.n_reports == self.n_reports - before
        self.parts[part.part] = b""

    async def finish_delivery(self, digest: TaskDigest) -> BatchCommitment:
        """Check the number of reports."""
        assert self.begun.n_reports == self.n_reports
        tree, _ = tree_over(b"", SALT)
        return BatchCommitment.sign(self.identity, digest, self.begun.batch_id, tree, SALT)
