"""
Proof that a log, or a witness, vouched for two histories that cannot both be true. Pure.

Anyone who pins the key can verify it, without trust in the party that presents it.
"""

from dataclasses import dataclass

from common.errors import ProofError
from common.transparency.checkpoint import NoteKey, SignedCheckpoint
from common.transparency.log_entry import EntryProof


@dataclass(frozen=True, slots=True)
class Fork:
    """
    Two heads of one log: of one size with different roots, or with different entries at one index.

    Heads of different sizes prove nothing without the entries: only the log could show that one
    extends the other, and it may have been asked with a damaged proof.
    """

    first: SignedCheckpoint
    second: SignedCheckpoint
    entries: tuple[EntryProof, EntryProof] | None = None
    """Needed for heads of different sizes: an entry under each head, at the same index."""

    def verify(self, key: NoteKey) -> None:
        """
        Check that the log or the witness with this key signed both heads, and that they conflict.

        Raises:
            ProofError: They do not prove it.
        """
        first, second = self.first.checkpoint, self.second.checkpoint
        if self.first.signed_at(key) is None or self.second.signed_at(key) is None:
            raise ProofError(f"{key.name} did not sign both heads")
        if first.origin != second.origin:
            raise ProofError(f"the heads belong to two logs, {first.origin} and {second.origin}")
        if first.size == second.size and first.root != second.root:
            return
        if self.entries is None:
            raise ProofError(f"heads of sizes {first.size} and {second.size} may be of one history")
        one, other = self.entries
        one.verify(first)
        other.verify(second)
        if one.index != other.index or one.entry == other.entry:
            raise ProofError(f"entries {one.index} and {other.index} may be of one history")


class ForkError(ProofError):
    """The log signed a head that does not continue the last one; `fork` holds both."""

    def __init__(self, message: str, fork: Fork) -> None:
        super().__init__(message)
        self.fork = fork
