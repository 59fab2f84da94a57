"""In-memory analyzers for a shuffler's tests."""

from collections.abc import AsyncIterator

import numpy as np

from common.crypto.signing import SignedTask, SigningIdentity
from common.errors import PeerError, PeerRefusalError
from common.messages.batch import BatchManifest
from common.messages.inclusion_proof import HASH_BYTES, BatchCommitment, Tree, leaves_of
from common.task_digest import TaskDigest
from tests.support.leaves import SALT


class CountingAnalyzer:
    """Serves one task, and counts and sums delivered reports instead of keeping them."""

    def __init__(self, signed: SignedTask, report_bytes: int) -> None:
        self._signed = signed
        self._report_bytes = report_bytes
        self.reachable = True
        self.n_reports = 0
        self.checksum = 0

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Return the task."""
        assert digest == self._signed.digest()
        return self._signed

    async def deliver(self, manifest: BatchManifest, chunks: AsyncIterator[bytes]) -> None:
        """Count a batch."""
        if not self.reachable:
            raise PeerError("away")
        async for chunk in chunks:
            self.n_reports += len(chunk) // self._report_bytes
            self.checksum = (self.checksum + word_sum(chunk)) % 2**64
        assert manifest.n_reports == self.n_reports


def word_sum(content: bytes) -> int:
    """Add up the 32-bit words of some bytes: a checksum independent of the reports' order."""
    return int(np.frombuffer(content, dtype="<u4").sum(dtype=np.uint64))


class MemoryAnalyzer:
    """Serves one task and keeps what is delivered."""

    def __init__(self, signed: SignedTask, identity: SigningIdentity | None = None) -> None:
        self._signed = signed
        self._identity = identity
        self.forget: int = 0
        """Number of received reports that the commitment omits."""
        self.listen = True
        """Whether it reads a delivery's chunks; it need not once it has the batch."""
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

    async def deliver(
        self, manifest: BatchManifest, chunks: AsyncIterator[bytes]
    ) -> BatchCommitment | None:
        """Keep a batch, and commit to it if there is an identity to sign with."""
        if not self.reachable:
            raise PeerError("away")
        if self.refuse_with is not None:
            raise PeerRefusalError(self.refuse_with, "no")
        if self.listen:
            self.delivered.append((manifest, b"".join([chunk async for chunk in chunks])))
        if self.lose_answers:
            raise PeerError("the answer was lost")
        if self._identity is None:
            return None
        blob = self.delivered[-1][1]
        leaves = leaves_of(blob, len(blob) // manifest.n_reports)[HASH_BYTES * self.forget :]
        tree = Tree.over(bytearray(leaves), SALT)
        return BatchCommitment.sign(
            self._identity, manifest.task_digest, manifest.batch_id, tree, SALT
        )
