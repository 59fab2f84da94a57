"""
What this device keeps to hold the shuffler to its word: rows beside the submissions.

Leaves of one's own sealed reports name them among all that the analyzer received. They are kept
until it is known whether they were counted, and longer only if they were not.
"""

import sqlite3
from dataclasses import dataclass
from enum import Enum
from typing import Final

from common.task_digest import TaskDigest
from user_agent.contribution import PreparedSubmission

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS evidence (
    person TEXT NOT NULL,
    task_digest BLOB NOT NULL,
    leaves BLOB NOT NULL,
    deadline INTEGER NOT NULL,
    inclusion TEXT NOT NULL,
    receipt BLOB NOT NULL,
    receipt_verified INTEGER NOT NULL,
    PRIMARY KEY (person, task_digest)
) WITHOUT ROWID;
"""


class InclusionState(Enum):
    """What was proven of an answer."""

    UNCHECKED = "unchecked"
    """No proof has been seen yet."""
    COUNTED = "counted"
    """The analyzer has signed for its reports."""
    MISSING = "missing"
    """The analyzer has signed for a batch that lacks a report of it."""
    SAMPLED = "sampled"
    """The task lets the shuffler drop reports: a missing one would prove nothing."""
    UNPROVEN = "unproven"
    """Long after the deadline no proof has been shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is kept of one answer."""

    person: str
    task_digest: TaskDigest
    leaves: bytes
    """Of its sealed reports, sorted, one after the other; empty where nothing is to be checked."""
    deadline: int
    inclusion: InclusionState
    receipt: bytes
    """Empty before the shuffler has acknowledged it."""
    receipt_verified: bool


def begin(
    connection: sqlite3.Connection, person: str, digest: TaskDigest, answer: PreparedSubmission
) -> None:
    """
    Keep the leaves of an answer, in the transaction that saves it.

    Where the shuffler samples, nothing is kept or asked: a missing leaf proves nothing, and whether
    it is there is the very secret that sampling protects by.
    """
    leaves = b"" if answer.sampled else b"".join(sorted(answer.leaves))
    inclusion = InclusionState.UNCHECKED if leaves else InclusionState.SAMPLED
    connection.execute(
        "INSERT INTO evidence VALUES (?, ?, ?, ?, ?, ?, ?)",
        (person, digest, leaves, answer.deadline, inclusion.value, b"", False),
    )


def keep_receipt(
    connection: sqlite3.Connection,
    person: str,
    digest: TaskDigest,
    receipt: bytes,
    *,
    verified: bool,
) -> None:
    """Keep a receipt; where an earlier version sent the answer, there is no row for it."""
    connection.execute(
        "UPDATE evidence SET receipt = ?, receipt_verified = ? "
        "WHERE person = ? AND task_digest = ?",
        (receipt, verified, person, digest),
    )


def conclude(connection: sqlite3.Connection, evidence: Evidence, inclusion: InclusionState) -> None:
    """Keep what came of a check, and the leaves only if one of them is missing."""
    leaves = evidence.leaves if inclusion is InclusionState.MISSING else b""
    connection.execute(
        "UPDATE evidence SET inclusion = ?, leaves = ? WHERE person = ? AND task_digest = ?",
        (inclusion.value, leaves, evidence.person, evidence.task_digest),
    )


_SELECT: Final = (
    "SELECT person, task_digest, leaves, deadline, inclusion, receipt, receipt_verified "
    "FROM evidence"
)


def find(connection: sqlite3.Connection, person: str, digest: TaskDigest) -> Evidence | None:
    """Look up what is kept of this person's answer to this task."""
    query = f"{_SELECT} WHERE person = ? AND task_digest = ?"
    row = connection.execute(query, (person, digest)).fetchone()
    return None if row is None else _evidence(row)


def unchecked(connection: sqlite3.Connection) -> list[Evidence]:
    """List what arrived and has not been proven to be counted or missing."""
    query = (
        f"{_SELECT} JOIN submissions USING (person, task_digest) "
        "WHERE inclusion = 'unchecked' AND state = 'arrived'"
    )
    return [_evidence(row) for row in connection.execute(query)]


def _evidence(row: tuple[str, bytes, bytes, int, str, bytes, int]) -> Evidence:
    person, digest, leaves, deadline, inclusion, receipt, verified = row
    return Evidence(
        person=person,
        task_digest=TaskDigest(digest),
        leaves=leaves,
        deadline=deadline,
        inclusion=InclusionState(inclusion),
        receipt=receipt,
        receipt_verified=bool(verified),
    )
