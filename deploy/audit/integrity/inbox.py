"""An analyzer that keeps what it is delivered, byte for byte, and may be away."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from common.crypto.signing import SignedTask
from common.errors import PeerError
from common.messages.batch import BatchManifest
from common.messages.inclusion_proof import BatchCommitment
from common.task_digest import TaskDigest
from deploy.audit.integrity.analyzer_core import AnalyzerCore
from deploy.audit.integrity.spool_file import rows


@dataclass(slots=True, kw_only=True)
class Inbox:
    """Answers a shuffler in an analyzer's place; see shuffler.analyzer_client.Analyzer."""

    tasks: AnalyzerCore
    """Which tasks there are."""
    spool: Path
    """The database of the shuffler that delivers."""
    gives: SignedTask | None = None
    """What it gives whichever task is asked for, where it is not what was published."""
    away: bool = False
    """Whether its answers get lost, after it has heard everything."""
    attempts: list[tuple[BatchManifest, bytes]] = field(default_factory=list)
    """What was sent so far, acknowledged or not."""
    acknowledged: list[BatchManifest] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    """What the shuffler had written of the batch just before the answer, attempt by attempt."""

    async def get_task(self, digest: TaskDigest) -> SignedTask:
        """Give a task."""
        return self.gives or await self.tasks.get_task(digest)

    async def deliver(
        self, manifest: BatchManifest, chunks: AsyncIterator[bytes]
    ) -> BatchCommitment | None:
        """
        Take a delivery. It is not looked into, and nothing is signed.

        Raises:
            PeerError: The answer gets lost.
        """
        self.attempts.append((manifest, b"".join([chunk async for chunk in chunks])))
        query = "SELECT state FROM batches WHERE batch_id = ?"
        self.states += [state for (state,) in rows(self.spool, query, manifest.batch_id)]
        if self.away:
            raise PeerError("the analyzer is away")
        self.acknowledged.append(manifest)
        return None
