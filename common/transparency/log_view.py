"""A device's view of the log: the last checkpoint that it accepted. Pure."""

from dataclasses import dataclass, replace
from typing import Self

from common.errors import ProofError
from common.transparency.checkpoint import SignedCheckpoint
from common.transparency.fork import Fork, ForkError
from common.transparency.log_entry import EntryProof
from common.transparency.merkle import Path, verify_consistency
from common.transparency.witness_policy import WitnessPolicy


@dataclass(frozen=True, slots=True)
class LogView:
    """A device's pins and the last accepted checkpoint, None before the first."""

    policy: WitnessPolicy
    last: SignedCheckpoint | None = None

    def accept(
        self, proof: EntryProof, signed: SignedCheckpoint, consistency: Path, now: float
    ) -> Self:
        """
        Check that an entry is in the log. Run by the user agent before it answers a task.

        Args:
            proof: The entry, which the device computed from the task or the key, and its path.
            signed: A checkpoint of the last one's size or more, with cosignatures.
            consistency: Consistency proof from the last checkpoint; not read if there is none.
            now: Seconds since 1970.

        Returns:
            The view to store. Keep the proof and the checkpoint: if another device was shown
            another entry at the index, both devices' together are a `Fork`.

        Raises:
            ForkError: The log signed a head that is not proven to continue the last one. If it is
                of the last one's size with another root, the error's fork verifies as it is.
            ProofError: A signature is missing, invalid or old, the checkpoint is smaller than the
                last one, or the entry is not in the log.
        """
        view = self.advance(signed, consistency, now)
        proof.verify(signed.checkpoint)
        return view

    def advance(self, signed: SignedCheckpoint, consistency: Path, now: float) -> Self:
        """Check that a checkpoint continues the last one and make it the last, as in `accept`."""
        new = signed.checkpoint
        signed.check_log(self.policy.log)
        if self.last is not None:  # before the quorum: without one, a fork is still a proof
            old = self.last.checkpoint
            if new.size < old.size:
                raise ProofError(f"a checkpoint of size {new.size} follows one of size {old.size}")
            try:
                verify_consistency(old.size, old.root, new.size, new.root, consistency)
            except ProofError as error:
                raise ForkError(str(error), Fork(self.last, signed)) from error
        self.policy.check(signed, now)
        return replace(self, last=signed)
