"""
What this device has given away, the submissions it owes, and the evidence of what became of them.

Saved before anything is sent. No true value is ever stored. Each person's answer to a task is one
row of submissions and one of evidence. The leaves of one's own sealed reports name them among all
that the analyzer received: they are kept until it is known whether the reports were counted, and
longer only if they were not.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import astuple, dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from common.runtime.database import Database, storage_failures
from common.task_digest import TaskDigest
from user_agent.contribution import PreparedSubmission
from user_agent.policy import Claim, Policy, check_totals

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS submissions (
    person TEXT NOT NULL,
    task_digest BLOB NOT NULL,
    envelope BLOB NOT NULL,
    local_epsilon REAL NOT NULL,
    state TEXT NOT NULL,
    central_epsilon REAL NOT NULL,
    delta REAL NOT NULL,
    PRIMARY KEY (person, task_digest)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lasting_secret (
    fingerprint BLOB PRIMARY KEY
) WITHOUT ROWID;
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


class SubmissionState(Enum):
    """How far a submission got."""

    PENDING = "pending"
    ARRIVED = "arrived"
    REFUSED = "refused"
    """The shuffler takes it no more. It may have been counted before its batch closed, if the
    acknowledgement was lost; the spend stands either way."""


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
class SavedSubmission:
    """What one person sent, or is about to send, for one task, and what it spends."""

    person: str
    task_digest: TaskDigest
    envelope: bytes
    claim: Claim
    state: SubmissionState


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is kept of one answer to check on it."""

    person: str
    task_digest: TaskDigest
    leaves: bytes
    """Of its sealed reports, sorted, one after the other; empty where nothing is to be checked."""
    deadline: int
    inclusion: InclusionState
    receipt: bytes
    """Empty before the shuffler has acknowledged it."""
    receipt_verified: bool


class Budget:
    """The device's record of submissions, durable."""

    def __init__(self, path: Path) -> None:
        _upgrade(path)
        self._database = Database(path, _SCHEMA)

    async def recognises(self, fingerprint: bytes) -> bool:
        """Return whether lasting noise always followed from this secret, or does from now on."""
        return await self._database.run(_recognises, fingerprint)

    async def find(self, person: str, digest: TaskDigest) -> SavedSubmission | None:
        """Look up what this person submitted to this task."""
        return await self._database.run(_find, person, digest)

    async def spend(
        self,
        person: str,
        digest: TaskDigest,
        claim: Claim,
        policy: Policy,
        prepare: Callable[[], PreparedSubmission],
    ) -> tuple[SavedSubmission, bool]:
        """
        Charge an answer and save it before it is sent: all of it, or nothing.

        If the person had answered already (two calls at once), the earlier answer counts: a task is
        answered once, and the same bytes are sent again. Caps are checked and the answer is saved
        in one transaction, so that two answers at once cannot both pass. Within it, in the
        database's thread, `prepare` makes the answer once the caps are kept; its errors come
        through.

        Returns:
            The submission that counts, and whether it was there before.

        Raises:
            BudgetError: A cap would be exceeded.
        """
        return await self._database.run(
            _spend, person, digest, claim=claim, policy=policy, prepare=prepare
        )

    async def refused(self, submission: SavedSubmission) -> None:
        """Record that the shuffler takes a submission no more, unless it has acknowledged it."""
        await self._database.run(_mark, submission, SubmissionState.REFUSED)

    async def arrived(self, submission: SavedSubmission, receipt: bytes, *, verified: bool) -> None:
        """Record that the shuffler has acknowledged a submission, and its receipt, at once."""
        await self._database.run(_arrived, submission, receipt, verified=verified)

    async def evidence(self, person: str, digest: TaskDigest) -> Evidence | None:
        """Look up what is kept of this person's answer to check on it."""
        found = await self._database.run(
            _evidence, "WHERE person = ? AND task_digest = ?", person, digest
        )
        return found[0] if found else None

    async def unchecked(self) -> list[Evidence]:
        """List what arrived and has not been proven to be counted or missing."""
        return await self._database.run(
            _evidence,
            "JOIN submissions USING (person, task_digest) "
            "WHERE inclusion = 'unchecked' AND state = 'arrived'",
        )

    async def conclude(self, checked: Evidence, inclusion: InclusionState) -> None:
        """Record what came of a check; leaves that are not needed any more leave no trace."""
        await self._database.run(_conclude, checked, inclusion)
        await self._database.empty_log()

    async def pending(self) -> list[SavedSubmission]:
        """List what was saved and may not have arrived."""
        return await self._database.run(_pending)

    def close(self) -> None:
        """Close the file."""
        self._database.close()


_COLUMNS: Final = "person, task_digest, envelope, local_epsilon, central_epsilon, delta, state"
_SELECT: Final = f"SELECT {_COLUMNS} FROM submissions"  # noqa: S608
_SELECT_EVIDENCE: Final = (
    "SELECT person, task_digest, leaves, deadline, inclusion, receipt, receipt_verified "
    "FROM evidence "
)


def _upgrade(path: Path) -> None:
    """
    Add to a file of an earlier version what each answer cost against the analyzer.

    It was not kept; the local ε, at δ = 0, is an upper bound whatever the shuffler did.
    """
    if not path.exists():
        return
    with storage_failures(), closing(sqlite3.connect(path)) as connection:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(submissions)")}
        if columns and "central_epsilon" not in columns:
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                for column in ("central_epsilon", "delta"):
                    connection.execute(
                        f"ALTER TABLE submissions ADD COLUMN {column} REAL NOT NULL DEFAULT 0"
                    )
                connection.execute("UPDATE submissions SET central_epsilon = local_epsilon")


def _saved(row: tuple[str, bytes, bytes, float, float, float, str]) -> SavedSubmission:
    person, digest, envelope, local_epsilon, central_epsilon, delta, state = row
    return SavedSubmission(
        person=person,
        task_digest=TaskDigest(digest),
        envelope=envelope,
        claim=Claim(local_epsilon=local_epsilon, central_epsilon=central_epsilon, delta=delta),
        state=SubmissionState(state),
    )


def _recognises(connection: sqlite3.Connection, fingerprint: bytes) -> bool:
    row = connection.execute("SELECT fingerprint FROM lasting_secret").fetchone()
    if row is None:
        connection.execute("INSERT INTO lasting_secret (fingerprint) VALUES (?)", (fingerprint,))
    return row is None or bytes(row[0]) == fingerprint


def _find(
    connection: sqlite3.Connection, person: str, digest: TaskDigest
) -> SavedSubmission | None:
    query = f"{_SELECT} WHERE person = ? AND task_digest = ?"
    row = connection.execute(query, (person, digest)).fetchone()
    return None if row is None else _saved(row)


def _pending(connection: sqlite3.Connection) -> list[SavedSubmission]:
    rows = connection.execute(f"{_SELECT} WHERE state = ?", (SubmissionState.PENDING.value,))
    return [_saved(row) for row in rows]


def _spend(
    connection: sqlite3.Connection,
    person: str,
    digest: TaskDigest,
    *,
    claim: Claim,
    policy: Policy,
    prepare: Callable[[], PreparedSubmission],
) -> tuple[SavedSubmission, bool]:
    earlier = _find(connection, person, digest)
    if earlier is not None:
        return earlier, True
    check_totals(policy, _claims(connection, person), claim)
    answer = prepare()
    submission = SavedSubmission(
        person=person,
        task_digest=digest,
        envelope=answer.envelope,
        claim=claim,
        state=SubmissionState.PENDING,
    )
    connection.execute(
        f"INSERT INTO submissions ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        (person, digest, answer.envelope, *astuple(claim), submission.state.value),
    )
    # Where the shuffler samples, nothing is kept or asked: a missing leaf proves nothing, and
    # whether it is there is the very secret that sampling protects by.
    leaves = b"" if answer.sampled else b"".join(sorted(answer.leaves))
    inclusion = InclusionState.UNCHECKED if leaves else InclusionState.SAMPLED
    connection.execute(
        "INSERT INTO evidence VALUES (?, ?, ?, ?, ?, ?, ?)",
        (person, digest, leaves, answer.deadline, inclusion.value, b"", False),
    )
    return submission, False


def _claims(connection: sqlite3.Connection, person: str) -> list[Claim]:
    rows = connection.execute(
        "SELECT local_epsilon, central_epsilon, delta FROM submissions WHERE person = ?", (person,)
    )
    return [
        Claim(local_epsilon=local_epsilon, central_epsilon=central_epsilon, delta=delta)
        for local_epsilon, central_epsilon, delta in rows
    ]


def _mark(
    connection: sqlite3.Connection, submission: SavedSubmission, state: SubmissionState
) -> None:
    """Two calls may send the same bytes; what has been acknowledged stays so."""
    connection.execute(
        "UPDATE submissions SET state = ? WHERE person = ? AND task_digest = ? AND state != ?",
        (state.value, submission.person, submission.task_digest, SubmissionState.ARRIVED.value),
    )


def _arrived(
    connection: sqlite3.Connection, submission: SavedSubmission, receipt: bytes, *, verified: bool
) -> None:
    """Where an earlier version sent the answer, there is no row of evidence."""
    _mark(connection, submission, SubmissionState.ARRIVED)
    connection.execute(
        "UPDATE evidence SET receipt = ?, receipt_verified = ? "
        "WHERE person = ? AND task_digest = ?",
        (receipt, verified, submission.person, submission.task_digest),
    )


def _conclude(connection: sqlite3.Connection, checked: Evidence, inclusion: InclusionState) -> None:
    """Keep the leaves only if one of them is missing."""
    leaves = checked.leaves if inclusion is InclusionState.MISSING else b""
    connection.execute(
        "UPDATE evidence SET inclusion = ?, leaves = ? WHERE person = ? AND task_digest = ?",
        (inclusion.value, leaves, checked.person, checked.task_digest),
    )


def _evidence(connection: sqlite3.Connection, where: str, *values: str | bytes) -> list[Evidence]:
    rows = connection.execute(_SELECT_EVIDENCE + where, values)
    return [
        Evidence(
            person=person,
            task_digest=TaskDigest(digest),
            leaves=leaves,
            deadline=deadline,
            inclusion=InclusionState(inclusion),
            receipt=receipt,
            receipt_verified=bool(verified),
        )
        for person, digest, leaves, deadline, inclusion, receipt, verified in rows
    ]
