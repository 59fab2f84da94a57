"""A log in memory with three witnesses, all with fixed keys."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.transparency.checkpoint import (
    Checkpoint,
    NoteKey,
    NoteSignature,
    SignatureType,
    SignedCheckpoint,
)
from shuffledp.common.transparency.log import EntryKind, LogEntry, LogEvidence
from shuffledp.common.transparency.merkle import EMPTY_ROOT, LogTree, leaf_hash, verify_consistency
from shuffledp.common.transparency.witness import Witness
from shuffledp.common.transparency.witness_policy import WitnessPolicy

ORIGIN: Final = "log.example/tasks"
LOG_IDENTITY: Final = SigningIdentity(bytes([9]) * 32)
LOG: Final = NoteKey(ORIGIN, SignatureType.CHECKPOINT, LOG_IDENTITY.public_identity())
WITNESSES: Final = tuple(
    Witness(name=f"witness.example/{i}", identity=SigningIdentity(bytes([i]) * 32), log=LOG)
    for i in range(3)
)
KEYS: Final = tuple(
    NoteKey(one.name, SignatureType.COSIGNATURE, one.identity.public_identity())
    for one in WITNESSES
)
POLICY: Final = WitnessPolicy(log=LOG, witnesses=KEYS, quorum=2)
NOW: Final = 1_800_000_000
SPECIFIED_KEY: Final = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
"""The verifier key in [C2SP, signed-note]."""


def empty(origin: str = ORIGIN) -> Checkpoint:
    """Return the head of a log without entries, with which a witness begins."""
    return Checkpoint(origin=origin, size=0, root=EMPTY_ROOT)


def with_lines(signed: SignedCheckpoint, *lines: NoteSignature) -> SignedCheckpoint:
    """Add signature lines, such as the witnesses'."""
    return replace(signed, signatures=signed.signatures + lines)


def task_entry(number: int) -> LogEntry:
    """Return the entry of some task."""
    return LogEntry(EntryKind.TASK, number.to_bytes(96))


class Log:
    """Entries, their heads and proofs; a dishonest log is two of these under one key."""

    def __init__(self, entries: Sequence[LogEntry | bytes]) -> None:
        """Append the entries; bytes become leaves as they are."""
        self.entries = entries
        self.leaves = [leaf_hash(e if isinstance(e, bytes) else e.to_bytes()) for e in entries]

    def head(self, size: int | None = None) -> SignedCheckpoint:
        """Return the log's signed head at a size, by default the newest."""
        leaves = self.leaves[:size]
        checkpoint = Checkpoint(origin=ORIGIN, size=len(leaves), root=LogTree(leaves).root)
        return checkpoint.sign(LOG_IDENTITY)

    def cosigned(
        self, size: int | None = None, witnesses: Sequence[Witness] = WITNESSES, seconds: int = NOW
    ) -> SignedCheckpoint:
        """Return a head cosigned by witnesses that know nothing of the log yet."""
        head = self.head(size)
        fresh = (
            one.cosign(
                empty(),
                head,
                old_size=0,
                proof=partial(verify_consistency, path=()),
                seconds=seconds,
            )
            for one in witnesses
        )
        return with_lines(head, *(line for line in fresh if line is not None))

    def consistency(self, old_size: int, size: int | None = None) -> tuple[bytes, ...]:
        """Prove that a head continues an older one."""
        return LogTree(self.leaves[:size]).prove_consistency(old_size)

    def proof(
        self, index: int, size: int | None = None, signed: SignedCheckpoint | None = None
    ) -> LogEvidence:
        """Prove that an entry is under a head, by default the one that only the log signed."""
        entry = self.entries[index]
        assert isinstance(entry, LogEntry)
        path = LogTree(self.leaves[:size]).prove_inclusion(index)
        head = signed or self.head(size)
        return LogEvidence(checkpoint=head, entry=entry, index=index, path=path)


def with_root(signed: SignedCheckpoint, root: bytes) -> SignedCheckpoint:
    """Return a head with another root, signed by the log."""
    return replace(signed.checkpoint, root=root).sign(LOG_IDENTITY)
