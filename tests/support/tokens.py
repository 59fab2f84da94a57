"""An issuer's token key and one-time tokens, without an issuer's service."""

import itertools
from dataclasses import replace
from typing import Final

import numpy as np

from shuffledp.common.crypto.privacy_tokens import PendingToken
from shuffledp.common.crypto.signing import KeyUse, SigningIdentity, prove_key
from shuffledp.common.crypto.token_signing import TokenSigningKey
from shuffledp.common.errors import ConflictError, CredentialError, PeerError, PeerRefusalError
from shuffledp.common.limits import MAX_UNIX_TIME
from shuffledp.common.task.token_spec import TokenSpec
from shuffledp.common.task_digest import TaskDigest

ISSUER: Final = SigningIdentity(bytes(31) + b"\x03")
"""The identity of the issuer."""
_SIGNER: Final = TokenSigningKey(TokenSigningKey.generate())
_NAME: Final = "issuer.example"
_SEEDS: Final = itertools.count()


def token_spec(
    identity: SigningIdentity = ISSUER, signer: TokenSigningKey = _SIGNER, end: int = MAX_UNIX_TIME
) -> TokenSpec:
    """Return a token key, signed by an identity until a time."""
    key = signer.token_key().der
    proof = prove_key(identity, KeyUse.TOKENS, _NAME, key, end)
    return TokenSpec(issuer=_NAME, key=key, proof=proof)


TOKENS: Final = token_spec()


def new_token(
    digest: TaskDigest,
    tokens: TokenSpec = TOKENS,
    signer: TokenSigningKey = _SIGNER,
    nonce: bytes = b"",
) -> bytes:
    """Make a token of a task; no two are the same, even with one nonce."""
    rng = np.random.default_rng(next(_SEEDS))
    pending = PendingToken.draw(tokens.token_key(), tokens.challenge(digest), rng.bytes)
    pending = replace(pending, nonce=nonce or pending.nonce)
    return pending.finalize(signer.blind_sign(pending.blinded()))


class MemoryIssuer:
    """Signs one message for each of its credentials."""

    def __init__(self, *credentials: bytes) -> None:
        self.signed: dict[bytes, bytes | None] = dict.fromkeys(credentials)
        self.reachable = True

    async def issue(self, key_id: bytes, blinded: bytes, credential: bytes) -> bytes:
        """Sign a message, or refuse it as the service does."""
        assert key_id == TOKENS.token_key().key_id
        if not self.reachable:
            raise PeerError("away")
        if credential not in self.signed:
            raise PeerRefusalError(CredentialError.status, "unknown credential")
        if self.signed[credential] not in {None, blinded}:
            raise PeerRefusalError(ConflictError.status, "already has a token")
        self.signed[credential] = blinded
        return _SIGNER.blind_sign(blinded)
