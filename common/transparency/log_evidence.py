"""What devices saw of a log, and the search for forks in it. Pure; run by anyone."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from common.errors import ProofError
from common.transparency.checkpoint import NoteKey, SignedCheckpoint
from common.transparency.log_entry import LogEntry
from common.transparency.merkle import Path, leaf_hash, verify_inclusion


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvidence:
    """An entry that a device found under a checkpoint."""

    checkpoint: SignedCheckpoint
    entry: LogEntry
    index: int
    path: Path
    """Inclusion path of the entry."""
    refused: bool = False
    """Whether the device refused the checkpoint, which was not proven to continue its last one."""

    def verify(self) -> None:
        """Check that the checkpoint's tree has the entry at the index, or raise ProofError."""
        head, leaf = self.checkpoint.checkpoint, leaf_hash(self.entry.to_bytes())
        verify_inclusion(leaf, self.index, head.size, self.path, head.root)

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
