"""A shuffler's files, on which it is started as often as wanted, and what is sent to it."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import numpy as np

from common.crypto.hpke import HpkePublicKey, Sealer, envelope_context
from common.crypto.tokens import TokenIdentity
from common.messages.submission import Submission, pack
from common.task.composition import MAX_SHUFFLER_DUMMIES
from common.task.task import SUBMISSION_ID_BYTES, Task
from common.task_digest import TaskDigest
from deploy.audit.integrity.analyzer_core import AnalyzerCore
from deploy.audit.integrity.inbox import Inbox
from deploy.audit.integrity.shuffler_core import SPOOL_FILE, ShufflerCore
from deploy.audit.stand_ins.still_clock import START, StillClock

DEADLINE: Final = int(START) + 3600
"""Of every task here; before it no key of the shuffler comes to its end."""


@dataclass(frozen=True, kw_only=True)
class Sender:
    """
    Makes submissions to one task, as many as wanted.

    They hold random bytes where devices put sealed reports: a shuffler cannot look into either, and
    random bytes are drawn at once.
    """

    digest: TaskDigest
    task: Task
    seal: Sealer
    rng: np.random.Generator

    def envelope(self, submission_id: bytes | None = None) -> bytes:
        """Make one, under an id of its own where none is given."""
        size = self.task.reports_per_user * self.task.sealed_report_bytes
        submission = Submission(
            submission_id=submission_id or self.rng.bytes(SUBMISSION_ID_BYTES),
            sealed_reports=self.rng.bytes(size),
        )
        return self.seal(pack(submission))

    def envelopes(self, count: int) -> list[bytes]:
        """Make so many."""
        return [self.envelope() for _ in range(count)]


@dataclass(frozen=True, kw_only=True)
class ShufflerSite:
    """A shuffler's files, the clock on the wall, and the analyzer that it delivers to."""

    folder: Path
    clock: StillClock
    analyzer: AnalyzerCore
    inbox: Inbox
    rng: np.random.Generator

    @classmethod
    @asynccontextmanager
    async def begun(cls, rng: np.random.Generator) -> AsyncIterator[Self]:
        """Lay one out, empty; it is gone at the end."""
        clock = StillClock()
        with tempfile.TemporaryDirectory(prefix="shuffledp-audit-") as place:
            folder = Path(place) / "shuffler"
            async with AnalyzerCore.started(Path(place) / "analyzer", clock, rng) as analyzer:
                yield cls(
                    folder=folder,
                    clock=clock,
                    analyzer=analyzer,
                    inbox=Inbox(tasks=analyzer, spool=folder / SPOOL_FILE),
                    rng=rng,
                )

    @property
    def spool(self) -> Path:
        """The shuffler's database."""
        return self.folder / SPOOL_FILE

    def shuffler(
        self,
        *,
        tokens: TokenIdentity | None = None,
        minimum_batch: int = 1,
        most_dummies: int = MAX_SHUFFLER_DUMMIES,
        most_of_a_connection: int = 0,
    ) -> AbstractAsyncContextManager[ShufflerCore]:
        """Start the shuffler; see ShufflerCore. What an earlier one stored is there."""
        return ShufflerCore.started(
            self.folder,
            self.inbox,
            self.analyzer.keys.identity.public_identity(),
            self.clock,
            self.rng,
            tokens=tokens,
            minimum_batch=minimum_batch,
            most_dummies=most_dummies,
            most_of_a_connection=most_of_a_connection,
        )

    async def publish(self, task: Task, shuffler: ShufflerCore) -> Sender:
        """Publish a task once more, under a name of its own."""
        key = shuffler.keys.public_key(task.suite)
        own = replace(task, deadline=DEADLINE)
        signed = await self.analyzer.publish(own, key.raw, self.rng)
        digest = signed.digest()
        return Sender(
            digest=digest,
            task=Task.from_bytes(signed.task_bytes),
            seal=HpkePublicKey(task.suite, key.raw).sealer(envelope_context(digest)),
            rng=self.rng,
        )


async def users(shuffler: ShufflerCore, sender: Sender) -> int:
    """Say how many users the shuffler counts."""
    return (await shuffler.collection.progress(sender.digest)).n_users
