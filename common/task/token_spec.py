"""The issuer whose one-time tokens a task requires, and the task's token key."""

from dataclasses import dataclass

from shuffledp.common.crypto.privacy_tokens import TokenKey, token_challenge
from shuffledp.common.crypto.signing import (
    PROOF_BYTES,
    KeyUse,
    PublicIdentity,
    check_key,
    end_of_validity,
)
from shuffledp.common.errors import TaskError, WireError
from shuffledp.common.task_digest import DIGEST_BYTES, TaskDigest


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSpec:
    """Each submission of the task must spend a token of this key; nobody gets two."""

    issuer: str
    """Host name of the issuer, as in its settings."""
    key: bytes
    """The token key in DER; see `TokenKey`."""
    proof: bytes
    """The issuer's signature of the key; see `shuffledp.common.crypto.signing`."""

    def __post_init__(self) -> None:
        try:
            TokenKey(self.key)
            token_challenge(TaskDigest(bytes(DIGEST_BYTES)), self.issuer)
        except WireError as error:
            raise TaskError(f"tokens: {error}") from error
        if len(self.proof) != PROOF_BYTES:
            raise TaskError(
                f"the proof of the token key has {len(self.proof)} bytes; it must have "
                f"{PROOF_BYTES}"
            )

    @property
    def end(self) -> int:
        """The last second since 1970 UTC at which the issuer signs with the key."""
        return end_of_validity(self.proof)

    def token_key(self) -> TokenKey:
        """Return the key that verifies tokens."""
        return TokenKey(self.key)

    def challenge(self, digest: TaskDigest) -> bytes:
        """Return the challenge that the tokens of the task with this digest answer."""
        return token_challenge(digest, self.issuer)

    def check(self, issuer: PublicIdentity) -> None:
        """Raise ProofError unless this issuer signed the key. Run by the user agent."""
        check_key(issuer, KeyUse.TOKENS, self.issuer, self.key, self.proof)
