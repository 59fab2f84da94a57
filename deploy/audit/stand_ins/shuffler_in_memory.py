"""A shuffler that lies in memory, for devices that are tried without services."""

from common.crypto.receipt import sign_receipt
from common.crypto.signing import SignedTask, SigningIdentity
from common.errors import PeerError, ShuffleDpError
from common.messages.inclusion_proof import InclusionProof
from common.task_digest import TaskDigest


class ShufflerInMemory:
    """Hands out the tasks that it was given and takes every envelope, or fails if told to."""

    def __init__(self) -> None:
        self.tasks: dict[TaskDigest, SignedTask] = {}
        self.calls: list[tuple[str | int, ...]] = []
        """Every call, and the length of each thing that came with it."""
        self.tried: list[bytes] = []
        """Envelopes that came, whether or not it failed."""
        self.shows: InclusionProof | None = None
        """What it shows to whoever asks, whichever bucket; without it, it keeps no proofs."""
        self.shows_first: InclusionProof | None = None
        """What it shows to whoever asks for the commitment alone, if that is something else."""
        self.prefixes: list[int | None] = []
        """Buckets that it was asked for; None is a question for the commitment alone."""
        self.failing: ShuffleDpError | None = None
        self.signs_with: SigningIdentity | None = None
        """Of its receipts; without one it gives an empty one."""
        self.signs_more = b""
        """Put behind an envelope before its receipt is signed."""

    async def fetch_task(self, digest: TaskDigest) -> SignedTask:
        """Give what it has for this digest."""
        self.calls.append(("fetch_task", len(digest)))
        return self.tasks[digest]

    async def submit(self, digest: TaskDigest, envelope: bytes, token: bytes = b"") -> bytes:
        """Note an envelope, and fail or acknowledge it."""
        self.calls.append(("submit", len(digest), len(envelope), len(token)))
        self.tried.append(envelope)
        if self.failing is not None:
            raise self.failing
        if self.signs_with is None:
            return b""
        return sign_receipt(self.signs_with, digest, envelope + self.signs_more)

    async def inclusion(self, digest: TaskDigest, prefix: int | None) -> InclusionProof:
        """Show what it has."""
        self.calls.append(("inclusion", len(digest)))
        self.prefixes.append(prefix)
        shown = self.shows
        if prefix is None and self.shows_first is not None:
            shown = self.shows_first
        if shown is not None:
            return shown
        raise PeerError("a shuffler in memory keeps no proofs of inclusion")
