"""
Entries of the analyzer's ledger, releases and decisions, and their tamper-evident chain.

Each entry's hash is SHA-256 over a label, the previous entry's hash, and the entry as canonical
JSON (sorted keys, no spaces, ASCII). A copy of the last hash, the head, reveals any change to the
entries up to it. Only such a copy reveals that the last entries were removed.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self, get_args

from shuffledp.common.crypto.signing import SIGNATURE_BYTES, PublicIdentity, SigningIdentity
from shuffledp.common.errors import LedgerError, ProofError
from shuffledp.common.messages.batch import BATCH_ID_BYTES, MAX_REASON_CHARACTERS, BatchId
from shuffledp.common.messages.guarantee import Coalition
from shuffledp.common.task_digest import DIGEST_BYTES, TaskDigest

HASH_BYTES: Final = 32
FIRST_PREVIOUS_HASH: Final = bytes(HASH_BYTES)
"""The hash before the first entry."""

MAX_NOTE_CHARACTERS: Final = 500
MAX_DECISION_TIME: Final = 2**53
"""Bound on the time of a decision, in seconds since 1970 UTC."""

_LABEL: Final = b"shuffledp v1 ledger"
_DECISION_LABEL: Final = b"shuffledp v1 decision"
_LENGTHS: Final = {
    "task_digest": DIGEST_BYTES,
    "batch_id": BATCH_ID_BYTES,
    "previous_hash": HASH_BYTES,
    "entry_hash": HASH_BYTES,
    "signature": SIGNATURE_BYTES,
}
_NOT_HASHED: Final = frozenset({"previous_hash", "entry_hash"})


class ChainedEntry:
    """An entry of either kind."""

    __slots__ = ()

    entry: int
    """Number of the entry: 1, 2, 3, …"""
    previous_hash: bytes
    entry_hash: bytes

    def check_lengths(self) -> None:
        """Raise LedgerError if a field of bytes has another type or length."""
        for name, value in self._values().items():
            if name in _LENGTHS and (type(value) is not bytes or len(value) != _LENGTHS[name]):
                raise LedgerError(f"entry {self.entry}: {name} must have {_LENGTHS[name]} bytes")

    def following(self, head: "ChainHead") -> Self:
        """Return the entry in its place behind the end of a chain."""
        placed: Any = self  # a dataclass
        placed = replace(placed, entry=head.entry + 1, previous_hash=head.entry_hash)
        chained: Self = replace(placed, entry_hash=placed.expected_hash())
        return chained

    def fields(self) -> dict[str, Any]:
        """Return the hashed fields; bytes in hexadecimal, infinity as "inf"."""
        return {
            name: _as_json(value)
            for name, value in self._values().items()
            if name not in _NOT_HASHED and (name, value) != ("waived", "")
        }

    def expected_hash(self) -> bytes:
        """Compute this entry's hash."""
        text = json.dumps(
            self.fields(), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
        )
        return hashlib.sha256(_LABEL + self.previous_hash + text.encode("ascii")).digest()

    def _values(self) -> dict[str, Any]:
        declared: Any = self  # a dataclass
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(declared)}


def _as_json(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    return "inf" if value == math.inf else value


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry(ChainedEntry):
    """The cost of one released batch."""

    entry: int = 0
    """Number of the entry: 1, 2, 3, …; 0 until it is chained."""
    task_digest: TaskDigest
    batch_id: BatchId
    population: str
    n_users: int
    n_refused: int
    """Number of refused reports, each assumed to come from a different honest user."""
    coalition: Coalition
    epsilon: float
    """Cost of this release alone, at `delta`; may be infinite."""
    delta: float
    theorem: str
    composed_epsilon: float
    """Cost of all releases to the population up to this one, at the task's budget_delta."""
    previous_hash: bytes = FIRST_PREVIOUS_HASH
    entry_hash: bytes = FIRST_PREVIOUS_HASH
    waived: str = ""
    """The text of `Waived`, if the batch failed a check; hashed unless it is empty."""

    def __post_init__(self) -> None:
        self.check_lengths()
        if self.coalition not in get_args(Coalition):
            raise LedgerError(f"entry {self.entry} names an unknown coalition")
        for name, figure in (
            ("epsilon", self.epsilon),
            ("delta", self.delta),
            ("composed_epsilon", self.composed_epsilon),
        ):
            if type(figure) is not float or not figure >= 0:
                raise LedgerError(f"entry {self.entry}: {name} is not a number of at least 0")
        if self.delta > 1:
            raise LedgerError(f"entry {self.entry}: delta is {self.delta}; it may be at most 1")


Decision = Literal["release", "drop"]
"""A decision on a batch without a result: estimate a quarantined one nevertheless, or erase it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionEntry(ChainedEntry):
    """A decision on a batch without a result, signed by the analyzer."""

    entry: int = 0
    task_digest: TaskDigest
    batch_id: BatchId
    decision: Decision
    reason: str
    """Why the batch has no result, such as the check that it failed."""
    note: str
    """The operator's own reason: public, untrusted text."""
    decided: int
    """Time of the decision in seconds since 1970 UTC."""
    signature: bytes = bytes(SIGNATURE_BYTES)
    previous_hash: bytes = FIRST_PREVIOUS_HASH
    entry_hash: bytes = FIRST_PREVIOUS_HASH

    def __post_init__(self) -> None:
        self.check_lengths()
        if self.decision not in get_args(Decision):
            raise LedgerError(f"entry {self.entry} names an unknown decision")
        if type(self.decided) is not int or not 0 <= self.decided <= MAX_DECISION_TIME:
            raise LedgerError(
                f"entry {self.entry}: decided must lie between 0 and {MAX_DECISION_TIME}"
            )
        for name, text, most in (
            ("reason", self.reason, MAX_REASON_CHARACTERS),
            ("note", self.note, MAX_NOTE_CHARACTERS),
        ):
            if type(text) is not str or not 1 <= len(text) <= most:
                raise LedgerError(f"entry {self.entry}: {name} must have 1 to {most} characters")

    def signed(self, identity: SigningIdentity) -> Self:
        """Sign the decision. Run by the analyzer. Cost: about 30 µs."""
        return replace(self, signature=identity.sign_message(_DECISION_LABEL, self._message()))

    def verify(self, identity: PublicIdentity) -> None:
        """Raise ProofError unless this analyzer signed the decision. Run by operators."""
        if not identity.is_valid_signature(_DECISION_LABEL, self._message(), self.signature):
            raise ProofError(
                f"the decision in entry {self.entry} is not signed by the pinned analyzer"
            )

    def _message(self) -> bytes:
        """Encode the signed fields, each of fixed length: texts by their SHA-256."""
        texts = (self.decision, self.reason, self.note)
        hashes = (hashlib.sha256(text.encode()).digest() for text in texts)
        return b"".join((self.task_digest, self.batch_id, self.decided.to_bytes(8), *hashes))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainHead:
    """The end of a chain of entries."""

    entry: int = 0
    entry_hash: bytes = FIRST_PREVIOUS_HASH


def verify(entries: Iterable[ChainedEntry], head: ChainHead | None = None) -> ChainHead:
    """
    Verify the entries after `head`, by default all, and return the new head.

    Run by the analyzer at start, and by an operator. Raises LedgerError, which names the first
    broken entry, if the chain is broken.
    """
    head = head or ChainHead()
    for entry in entries:
        if entry.entry != head.entry + 1:
            raise LedgerError(
                f"the ledger is broken: entry {entry.entry} follows entry {head.entry}"
            )
        if entry.previous_hash != head.entry_hash:
            raise LedgerError(
                f"the ledger is broken at entry {entry.entry}: it does not follow the one before"
            )
        if entry.entry_hash != entry.expected_hash():
            raise LedgerError(
                f"the ledger is broken at entry {entry.entry}: it does not match its hash"
            )
        head = ChainHead(entry=entry.entry, entry_hash=entry.entry_hash)
    return head
