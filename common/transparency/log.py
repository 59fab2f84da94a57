"""
The log: its entries, copies of it, and what devices saw of it. Pure.

Entries are signed tasks, and the public keys of all parties. An entry is `shuffledp v1 log entry`
in ASCII, one byte for its kind, and content of fixed length:

| byte | kind | content |
|---|---|---|
| 1 | task | SHA-256 of the task's bytes, 32 bytes; the analyzer's signature, 64 bytes |
| 2 | key of the analyzer | Ed25519 key, 32 bytes |
| 3 | key of the shuffler | the same |
| 4 | key of the issuer of users' tokens | the same |
| 5 | key of a witness | the same |

A task contains the encryption keys of its round, so the log needs no entry for those. A device has
the task and computes the entry itself; the digest keeps the log small.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Annotated, ClassVar, Final, Self

from shuffledp.common.crypto import signing
from shuffledp.common.errors import ProofError, WireError
from shuffledp.common.limits import parse_count
from shuffledp.common.task_digest import DIGEST_BYTES
from shuffledp.common.transparency import merkle
from shuffledp.common.transparency.checkpoint import NoteKey, SignedCheckpoint

_LABEL: Final = b"shuffledp v1 log entry"
_Index = Annotated[int, partial(parse_count, maximum=merkle.MAX_SIZE)]


class EntryKind(IntEnum):
    """The kinds of entries, by their byte."""

    TASK = 1
    ANALYZER_KEY = 2
    SHUFFLER_KEY = 3
    ISSUER_KEY = 4
    WITNESS_KEY = 5


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the log."""

    PREFIX_BYTES: ClassVar = len(_LABEL) + 1
    """Bytes before the content."""
    kind: EntryKind
    content: bytes

    def __post_init__(self) -> None:
        task = DIGEST_BYTES + signing.SIGNATURE_BYTES
        expected = task if self.kind == EntryKind.TASK else signing.IDENTITY_BYTES
        if len(self.content) != expected:
            raise WireError(
                f"a log entry of kind {self.kind} has {len(self.content)} bytes of content; "
                f"it must have {expected}"
            )

    @classmethod
    def of_task(cls, signed: signing.SignedTask) -> Self:
        """Return the entry of a task. Run by the analyzer and by devices."""
        return cls(EntryKind.TASK, signed.digest() + signed.signature)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Parse an entry, or raise WireError."""
        kind = raw[len(_LABEL) : len(_LABEL) + 1]
        if not raw.startswith(_LABEL) or kind not in _KINDS:
            raise WireError("a log entry must start with its label and a known kind")
        return cls(_KINDS[kind], raw[cls.PREFIX_BYTES :])

    def to_bytes(self) -> bytes:
        """Return the entry's bytes, which its leaf hash covers."""
        return _LABEL + self.kind.to_bytes() + self.content


_KINDS: Final = {kind.to_bytes(): kind for kind in EntryKind}


MAX_ENTRIES: Final = 1 << 18
"""Maximum number of entries of a copy, which take about 60 MB of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProof:
    """An entry's place in the log, for a device that computes the entry itself."""

    index: _Index
    path: merkle.Path
    checkpoint: SignedCheckpoint
    consistency: merkle.Path
    """From the device's last checkpoint; empty if it has none."""


class LogCopy:
    """The leaves of a log, and checkpoints: of two, fewer witnesses cosigned the larger one."""

    def __init__(self) -> None:
        self._leaves: list[bytes] = []
        self._indices: dict[bytes, int] = {}
        self._trees: dict[int, merkle.LogTree] = {}
        self.checkpoints: Sequence[SignedCheckpoint] = ()
        """The smallest first."""

    @property
    def size(self) -> int:
        """Number of leaves."""
        return len(self._leaves)

    def extend(self, leaves: Sequence[bytes]) -> None:
        """Append leaves; raise ProofError beyond MAX_ENTRIES."""
        if self.size + len(leaves) > MAX_ENTRIES:
            raise ProofError(f"the log has more than {MAX_ENTRIES} entries")
        self._indices |= {leaf: self.size + n for n, leaf in enumerate(leaves)}
        self._leaves += leaves

    def serve(self, checkpoints: Iterable[SignedCheckpoint]) -> None:
        """
        Replace the checkpoints. Cost: about 1 µs per entry for each checkpoint of a new size.

        Raises ProofError if one is not a head of these leaves.
        """
        ordered = sorted(checkpoints, key=lambda one: one.checkpoint.size)
        trees = {one.checkpoint.size: self.tree(one.checkpoint.size) for one in ordered}
        if any(trees[one.checkpoint.size].root != one.checkpoint.root for one in ordered):
            raise ProofError("a checkpoint of the log is not a head of its entries")
        self.checkpoints, self._trees = ordered, trees

    def leaves(self, after: int, limit: int) -> list[bytes]:
        """Return at most `limit` leaves after the first `after`."""
        return self._leaves[after : after + limit]

    def tree(self, size: int) -> merkle.LogTree:
        """Return the tree over the first leaves."""
        return self._trees.get(size) or merkle.LogTree(self._leaves[:size])

    def prove(self, entry: LogEntry, log_size: int) -> LogProof | None:
        """
        Prove an entry's inclusion to a device whose last checkpoint has `log_size` entries.

        The proof uses the best cosigned checkpoint that has the entry and is not older than the
        device's. If the device's is larger than all, so that the log was rolled back, it gets the
        newest, and refuses it. Returns None if no checkpoint has the entry.
        """
        index = self._indices.get(merkle.leaf_hash(entry.to_bytes()), self.size)
        having = [one for one in self.checkpoints if one.checkpoint.size > index]
        if not having:
            return None
        new = [one for one in having if one.checkpoint.size >= log_size]
        signed = new[0] if new else having[-1]
        tree = self.tree(signed.checkpoint.size)
        return LogProof(
            index=index,
            path=tree.prove_inclusion(index),
            checkpoint=signed,
            consistency=tree.prove_consistency(log_size) if new else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvidence:
    """An entry that a device found under a checkpoint."""

    checkpoint: SignedCheckpoint
    entry: LogEntry
    index: _Index
    path: merkle.Path
    """Inclusion path of the entry."""
    refused: bool = False
    """Whether the device refused the checkpoint, which was not proven to continue its last one."""

    def verify(self) -> None:
        """Check that the checkpoint's tree has the entry at the index, or raise ProofError."""
        head, leaf = self.checkpoint.checkpoint, merkle.leaf_hash(self.entry.to_bytes())
        merkle.verify_inclusion(leaf, self.index, head.size, self.path, head.root)

    def is_signed(self, key: NoteKey) -> bool:
        """Return whether the log or witness with this key signed the checkpoint, with the entry."""
        with suppress(ProofError):
            self.verify()
            return self.checkpoint.signed_at(key) is not None
        return False


def find_fork(
    evidence: Iterable[LogEvidence], key: NoteKey
) -> tuple[LogEvidence, LogEvidence] | None:
    """
    Return two pieces that conflict and that this log, or this witness, signed; None without any.

    Their heads have one size and different roots, or different entries at one index. Anyone who
    pins the key can verify that, without trust in the devices. Other heads of different sizes prove
    nothing: only the log could show that one extends the other, and it may have been asked with a
    damaged proof.

    Cost: a signature's check, 100 µs, for each piece of evidence.
    """
    roots, entries = dict[tuple[str, int], LogEvidence](), dict[tuple[str, int], LogEvidence]()
    for one in evidence:
        head = one.checkpoint.checkpoint
        with suppress(ProofError):  # not signed by this key, or not under this checkpoint
            if one.checkpoint.signed_at(key) is None:
                continue
            other = roots.setdefault((head.origin, head.size), one)
            if other.checkpoint.checkpoint != head:
                return other, one
            one.verify()
            other = entries.setdefault((head.origin, one.index), one)
            if other.entry != one.entry:
                return other, one
    return None
