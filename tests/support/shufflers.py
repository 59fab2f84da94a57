"""A shuffler in memory, as a user agent sees it."""

from common.errors import PeerError, PeerRefusalError
from common.signing import SignedTask
from common.task_digest import TaskDigest


class MemoryShuffler:
    """Serves one task and keeps what it is sent."""

    def __init__(self, signed: SignedTask) -> None:
        self._signed = signed
        self.received: list[bytes] = []
        self.reachable = True
        self.closed = False
        self.fetched = 0

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Give the task, whatever was asked for."""
        assert len(digest) == 32
        self.fetched += 1
        return self._signed

    async def submit(self, digest: TaskDigest, envelope: bytes) -> None:
        """Keep an envelope."""
        assert digest == self._signed.digest()
        if not self.reachable:
            raise PeerError("away")
        if self.closed:
            raise PeerRefusalError("FAILED_PRECONDITION", "closed")
        self.received.append(envelope)
