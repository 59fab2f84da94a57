"""
Entries of the analyzer's ledger and their tamper-evident chain.

Each entry's hash is SHA-256 over a label, the previous entry's hash, and the entry as canonical
JSON (sorted keys, no spaces, ASCII). A copy of the last hash, the head, reveals any change to the
entries up to it. Only such a copy reveals that the last entries were removed.
"""

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self, get_args

from common.errors import LedgerError
from common.messages.batch import BATCH_ID_BYTES, BatchId
from common.messages.guarantee import Coalition
from common.task_digest import DIGEST_BYTES, TaskDigest

HASH_BYTES: Final = 32
FIRST_PREVIOUS_HASH: Final = bytes(HASH_BYTES)
"""The hash before the first entry."""

_LABEL: Final = b"shuffledp v1 ledger"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """The cost of one released batch."""

    entry: int
    """Number of the entry: 1, 2, 3, …"""
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
    previous_hash: bytes
    entry_hash: bytes

    def __post_init__(self) -> None:
        for name, value, length in (
            ("task_digest", self.task_digest, DIGEST_BYTES),
            ("batch_id", self.batch_id, BATCH_ID_BYTES),
            ("previous_hash", self.previous_hash, HASH_BYTES),
            ("entry_hash", self.entry_hash, HASH_BYTES),
        ):
            if type(value) is not bytes or len(value) != length:
                raise LedgerError(f"entry {self.entry}: {name} must have {length} bytes")
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

    @classmethod
    def chained(cls, previous_hash: bytes, **fields: Any) -> Self:  # noqa: ANN401  # as declared
        """Create the entry that follows the one with the hash `previous_hash`."""
        unsealed = cls(**fields, previous_hash=previous_hash, entry_hash=bytes(HASH_BYTES))
        return cls(**fields, previous_hash=previous_hash, entry_hash=unsealed.expected_hash())

    def fields(self) -> dict[str, Any]:
        """Return the hashed fields; bytes in hexadecimal, infinity as "inf"."""
        return {
            "entry": self.entry,
            "task_digest": self.task_digest.hex(),
            "batch_id": self.batch_id.hex(),
            "population": self.population,
            "n_users": self.n_users,
            "n_refused": self.n_refused,
            "coalition": self.coalition,
            "epsilon": _as_json(self.epsilon),
            "delta": _as_json(self.delta),
            "theorem": self.theorem,
            "composed_epsilon": _as_json(self.composed_epsilon),
        }

    def expected_hash(self) -> bytes:
        """Compute this entry's hash."""
        text = json.dumps(
            self.fields(), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
        )
        return hashlib.sha256(_LABEL + self.previous_hash + text.encode("ascii")).digest()


def _as_json(figure: float) -> float | str:
    return "inf" if figure == math.inf else figure


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainHead:
    """The end of a chain of entries."""

    entry: int = 0
    entry_hash: bytes = FIRST_PREVIOUS_HASH


def verify(entries: Iterable[LedgerEntry], head: ChainHead | None = None) -> ChainHead:
    """
    Verify the entries after `head`, by default all, and return the new head.

    Run by the analyzer at start, and by an operator.

    Raises:
        LedgerError: The chain is broken; the message names the first broken entry.
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
