"""
What this device has given away, and the submissions that it owes: saved before anything is sent.

No true value is ever stored. One row is one person's submission to one task.
"""

import sqlite3
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from common.runtime.database import Database
from common.task_digest import TaskDigest

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS submissions (
    person TEXT NOT NULL,
    task_digest BLOB NOT NULL,
    envelope BLOB NOT NULL,
    local_epsilon REAL NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (person, task_digest)
) WITHOUT ROWID;
"""


class SubmissionState(Enum):
    """How far a submission got."""

    PENDING = "pending"
    ARRIVED = "arrived"
    REFUSED = "refused"
    """The shuffler takes it no more. It may have been counted before its batch closed, if the
    acknowledgement was lost; the spend stands either way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSubmission:
    """What one person sent, or is about to send, for one task, and what it spends."""

    person: str
    task_digest: TaskDigest
    envelope: bytes
    local_epsilon: float
    state: SubmissionState


class Budget:
    """The device's record of submissions, durable."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, _SCHEMA)

    async def find(self, person: str, digest: TaskDigest) -> SavedSubmission | None:
        """Look up what this person submitted to this task."""
        return await self._database.run(_find, person, digest)

    async def spend(self, submission: SavedSubmission) -> SavedSubmission:
        """
        Save a submission before it is sent, and give the one that counts.

        If the person had answered already (two calls at once), that is the earlier one: a task is
        answered once, and the same bytes are sent again.
        """
        return await self._database.run(_spend, submission)

    async def mark(self, submission: SavedSubmission, state: SubmissionState) -> None:
        """Record how far a submission got."""
        await self._database.run(_mark, submission, state)

    async def pending(self) -> list[SavedSubmission]:
        """List what was saved and may not have arrived."""
        return await self._database.run(_pending)

    def close(self) -> None:
        """Close the file."""
        self._database.close()


_SELECT: Final = "SELECT person, task_digest, envelope, local_epsilon, state FROM submissions"


def _saved(row: tuple[str, bytes, bytes, float, str]) -> SavedSubmission:
    person, digest, envelope, local_epsilon, state = row
    return SavedSubmission(
        person=person,
        task_digest=TaskDigest(digest),
        envelope=envelope,
        local_epsilon=local_epsilon,
        state=SubmissionState(state),
    )


def _find(
    connection: sqlite3.Connection, person: str, digest: TaskDigest
) -> SavedSubmission | None:
    query = f"{_SELECT} WHERE person = ? AND task_digest = ?"
    row = connection.execute(query, (person, digest)).fetchone()
    return None if row is None else _saved(row)


def _spend(connection: sqlite3.Connection, submission: SavedSubmission) -> SavedSubmission:
    earlier = _find(connection, submission.person, submission.task_digest)
    if earlier is not None:
        return earlier
    connection.execute(
        "INSERT INTO submissions VALUES (?, ?, ?, ?, ?)",
        (
            submission.person,
            submission.task_digest,
            submission.envelope,
            submission.local_epsilon,
            submission.state.value,
        ),
    )
    return submission


def _mark(
    connection: sqlite3.Connection, submission: SavedSubmission, state: SubmissionState
) -> None:
    connection.execute(
        "UPDATE submissions SET state = ? WHERE person = ? AND task_digest = ?",
        (state.value, submission.person, submission.task_digest),
    )


def _pending(connection: sqlite3.Connection) -> list[SavedSubmission]:
    rows = connection.execute(f"{_SELECT} WHERE state = ?", (SubmissionState.PENDING.value,))
    return [_saved(row) for row in rows]
