"""
Keys in tasks, signed by the identity of their party until a given time.

Devices pin identities. Without these signatures, an analyzer that answers at the shuffler's address
could publish a task with an envelope key of its own and open both layers; with a token key of its
own, it could make as many users as it wants.
"""

import hashlib
from enum import Enum
from typing import Final

from common.crypto.hpke import HpkePublicKey, fingerprint, suite_named
from common.crypto.signing import SIGNATURE_BYTES, PublicIdentity, SigningIdentity
from common.errors import ProofError, WireError

_END_BYTES: Final = 8
PROOF_BYTES: Final = _END_BYTES + SIGNATURE_BYTES
"""Length of a proof: the end of the key's validity in seconds since 1970 UTC, and the signature."""


class KeyUse(Enum):
    """The kinds of signed keys: name of the task's field, its party, and label of the signature."""

    ENVELOPES = ("shuffler_key", "shuffler", b"shuffledp v1 envelope key")
    """The shuffler's key for envelopes; its scope is the suite."""
    TOKENS = ("token_key", "issuer", b"shuffledp v1 token key")
    """The issuer's key for a task's tokens; its scope is the issuer's name."""


def prove_key(identity: SigningIdentity, use: KeyUse, scope: str, key: bytes, end: int) -> bytes:
    """Return the proof of a public key that is valid until `end`. Run by the key's party."""
    ending = end.to_bytes(_END_BYTES)
    return ending + identity.sign_message(use.value[2], _message(scope, key, ending))


def end_of_validity(proof: bytes) -> int:
    """Return the last second since 1970 UTC at which a key may be used."""
    return int.from_bytes(proof[:_END_BYTES])


def check_key(identity: PublicIdentity, use: KeyUse, scope: str, key: bytes, proof: bytes) -> None:
    """
    Check that a party's identity signed a task's key. Run by the user agent and the shuffler.

    Raises ProofError if it did not, or the task has no proof.
    """
    name, party, label = use.value
    message, signature = _message(scope, key, proof[:_END_BYTES]), proof[_END_BYTES:]
    if len(proof) != PROOF_BYTES or not identity.is_valid_signature(label, message, signature):
        raise ProofError(
            f"the task's {name} is not signed by the {party} identity ({fingerprint(identity.raw)})"
        )


def _message(scope: str, key: bytes, ending: bytes) -> bytes:
    return hashlib.sha256(scope.encode()).digest() + hashlib.sha256(key).digest() + ending


def signed_envelope_key(identity: SigningIdentity, key: HpkePublicKey, end: int) -> bytes:
    """Return the shuffler's public key followed by its proof, as in envelope.pub."""
    return key.raw + prove_key(identity, KeyUse.ENVELOPES, key.suite, key.raw, end)


def split_envelope_key(suite: str, signed: bytes) -> tuple[bytes, bytes]:
    """Split a signed key for envelopes into the key and its proof, or raise WireError."""
    length = suite_named(suite).public_key_bytes
    if len(signed) != length + PROOF_BYTES:
        raise WireError(
            f"shuffler_key has {len(signed)} bytes; a key of the suite {suite}, signed by the "
            f"shuffler, has {length + PROOF_BYTES}"
        )
    return signed[:length], signed[length:]
