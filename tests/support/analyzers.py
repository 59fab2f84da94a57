"""An analyzer in memory, as a shuffler sees it."""

from collections.abc import AsyncIterator

from common.batch import BatchManifest
from common.errors import PeerError, PeerRefusalError
from common.signing import SignedTask
from common.task_digest import TaskDigest


class MemoryAnalyzer:
    """Serves one task and keeps what is delivered."""

    def __init__(self, signed: SignedTask) -> None:
        self._signed = signed
        self.delivered: list[tuple[BatchManifest, bytes]] = []
        self.reachable = True
        self.lose_answers = False
        self.refuse_with: str | None = None

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Give the task, or NOT_FOUND."""
        if not self.reachable:
            raise PeerError("away")
        if digest != self._signed.digest():
            raise PeerRefusalError("NOT_FOUND", "none")
        return self._signed

    async def deliver(self, manifest: BatchManifest, chunks: AsyncIterator[bytes]) -> None:
        """Keep a batch."""
        if not self.reachable:
            raise PeerError("away")
        if self.refuse_with is not None:
            raise PeerRefusalError(self.refuse_with, "no")
        self.delivered.append((manifest, b"".join([chunk async for chunk in chunks])))
        if self.lose_answers:
            raise PeerError("the answer was lost")
