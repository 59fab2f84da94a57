"""An in-memory analyzer for large batches."""

from collections.abc import Iterable

import numpy as np

from audit.harness.memory_analyzer import MemoryAnalyzer
from common.crypto.signing import SignedTask, SigningIdentity
from common.messages.batch import BatchPart
from common.messages.inclusion_proof import BatchCommitment, tree_over
from common.task_digest import TaskDigest
from tests.support.leaves import SALT


def word_sum(content: bytes | memoryview) -> int:
    """Add up the 32-bit words of some bytes: a checksum independent of the reports' order."""
    return int(np.frombuffer(content, dtype="<u4").sum(dtype=np.uint64))


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
        assert self.begun is not None
        assert self.begun.n_reports == self.n_reports
        tree, _ = tree_over(b"", SALT)
        return BatchCommitment.sign(self._identity, digest, self.begun.batch_id, tree, SALT)
