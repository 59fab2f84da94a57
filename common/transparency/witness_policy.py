"""The keys of the log and its witnesses that a device pins, and how many must cosign. Pure."""

from dataclasses import dataclass
from typing import Final

from shuffledp.common.errors import ProofError, SettingsError
from shuffledp.common.transparency.checkpoint import NoteKey, SignatureType, SignedCheckpoint
from shuffledp.common.transparency.merkle import Path, verify_consistency

WEEK_SECONDS: Final = 7 * 24 * 3600
CLOCK_SKEW_SECONDS: Final = 300
"""Largest difference between the clocks of a witness and a device."""


class WitnessQuorumError(ProofError, status="UNAVAILABLE"):
    """Too few pinned witnesses cosigned a checkpoint so far; safe to retry."""


class ForkError(ProofError):
    """The log signed a head that is not proven to continue the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessPolicy:
    """
    The log's key, n witnesses' keys, and a quorum.

    Two heads of one size both pass only if 2 · quorum - n witnesses signed both. Choose a quorum
    above (n + f) / 2 against f dishonest witnesses, and at most n - f so that they cannot stop it.
    """

    log: NoteKey
    witnesses: tuple[NoteKey, ...]
    quorum: int
    max_age_seconds: int = WEEK_SECONDS
    """Age at which a cosignature counts no more, so that nobody can hold a device in the past."""

    def __post_init__(self) -> None:
        keys = {key.identity.raw for key in (self.log, *self.witnesses)}
        types = {key.type for key in self.witnesses}
        if len(keys) != 1 + len(self.witnesses) or types != {SignatureType.COSIGNATURE}:
            raise SettingsError("the log and its witnesses must each have a key of their own")
        if self.log.type != SignatureType.CHECKPOINT:
            raise SettingsError("the log's key must be one that signs checkpoints")
        if not 1 <= self.quorum <= len(self.witnesses):
            raise SettingsError(
                f"the quorum is {self.quorum}; it must be 1 to {len(self.witnesses)}, the witnesses"
            )

    def check(
        self,
        signed: SignedCheckpoint,
        now: float,
        last: SignedCheckpoint | None = None,
        consistency: Path = (),
    ) -> None:
        """
        Check a checkpoint of the log. Run by the user agent before it answers a task.

        It must have the last accepted one's size or more. Cosignatures older than max_age_seconds
        at `now`, in seconds since 1970, do not count. `consistency` is proven from the last one. An
        invalid signature of a pinned key refuses the checkpoint even if the others are a quorum
        [C2SP, signed-note]: an honest log verifies signatures before it publishes them.

        Raises:
            ForkError: The log signed a head that is not proven to continue the last one.
            WitnessQuorumError: Too few witnesses cosigned it so far.
            ProofError: A signature is missing or invalid, or it is smaller than the last one.

        Cost: about 100 µs per signature.
        """
        signed.check_log(self.log)
        if last is not None:  # before the quorum: without one, a fork is still a proof
            old, new = last.checkpoint, signed.checkpoint
            try:
                verify_consistency(old.size, old.root, new.size, new.root, consistency)
            except ProofError as error:
                kind = ProofError if new.size < old.size else ForkError
                raise kind(str(error)) from error
        times = [signed.signed_at(witness) for witness in self.witnesses]
        oldest, newest = now - self.max_age_seconds, now + CLOCK_SKEW_SECONDS
        counted = sum(1 for time in times if time is not None and oldest <= time <= newest)
        if counted < self.quorum:
            raise WitnessQuorumError(
                f"{counted} of {len(self.witnesses)} pinned witnesses cosigned the checkpoint "
                f"within {self.max_age_seconds} s; it must be {self.quorum}: try again later"
            )
