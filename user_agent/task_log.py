"""Accept a task only if it is in the analyzer's log, under a checkpoint that witnesses cosigned."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from shuffledp.common.crypto.signing import SignedTask
from shuffledp.common.errors import ProofError
from shuffledp.common.runtime import logs
from shuffledp.common.runtime.clock import Clock
from shuffledp.common.runtime.database import Database
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.transparency.checkpoint import SignedCheckpoint
from shuffledp.common.transparency.log import LogEntry, LogEvidence, LogProof
from shuffledp.common.transparency.witness_policy import ForkError, WitnessPolicy
from shuffledp.common.wire.transparency import evidence_from_bytes, evidence_to_wire

LOG_TABLE: Final = """
CREATE TABLE IF NOT EXISTS log_evidence (
    task_digest BLOB NOT NULL,
    refused INTEGER NOT NULL,
    origin TEXT NOT NULL,
    size INTEGER NOT NULL,
    evidence BLOB NOT NULL,
    PRIMARY KEY (refused, task_digest, evidence)
) WITHOUT ROWID;
"""
_MAX_REFUSED: Final = 64
"""Maximum number of refused checkpoints that are kept."""


@dataclass(frozen=True, slots=True)
class DeviceLog:
    """The device's view of the log."""

    fetch_logged: Callable[[TaskDigest, int], Awaitable[tuple[SignedTask, LogProof]]]
    """Fetches a task, and its proof for a device whose last checkpoint has this size."""
    store: Database
    """Has the table `LOG_TABLE`."""
    policy: WitnessPolicy
    clock: Clock

    async def fetch(self, digest: TaskDigest) -> SignedTask:
        """
        Fetch a task that is in the log, and store the new last checkpoint and the proof.

        If another device was shown another entry at the same index, both proofs convict the log.

        Raises:
            ProofError: As in `WitnessPolicy.check`, the task is not in the log, or another arrived.
            WitnessQuorumError: Too few witnesses cosigned the checkpoint so far.
            ForkError: As in `WitnessPolicy.check`. What was shown is stored as refused evidence.
            PeerError, PeerRefusalError, WireError: The shuffler has no proof, or is away.
        """
        while True:
            last = await self.store.run(last_checkpoint, self.policy.log.name)
            size = last.checkpoint.size if last else 0
            signed, shown = await self.fetch_logged(digest, size)
            entry = await asyncio.to_thread(LogEntry.of_task, signed)
            if not entry.content.startswith(digest):
                raise ProofError("the shuffler returned another task")
            evidence = LogEvidence(
                checkpoint=shown.checkpoint.only((self.policy.log, *self.policy.witnesses)),
                entry=entry,
                index=shown.index,
                path=shown.path,
            )
            now = self.clock.now()
            try:
                self.policy.check(shown.checkpoint, now, last, shown.consistency)
                evidence.verify()
            except ForkError:
                refused = replace(evidence, refused=True)
                await self.store.run(refuse, digest, refused)
                logs.event(
                    "log of tasks may be forked", {"task_digest": digest.hex()}, level="ERROR"
                )
                raise
            if await self.store.run(keep, digest, evidence, size):
                return signed


def last_checkpoint(connection: sqlite3.Connection, origin: str) -> SignedCheckpoint | None:
    """Return the largest accepted checkpoint of a log; None before the first."""
    row = connection.execute(
        "SELECT evidence FROM log_evidence WHERE NOT refused AND origin = ? "
        "ORDER BY size DESC LIMIT 1",
        (origin,),
    ).fetchone()
    return None if row is None else evidence_from_bytes(row[0])[0].checkpoint


def keep(
    connection: sqlite3.Connection, digest: TaskDigest, evidence: LogEvidence, old_size: int
) -> bool:
    """Replace a task's accepted evidence, unless the last checkpoint's size is not `old_size`."""
    last = last_checkpoint(connection, evidence.checkpoint.checkpoint.origin)
    if (last.checkpoint.size if last else 0) != old_size:
        return False
    connection.execute("DELETE FROM log_evidence WHERE NOT refused AND task_digest = ?", (digest,))
    _insert(connection, digest, evidence)
    return True


def refuse(connection: sqlite3.Connection, digest: TaskDigest, evidence: LogEvidence) -> None:
    """Store refused evidence, unless there is too much."""
    [n_refused] = connection.execute("SELECT sum(refused) FROM log_evidence").fetchone()
    if (n_refused or 0) < _MAX_REFUSED:
        _insert(connection, digest, evidence)


def all_evidence(connection: sqlite3.Connection) -> list[LogEvidence]:
    """Return all rows, the accepted first."""
    rows = connection.execute("SELECT evidence FROM log_evidence ORDER BY refused, size")
    return evidence_from_bytes(b"".join(row for (row,) in rows))


def _insert(connection: sqlite3.Connection, digest: TaskDigest, evidence: LogEvidence) -> None:
    head, raw = evidence.checkpoint.checkpoint, evidence_to_wire([evidence])
    connection.execute(
        "INSERT OR IGNORE INTO log_evidence VALUES (?, ?, ?, ?, ?)",
        (digest, evidence.refused, head.origin, head.size, raw.SerializeToString()),
    )
