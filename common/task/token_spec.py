"""The issuer whose one-time tokens a task requires, and the task's token key."""

from dataclasses import dataclass

from shuffledp.common.crypto import privacy_tokens, signing
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
            privacy_tokens.TokenKey(self.key)
            privacy_tokens.token_challenge(TaskDigest(bytes(DIGEST_BYTES)), self.issuer)
        except WireError as error:
            raise TaskError(f"tokens: {error}") from error
        if len(self.proof) != signing.PROOF_BYTES:
            raise TaskError(
                f"the proof of the token key has {len(self.proof)} bytes; it must have "
                f"{signing.PROOF_BYTES}"
            )

    @property
    def end(self) -> int:
        """The last second since 1970 UTC at which the issuer signs with the key."""
        return signing.end_of_validity(self.proof)

    def token_key(self) -> privacy_tokens.TokenKey:
        """Return the key that verifies tokens."""
        return privacy_tokens.TokenKey(self.key)

    def challenge(self, digest: TaskDigest) -> bytes:
        """Return the challenge that the tokens of the task with this digest answer."""
        return privacy_tokens.token_challenge(digest, self.issuer)

    def check(self, issuer: signing.PublicIdentity) -> None:
        """Raise ProofError unless this issuer signed the key. Run by the user agent."""
        signing.check_key(issuer, signing.KeyUse.TOKENS, self.issuer, self.key, self.proof)
