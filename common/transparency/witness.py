"""
The rule by which a witness cosigns checkpoints of one log [C2SP, tlog-witness]. Pure.

A witness never cosigns two roots of one size, or a smaller size than before. It stores its state
before it sends the cosignature and handles one request of a log at a time; otherwise it could
cosign two histories.
"""

from collections.abc import Callable
from dataclasses import dataclass

from shuffledp.common.crypto.signing import SigningIdentity
from shuffledp.common.errors import SettingsError
from shuffledp.common.transparency import checkpoint

Proof = Callable[[int, bytes, int, bytes], None]
"""Checks (old size, old root, new size, new root); raises ProofError unless new extends old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A witness of one log; its key is used for nothing else."""

    name: str
    identity: SigningIdentity
    log: checkpoint.NoteKey

    def __post_init__(self) -> None:
        if self.identity.public_identity() == self.log.identity:
            raise SettingsError("a witness must not witness a log that has its own key")

    def cosign(
        self,
        last: checkpoint.Checkpoint,
        signed: checkpoint.SignedCheckpoint,
        *,
        old_size: int,
        proof: Proof,
        seconds: int,
    ) -> checkpoint.NoteSignature | None:
        """
        Check a checkpoint against the last cosigned one, and cosign it.

        The caller stores it as the last one before it sends the cosignature. The first `last` has
        size 0. The log proves consistency from `old_size`. `seconds` is the time since 1970.

        Returns None if the old size is not the last one's, from which the log must prove.

        Raises ProofError if the log did not sign it, it is smaller, or the proof or root is wrong.
        """
        signed.check_log(self.log)
        if old_size != last.size:
            return None
        new = signed.checkpoint
        proof(last.size, last.root, new.size, new.root)
        return new.cosign(self.name, self.identity, seconds)
