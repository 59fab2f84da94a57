"""Ways out for batches without a result: release from quarantine, and erasure from any state."""

import sqlite3
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from shuffledp.analyzer.storage import ledger, task_table
from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import BatchStateError
from shuffledp.common.messages.batch import MAX_REASON_CHARACTERS, BatchId, TaskState
from shuffledp.common.messages.ledger_entry import Decision, DecisionEntry
from shuffledp.common.task_digest import TaskDigest

QUARANTINED: Final = "ALTER TABLE batches ADD COLUMN quarantined INTEGER NOT NULL DEFAULT 0;"

OUTCOMES: Final[Mapping[tuple[TaskState, Decision], TaskState]] = MappingProxyType(
    {
        (TaskState.QUARANTINED, "release"): TaskState.STAGED,
        (TaskState.QUARANTINED, "drop"): TaskState.UNUSABLE,
        (TaskState.UNUSABLE, "drop"): TaskState.UNUSABLE,
        (TaskState.STAGED, "drop"): TaskState.UNUSABLE,
        (TaskState.OVERDUE, "drop"): TaskState.UNUSABLE,
    }
)
"""The states that decisions lead to; no other state has a decision."""


def decide(
    connection: sqlite3.Connection,
    digest: TaskDigest,
    decision: Decision,
    note: str,
    *,
    identity: SigningIdentity,
    now: float,
) -> tuple[DecisionEntry, bool]:
    """
    Sign a decision, add it to the ledger, and change the batch's state: all or nothing.

    The same decision again, with any note, changes nothing.

    Returns the decision as it was made first, and whether this call made it. Raises BatchStateError
    if the task has no batch in a state of `OUTCOMES`.
    """
    known = ledger.find_decision(connection, digest)
    if known is not None and known.decision == decision:
        return known, False
    summary = task_table.summary(connection, digest, now)
    outcome = OUTCOMES.get((summary.state, decision)) if summary else None
    row = connection.execute(
        "SELECT batch_id FROM batches WHERE task_digest = ?", (digest,)
    ).fetchone()
    if summary is None or outcome is None or row is None:
        decided = f"; the operator decided before to {known.decision} its batch" if known else ""
        raise BatchStateError(
            "`batch release` needs a quarantined batch, and `batch drop` one without a result; the "
            f"task is {summary.state.value if summary else 'not listed'}{decided}"
        )
    made = DecisionEntry(
        task_digest=digest,
        batch_id=row[0],
        decision=decision,
        reason=summary.failure[:MAX_REASON_CHARACTERS] or f"the batch was {summary.state.value}",
        note=note,
        decided=int(now),
    )
    entry = ledger.append(connection, made.signed(identity))
    failure = None
    if outcome is TaskState.UNUSABLE:
        failure = f"{entry.reason}; the operator dropped the batch, with the note: {note}"
    connection.execute(  # an unfinished delivery takes no further part
        "UPDATE batches SET quarantined = 0, failure = ?, n_parts = n_parts * staged "
        "WHERE task_digest = ?",
        (failure, digest),
    )
    return entry, True


def ended(connection: sqlite3.Connection, before: float) -> list[TaskDigest]:
    """List tasks with a deadline before this time whose batch has no result and is kept."""
    kept = set(kept_batches(connection))
    rows = connection.execute(
        "SELECT task_digest, batch_id FROM batches JOIN task_lines USING (task_digest) "
        "WHERE deadline < ?",
        (before,),
    )
    return [TaskDigest(digest) for digest, batch_id in rows if batch_id in kept]


def kept_batches(connection: sqlite3.Connection) -> list[BatchId]:
    """List the batches whose blocks are kept: those that are neither released nor dropped."""
    rows = connection.execute(
        "SELECT batch_id FROM batches WHERE task_digest NOT IN (SELECT task_digest FROM results) "
        "AND task_digest NOT IN (SELECT task_digest FROM decisions WHERE decision = 'drop')"
    )
    return [BatchId(batch_id) for (batch_id,) in rows]
