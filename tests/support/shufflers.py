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
        self.token = b""
        self.fetched = 0

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Give the task, whatever was asked for."""
        assert len(digest) == 32
        self.fetched += 1
        return self._signed

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> None:
        """Keep an envelope, and the token that came with it."""
        assert digest == self._signed.digest()
        if not self.reachable:
            raise PeerError("away")
        if self.closed:
            raise PeerRefusalError("FAILED_PRECONDITION", "closed")
        if self.token not in {b"", token}:
            raise PeerRefusalError("UNAUTHENTICATED", "a token is asked for")
        self.received.append(envelope)
