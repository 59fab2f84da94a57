"""The parties of the transcripts, with fixed keys, and their log of tasks."""

import dataclasses
from typing import Final

from shuffledp.common.crypto.signing import SignedTask, SigningIdentity
from shuffledp.common.transparency.checkpoint import (
    Checkpoint,
    NoteKey,
    SignatureType,
    SignedCheckpoint,
    log_key,
)
from shuffledp.common.transparency.log import EntryKind, LogEntry, LogProof
from shuffledp.common.transparency.merkle import LogTree, leaf_hash

NOW: Final = 1_800_000_000
DAY: Final = 24 * 3600
ANALYZER, SHUFFLER, ISSUER, STRANGER = (SigningIdentity(bytes([n]) * 32) for n in range(1, 5))
RELAY: Final = SigningIdentity(b"\x08" * 32)
_WITNESSES: Final = tuple(
    (f"witness.example/{n}", SigningIdentity(bytes([n]) * 32)) for n in range(5, 8)
)
WITNESS_KEYS: Final = tuple(
    NoteKey(name, SignatureType.COSIGNATURE, identity.public_identity())
    for name, identity in _WITNESSES
)


def public(identity: SigningIdentity) -> str:
    """Return a pin."""
    return identity.public_identity().raw.hex()


def log_of(
    signed: SignedTask, size: int = 7, *, cosigned: int = 3
) -> tuple[SignedCheckpoint, LogProof]:
    """Return a device's last checkpoint of size 3, and a task's place under one of this size."""
    entries = [LogEntry(EntryKind.TASK, n.to_bytes(96)) for n in range(size)]
    entries[4] = LogEntry.of_task(signed)
    leaves = [leaf_hash(entry.to_bytes()) for entry in entries]
    tree, name = LogTree(leaves), log_key(ANALYZER.public_identity()).name
    head = Checkpoint(origin=name, size=size, root=tree.root)
    lines = [head.cosign(name, identity, NOW - 60) for name, identity in _WITNESSES[:cosigned]]
    checkpoint = head.sign(ANALYZER)
    checkpoint = dataclasses.replace(checkpoint, signatures=(*checkpoint.signatures, *lines))
    last = Checkpoint(origin=name, size=3, root=LogTree(leaves[:3]).root).sign(ANALYZER)
    return last, LogProof(
        index=4,
        path=tree.prove_inclusion(4),
        checkpoint=checkpoint,
        consistency=tree.prove_consistency(3),
    )
