"""
The device's database: spent budgets, submissions, and evidence of whether they were counted.

Everything is saved, and its charge counted in a second file, before it is sent; no true value is
stored. Each person's answer to a task has one row in `submissions` and one in `evidence`, and one
in `tokens`; to a lasting question, one in `lasting_answers`, with a hash of the text that is keyed
by the permanent secret. Leaves identify a person's sealed reports in the batch, and the envelope
holds them, so the leaves are deleted, and the envelope is replaced by its hash, in the same column,
when the check of an answer ends, unless a report is missing.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import numpy as np

from shuffledp.common.crypto.privacy_tokens import PendingToken, TokenKey
from shuffledp.common.crypto.signing import envelope_hash
from shuffledp.common.errors import PolicyError, SettingsError
from shuffledp.common.runtime.database import Database, Schema
from shuffledp.common.task_digest import TaskDigest
from shuffledp.user_agent import charge_counter
from shuffledp.user_agent.charge_counter import CHAINED_COLUMN, COALITION_COLUMN, Charge
from shuffledp.user_agent.contribution import PreparedSubmission
from shuffledp.user_agent.policy import Claim
from shuffledp.user_agent.task_log import LOG_TABLE

_TABLES: Final = """
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

_TOKENS: Final = """
CREATE TABLE IF NOT EXISTS tokens (
    person TEXT NOT NULL,
    task_digest BLOB NOT NULL,
    key BLOB NOT NULL,
    challenge BLOB NOT NULL,
    pending BLOB NOT NULL,
    token BLOB NOT NULL,
    PRIMARY KEY (person, task_digest)
) WITHOUT ROWID;
"""
"""Each answer's token key and, until the answer has arrived, the secrets of its pending token, or
the token."""


_LASTING: Final = """
CREATE TABLE IF NOT EXISTS lasting_answers (
    person TEXT NOT NULL,
    task_digest BLOB NOT NULL,
    scope BLOB NOT NULL,
    text_hash BLOB NOT NULL,
    permanent_epsilon REAL NOT NULL,
    PRIMARY KEY (person, task_digest)
) WITHOUT ROWID;
"""
"""Other answers have no row, and count by the sum of their ε."""
_STORE_ID: Final = """
CREATE TABLE IF NOT EXISTS store_id (
    id BLOB PRIMARY KEY
) WITHOUT ROWID;
"""
"""A random id, by which the counter of charges knows its store; empty before the first start."""
_STEPS: Final = (
    *(_TABLES, _TOKENS, LOG_TABLE, _LASTING, _STORE_ID),
    "ALTER TABLE evidence DROP COLUMN receipt_verified;",  # every saved receipt is verified
    COALITION_COLUMN.format("submissions")
    + "ALTER TABLE evidence ADD COLUMN most_leaves INTEGER NOT NULL DEFAULT 0x7FFFFFFFFFFFFFFF;"
    "CREATE TABLE IF NOT EXISTS pinned_relays (identity BLOB PRIMARY KEY) WITHOUT ROWID;",
    CHAINED_COLUMN.format("submissions"),
)


class SubmissionState(StrEnum):
    """Delivery state of a submission."""

    PENDING = "pending"
    ARRIVED = "arrived"
    REFUSED = "refused"
    """The shuffler or the issuer refused the submission. If an acknowledgement was lost, it may
    still have been counted; its cost counts either way."""
    LOST = "lost"
    """The store was restored from a backup without this answer. It counts, and is never sent. One
    of no task stands for all that is unknown."""


class InclusionState(StrEnum):
    """Outcome of checking that an answer was counted."""

    UNCHECKED = "unchecked"
    """No proof has been seen yet."""
    COUNTED = "counted"
    """The analyzer's signed commitment includes every report checked."""
    MISSING = "missing"
    """The analyzer's signed commitment lacks at least one report checked."""
    SAMPLED = "sampled"
    """Never checked: the task lets the shuffler drop reports, so a missing one proves nothing."""
    UNPROVEN = "unproven"
    """There is still no proof PROOF_DAYS after the deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSubmission:
    """One person's submission to one task, its cost, and evidence of whether it was counted."""

    person: str
    task_digest: TaskDigest
    envelope: bytes | None
    """None once it is not needed any more, and for a lost answer."""
    envelope_hash: bytes
    """The envelope's SHA-256."""
    claim: Claim
    state: SubmissionState
    leaves: bytes
    """Sorted, concatenated leaves of the sealed reports to check: all of them, or those drawn;
    empty if none are left to check."""
    deadline: float
    """The task's, in seconds since 1970 UTC; infinite for a lost answer."""
    inclusion: InclusionState
    receipt: bytes
    """Verified; empty until the shuffler acknowledges the submission."""
    most_leaves: int
    """Maximum of the batch."""

    @property
    def charge(self) -> Charge:
        """The row of the counter of charges."""
        return (self.person, self.task_digest, self.envelope_hash, *astuple(self.claim)[:_CHARGED])


class DeviceStore(Database):
    """Stores submissions, their costs and their evidence, durably; `run` is for `task_log`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Schema(steps=_STEPS, readable_from=8))
        self.arrived = asyncio.Event()
        """Set when an answer has arrived."""
        try:
            later = (each.format("charges") for each in (COALITION_COLUMN, CHAINED_COLUMN))
            counter = Schema(steps=(charge_counter.TABLES, *later), readable_from=3)
            self._counter = Database(path.with_name(charge_counter.FILE), counter)
        except BaseException:
            super().close()
            raise

    async def check_counter(
        self, everything: Claim, rng: np.random.Generator, *, confirmed: bool
    ) -> None:
        """
        Compare the store with the counter of charges, before anything is sent. Run at start.

        If the store lacks charges that were counted, they are added to it once the person has
        `confirmed` that it was restored. `everything` is charged to each person if the counter is
        missing or another store's, or if both files are new although a restore is confirmed. `rng`
        draws the id of a new store.

        Safe to repeat after a crash.

        Raises:
            SettingsError: Charges or the counter are missing, and the person has not confirmed it.
        """
        own = b"".join(row[0] for row in await self.fetch("SELECT id FROM store_id"))
        counted, charged = await self._counter.run(charge_counter.charges)
        known = {charge[:2] for charge in await self._charges()}
        lost = [charge for charge in charged if charge[:2] not in known]
        fits, both_new = own in {b"", counted}, not (own or counted)
        if not fits or (confirmed and both_new):
            lost = [("", b"", b"", *astuple(everything)[:_CHARGED])]
        if lost and not confirmed:
            raise SettingsError(
                f"the counter of charges, {charge_counter.FILE}, does not fit this device's store, "
                "as after a restore: what was charged since the backup counts as spent or, if the "
                "counter is lost, every cap as spent wholly. To go on: shuffledp keys "
                "confirm-restore STATE_DIRECTORY"
            )
        await self.run(_add_lost, lost)
        own = own or counted or rng.bytes(_ID_BYTES)
        await self._counter.run(charge_counter.replace_charges, own, await self._charges())
        await self.fetch("INSERT OR IGNORE INTO store_id VALUES (?)", own)
        await self.run(_drop_envelopes)

    async def _charges(self) -> list[Charge]:
        return [saved.charge for saved in map(_saved, await self.fetch(_SELECT))]

    async def count(self, submission: SavedSubmission) -> None:
        """Count a saved submission's charge, before anything of it is sent. Safe to repeat."""
        await self._counter.run(charge_counter.count, [submission.charge])

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._counter.close()

    async def pin_fingerprint(self, fingerprint: bytes) -> bool:
        """Pin the permanent secret's fingerprint; return False if another one is pinned."""
        await self.fetch(
            "INSERT INTO lasting_secret SELECT ? WHERE NOT EXISTS (SELECT 1 FROM lasting_secret)",
            fingerprint,
        )
        return await self.fetch("SELECT fingerprint FROM lasting_secret") == [(fingerprint,)]

    async def pin_relay(self, identity: str) -> bool:
        """Record the pin of a second shuffler; return whether it is new."""
        statement = "INSERT OR IGNORE INTO pinned_relays VALUES (?) RETURNING 1"
        return bool(await self.fetch(statement, identity))

    async def find(self, person: str, digest: TaskDigest) -> SavedSubmission | None:
        """Look up a person's submission to a task; None if there is none."""
        found = await self.run(_find, person, digest)
        return found[0] if found else None

    async def charge(
        self,
        person: str,
        digest: TaskDigest,
        claim: Claim,
        check: Callable[[Sequence[Claim], Claim], None],
        prepare: Callable[[], PreparedSubmission],
        *,
        pending: PendingToken | None = None,
    ) -> tuple[SavedSubmission, bool]:
        """
        Check a person's total cost, prepare an answer, and save it, in one transaction.

        `check` gets the person's earlier claims and the new one, and raises an error if they exceed
        a cap. With the answer its pending token is saved, if the task requires tokens.

        Two concurrent answers therefore cannot both pass a cap. `check` and `prepare` run in the
        database's thread; if one of them raises, the error propagates and nothing is charged. If
        the person has already answered the task, that answer is returned and neither runs.

        Returns:
            The saved submission, and whether it already existed.
        """

        def charge(connection: sqlite3.Connection) -> tuple[SavedSubmission, bool]:
            earlier = _find(connection, person, digest)
            if not earlier:
                check(_claims(connection, person), claim)
                if pending is not None:
                    _check_new_key(connection, person, pending)
                _insert(connection, person, digest, claim, prepare(), pending=pending)
            [submission] = earlier or _find(connection, person, digest)
            return submission, bool(earlier)

        return await self.run(charge)

    async def token(self, submission: SavedSubmission) -> PendingToken | bytes:
        """Return the answer's token, or its pending one; empty if the task requires none."""
        rows = await self.fetch(
            "SELECT key, challenge, pending, token FROM tokens "
            "WHERE person = ? AND task_digest = ?",
            *(submission.person, submission.task_digest),
        )
        if not rows:
            return b""
        [(key, challenge, pending, token)] = rows
        if not pending:
            return bytes(token)
        return PendingToken.from_bytes(pending, TokenKey(key), challenge)

    async def keep_token(self, submission: SavedSubmission, token: bytes) -> None:
        """Keep a token, and erase the secrets that link it to its request."""
        await self.run(_keep_token, submission, token)
        await self.empty_log()

    async def mark_refused(self, submission: SavedSubmission) -> None:
        """Record that a submission was refused, unless it has already arrived."""
        await self.run(_set_state, submission, SubmissionState.REFUSED)

    async def mark_arrived(self, submission: SavedSubmission, receipt: bytes) -> None:
        """Record that the shuffler acknowledged a submission, with its verified receipt."""

        def mark_arrived(connection: sqlite3.Connection) -> None:
            _set_state(connection, submission, SubmissionState.ARRIVED)
            _keep_token(connection, submission, b"")
            connection.execute(
                "UPDATE evidence SET receipt = ? WHERE person = ? AND task_digest = ?",
                (receipt, submission.person, submission.task_digest),
            )

        await self.run(mark_arrived)
        await self.run(_drop_envelopes)
        self.arrived.set()
        await self.empty_log()

    async def list_unchecked(self) -> list[SavedSubmission]:
        """List the answers that arrived and whose inclusion is still unknown."""
        rows = await self.fetch(f"{_SELECT} WHERE inclusion = 'unchecked' AND state = 'arrived'")
        return list(map(_saved, rows))

    async def keep_leaves(self, answer: SavedSubmission, leaves: bytes) -> SavedSubmission:
        """Replace an unchecked answer's leaves by a subset; return the changed answer."""
        await self._update(answer, InclusionState.UNCHECKED, leaves)
        return replace(answer, leaves=leaves)

    async def record_inclusion(self, answer: SavedSubmission, inclusion: InclusionState) -> None:
        """Record the outcome of a check; unless it is MISSING, erase leaves and envelope."""
        leaves = answer.leaves if inclusion is InclusionState.MISSING else b""
        await self._update(answer, inclusion, leaves)

    async def _update(
        self, answer: SavedSubmission, inclusion: InclusionState, leaves: bytes
    ) -> None:
        await self.fetch(
            "UPDATE evidence SET inclusion = ?, leaves = ? WHERE person = ? AND task_digest = ?",
            *(inclusion.value, leaves, answer.person, answer.task_digest),
        )
        await self.run(_drop_envelopes)
        await self.empty_log()

    async def pending(self) -> list[SavedSubmission]:
        """List the submissions that have neither arrived nor been refused."""
        rows = await self.fetch(f"{_SELECT} WHERE state = ?", SubmissionState.PENDING.value)
        return list(map(_saved, rows))


_HASH_BYTES: Final = 32
"""Length of an envelope's hash in its place. Every envelope is longer."""
_ID_BYTES: Final = 16
_ADD: Final = (
    "INSERT INTO submissions (person, task_digest, envelope, local_epsilon, central_epsilon, "
    "delta, coalition_epsilon, chained, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_CLAIM: Final = (
    "local_epsilon, central_epsilon, delta, coalition_epsilon, chained, coalesce(scope, x''), "
    "coalesce(text_hash, x''), coalesce(permanent_epsilon, 9e999)"
)
_CLAIM_COLUMNS: Final = len(fields(Claim))
_CHARGED: Final = 5
"""Number of those that the table of charges has too."""
_SELECT: Final = (
    "SELECT person, task_digest, envelope, state, coalesce(inclusion, 'unchecked'), "  # noqa: S608
    "coalesce(leaves, x''), coalesce(deadline, 9e999), coalesce(receipt, x''), "
    f"coalesce(most_leaves, 0), {_CLAIM} FROM submissions "
    "LEFT JOIN evidence USING (person, task_digest) "
    "LEFT JOIN lasting_answers USING (person, task_digest)"
)


def _claim(row: Sequence[Any]) -> Claim:
    """Return the claim in a row of the columns _CLAIM, which are in the order of its fields."""
    claim = Claim(**{field.name: value for field, value in zip(fields(Claim), row, strict=True)})
    return replace(claim, chained=bool(claim.chained))


def _saved(row: tuple[Any, ...]) -> SavedSubmission:
    person, digest, envelope, state, inclusion, *evidence = row[:-_CLAIM_COLUMNS]
    hashed = len(envelope) == _HASH_BYTES
    return SavedSubmission(
        person=person,
        task_digest=TaskDigest(digest),
        envelope=None if hashed else envelope,
        envelope_hash=envelope if hashed else envelope_hash(envelope),
        claim=_claim(row[-_CLAIM_COLUMNS:]),
        state=SubmissionState(state),
        inclusion=InclusionState(inclusion),
        **dict(zip(("leaves", "deadline", "receipt", "most_leaves"), evidence, strict=True)),
    )


def _find(connection: sqlite3.Connection, person: str, digest: TaskDigest) -> list[SavedSubmission]:
    """Return a person's submission to a task, if there is one."""
    query = f"{_SELECT} WHERE person = ? AND task_digest = ?"
    return list(map(_saved, connection.execute(query, (person, digest))))


def _insert(
    connection: sqlite3.Connection,
    person: str,
    digest: TaskDigest,
    claim: Claim,
    prepared: PreparedSubmission,
    *,
    pending: PendingToken | None,
) -> None:
    charged, state = astuple(claim)[:_CHARGED], SubmissionState.PENDING.value
    connection.execute(_ADD, (person, digest, prepared.envelope, *charged, state))
    if claim.scope_hash:
        row = (person, digest, claim.scope_hash, claim.text_hash, claim.permanent_epsilon)
        connection.execute("INSERT INTO lasting_answers VALUES (?, ?, ?, ?, ?)", row)
    # If the shuffler samples, a missing leaf proves nothing, and asking for it would reveal the
    # secret that sampling relies on.
    task, sampled = prepared.task, prepared.task.shuffler.keep_probability < 1
    leaves = b"" if sampled else b"".join(sorted(prepared.leaves))
    inclusion = InclusionState.UNCHECKED if leaves else InclusionState.SAMPLED
    connection.execute(
        "INSERT INTO evidence VALUES (?, ?, ?, ?, ?, ?, ?)",
        (person, digest, leaves, task.deadline, inclusion.value, b"", task.most_leaves),
    )
    if pending is not None:
        connection.execute(
            "INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?)",
            (person, digest, pending.key.der, pending.challenge, pending.to_bytes(), b""),
        )


def _check_new_key(connection: sqlite3.Connection, person: str, pending: PendingToken) -> None:
    """Raise PolicyError if the person answered another task with this token key."""
    query = "SELECT count(*) FROM tokens WHERE person = ? AND key = ?"
    if connection.execute(query, (person, pending.key.der)).fetchone()[0]:
        raise PolicyError(
            "an earlier task had the same token key, of which a person gets one token only; each "
            "task needs a key of its own"
        )


def _keep_token(connection: sqlite3.Connection, submission: SavedSubmission, token: bytes) -> None:
    connection.execute(
        "UPDATE tokens SET token = ?, pending = x'' WHERE person = ? AND task_digest = ?",
        (token, submission.person, submission.task_digest),
    )


def _claims(connection: sqlite3.Connection, person: str) -> list[Claim]:
    rows = connection.execute(
        f"SELECT {_CLAIM} FROM submissions "  # noqa: S608
        "LEFT JOIN lasting_answers USING (person, task_digest) "
        "WHERE person = ? OR task_digest = x''",
        (person,),
    )
    return list(map(_claim, rows))


def _set_state(
    connection: sqlite3.Connection, submission: SavedSubmission, state: SubmissionState
) -> None:
    """Set the state of a submission that has not arrived: two calls may send the same bytes."""
    connection.execute(
        "UPDATE submissions SET state = ? WHERE person = ? AND task_digest = ? AND state != ?",
        (state.value, submission.person, submission.task_digest, SubmissionState.ARRIVED.value),
    )


def _add_lost(connection: sqlite3.Connection, lost: Sequence[Charge]) -> None:
    """Add charges of answers that the store has forgotten; none ever gets less."""
    connection.executemany(
        f"{_ADD} ON CONFLICT DO UPDATE SET state = excluded.state, envelope = excluded.envelope, "
        "local_epsilon = max(local_epsilon, excluded.local_epsilon), delta = max(delta, "
        "excluded.delta), central_epsilon = max(central_epsilon, excluded.central_epsilon), "
        "coalition_epsilon = max(coalition_epsilon, excluded.coalition_epsilon)",
        [(*charge, SubmissionState.LOST.value) for charge in lost],
    )


def _drop_envelopes(connection: sqlite3.Connection) -> None:
    """Keep only the hashes of envelopes that arrived and are not checked any more."""
    connection.create_function("envelope_hash", 1, envelope_hash)
    connection.execute(
        "UPDATE submissions SET envelope = envelope_hash(envelope) "
        "WHERE state = 'arrived' AND length(envelope) != ? AND (person, task_digest) IN ("
        "SELECT person, task_digest FROM evidence WHERE inclusion NOT IN ('unchecked', 'missing'))",
        (_HASH_BYTES,),
    )
