"""An in-memory shuffler for a user agent's tests."""

from shuffledp.common.crypto.signing import SignedTask, sign_receipt
from shuffledp.common.errors import PeerError, PeerRefusalError
from shuffledp.common.messages.inclusion_proof import BatchCommitment, InclusionProof
from shuffledp.common.task_digest import TaskDigest
from tests.support.keys import SHUFFLER
from tests.support.leaves import GrownTree


class MemoryShuffler:
    """Serves one task and keeps all envelopes."""

    def __init__(self, signed: SignedTask) -> None:
        self._signed = signed
        self.received: list[bytes] = []
        self.reachable = True
        self.closed = False
        self.tokens: list[bytes] = []
        self.fetched = 0
        self.identity = SHUFFLER
        self.leaves: list[bytes] | None = None
        self.commitment: BatchCommitment | None = None
        self.asked: list[int | None] = []

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Return the task, for any digest."""
        assert len(digest) == 32
        self.fetched += 1
        return self._signed

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> bytes:
        """Keep the envelope and its token; return a receipt."""
        assert digest == self._signed.digest()
        if not self.reachable:
            raise PeerError("away")
        if self.closed:
            raise PeerRefusalError("FAILED_PRECONDITION", "closed")
        self.received.append(envelope)
        self.tokens += [token] if token else []
        return sign_receipt(self.identity, digest, envelope)

    async def inclusion(self, digest: TaskDigest, prefix: int | None) -> InclusionProof:
        """Return a proof, once there are leaves and a commitment."""
        assert digest == self._signed.digest()
        self.asked.append(prefix)
        if self.leaves is None or self.commitment is None:
            raise PeerRefusalError("FAILED_PRECONDITION", "not delivered")
        return GrownTree(self.leaves).prove(self.commitment, prefix or 0)
