"""
The shuffler's envelope keys, signed by its identity until a given time.

Devices pin the shuffler's identity. Without this signature, an analyzer that answers at the
shuffler's address could publish a task with an envelope key of its own, and open both layers.
"""

import hashlib
from typing import Final

from common.crypto.hpke import HpkePublicKey, fingerprint, suite_named
from common.crypto.signing import SIGNATURE_BYTES, PublicIdentity, SigningIdentity
from common.errors import ProofError, WireError

_END_BYTES: Final = 8
PROOF_BYTES: Final = _END_BYTES + SIGNATURE_BYTES
"""Length of a proof: the end of the key's validity in seconds since 1970 UTC, and the signature."""
_LABEL: Final = b"shuffledp v1 envelope key"


def signed_envelope_key(identity: SigningIdentity, key: HpkePublicKey, end: int) -> bytes:
    """Return a public key followed by its proof. Run by the shuffler."""
    ending = end.to_bytes(_END_BYTES)
    return key.raw + ending + identity.sign_message(_LABEL, _message(key.suite, key.raw, ending))


def split_envelope_key(suite: str, signed: bytes) -> tuple[bytes, bytes]:
    """Split a signed key into the key and its proof, or raise WireError."""
    length = suite_named(suite).public_key_bytes
    if len(signed) != length + PROOF_BYTES:
        raise WireError(
            f"shuffler_key has {len(signed)} bytes; a key of the suite {suite}, signed by the "
            f"shuffler, has {length + PROOF_BYTES}"
        )
    return signed[:length], signed[length:]


def end_of_validity(proof: bytes) -> int:
    """Return the last second since 1970 UTC at which a key may be used."""
    return int.from_bytes(proof[:_END_BYTES])


def check_envelope_key(identity: PublicIdentity, suite: str, key: bytes, proof: bytes) -> None:
    """
    Check that a shuffler's identity signed a task's key. Run by the user agent and the shuffler.

    Raises:
        ProofError: It did not, or the task has no proof.
    """
    message, signature = _message(suite, key, proof[:_END_BYTES]), proof[_END_BYTES:]
    if len(proof) != PROOF_BYTES or not identity.is_valid_signature(_LABEL, message, signature):
        raise ProofError(
            f"the task's shuffler_key is not signed by the shuffler identity "
            f"({fingerprint(identity.raw)})"
        )


def _message(suite: str, key: bytes, ending: bytes) -> bytes:
    return hashlib.sha256(suite.encode()).digest() + hashlib.sha256(key).digest() + ending
