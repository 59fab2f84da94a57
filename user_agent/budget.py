"""
What this device has given away, and the sealed bytes that it owes: saved before anything is sent.

No true value is ever stored. One row is one person's answer to one task.
"""

import sqlite3
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from common.hpke import TaskDigest
from common.runtime.database import Database

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS answers (
    person TEXT NOT NULL,
    task_digest BLOB NOT NULL,
    envelope BLOB NOT NULL,
    local_epsilon REAL NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (person, task_digest)
) WITHOUT ROWID;
"""


class AnswerState(Enum):
    """How far an answer got."""

    PENDING = "pending"
    ARRIVED = "arrived"
    REFUSED = "refused"
    """The shuffler will not take it any more; the spend stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one person sent, or is about to send, for one task."""

    person: str
    task_digest: TaskDigest
    envelope: bytes
    local_epsilon: float
    state: AnswerState


class Budget:
    """The device's record of answers, durable."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, _SCHEMA)

    async def find(self, person: str, digest: TaskDigest) -> Answer | None:
        """Look up what this person answered to this task."""
        return await self._database.run(_find, person, digest)

    async def spend(self, answer: Answer) -> Answer:
        """
        Save an answer before it is sent, and give the one that counts.

        If the person had answered already (two calls at once), that is the earlier one: a task is
        answered once, and the same bytes are sent again.
        """
        return await self._database.run(_spend, answer)

    async def mark(self, answer: Answer, state: AnswerState) -> None:
        """Record how far an answer got."""
        await self._database.run(_mark, answer, state)

    async def pending(self) -> list[Answer]:
        """List what was saved and may not have arrived."""
        return await self._database.run(_pending)

    def close(self) -> None:
        """Close the file."""
        self._database.close()


_COLUMNS: Final = "person, task_digest, envelope, local_epsilon, state"


def _answer(row: tuple[str, bytes, bytes, float, str]) -> Answer:
    person, digest, envelope, local_epsilon, state = row
    return Answer(
        person=person,
        task_digest=TaskDigest(digest),
        envelope=envelope,
        local_epsilon=local_epsilon,
        state=AnswerState(state),
    )


def _find(connection: sqlite3.Connection, person: str, digest: TaskDigest) -> Answer | None:
    query = f"SELECT {_COLUMNS} FROM answers WHERE person = ? AND task_digest = ?"  # noqa: S608
    row = connection.execute(query, (person, digest)).fetchone()
    return None if row is None else _answer(row)


def _spend(connection: sqlite3.Connection, answer: Answer) -> Answer:
    connection.execute(
        f"INSERT OR IGNORE INTO answers ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)",  # noqa: S608
        (
            answer.person,
            answer.task_digest,
            answer.envelope,
            answer.local_epsilon,
            answer.state.value,
        ),
    )
    return _find(connection, answer.person, answer.task_digest) or answer


def _mark(connection: sqlite3.Connection, answer: Answer, state: AnswerState) -> None:
    connection.execute(
        "UPDATE answers SET state = ? WHERE person = ? AND task_digest = ?",
        (state.value, answer.person, answer.task_digest),
    )


def _pending(connection: sqlite3.Connection) -> list[Answer]:
    query = f"SELECT {_COLUMNS} FROM answers WHERE state = ?"  # noqa: S608
    return [_answer(row) for row in connection.execute(query, (AnswerState.PENDING.value,))]
