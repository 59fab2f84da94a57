"""
The rule by which a witness cosigns checkpoints of one log [C2SP, tlog-witness]. Pure.

A witness never cosigns two roots of one size or a smaller size than before. It has the state stored
before it sends the cosignature, and lets no other request of the log in between; else it could
cosign two histories.
"""

from dataclasses import dataclass

from common.crypto.signing import SigningIdentity
from common.errors import SettingsError, ShuffleDpError
from common.transparency.checkpoint import NoteKey, NoteSignature, SignedCheckpoint
from common.transparency.merkle import EMPTY_ROOT, Path, verify_consistency


class WitnessSizeError(ShuffleDpError, status="ABORTED"):
    """The log's proof starts at another size than the last cosigned one; retry from `size`."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the last cosigned checkpoint has size {size}; prove consistency from it")
        self.size = size


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessState:
    """What a witness keeps of a log: the last head that it cosigned."""

    size: int = 0
    root: bytes = EMPTY_ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A witness of one log; its key is used for nothing else."""

    name: str
    identity: SigningIdentity
    log: NoteKey

    def __post_init__(self) -> None:
        if self.identity.public_identity() == self.log.identity:
            raise SettingsError("a witness must not witness a log that has its own key")

    def cosign(
        self,
        state: WitnessState,
        signed: SignedCheckpoint,
        *,
        old_size: int,
        consistency: Path,
        seconds: int,
    ) -> tuple[WitnessState, NoteSignature]:
        """
        Check a checkpoint against the last one and cosign it.

        Args:
            state: The stored state.
            signed: The checkpoint, signed by the log.
            old_size: Size from which the log proves consistency; it must be the state's.
            consistency: Consistency proof from that size.
            seconds: Time since 1970.

        Returns:
            The state to store before the cosignature is sent, and the cosignature.

        Raises:
            ProofError: The log did not sign it, it is smaller, or the proof or the root is wrong.
            WitnessSizeError: The old size is not the state's.
        """
        signed.check_log(self.log)
        if old_size != state.size:
            raise WitnessSizeError(state.size)
        checkpoint = signed.checkpoint
        verify_consistency(state.size, state.root, checkpoint.size, checkpoint.root, consistency)
        cosignature = checkpoint.cosign(self.name, self.identity, seconds)
        return WitnessState(size=checkpoint.size, root=checkpoint.root), cosignature
