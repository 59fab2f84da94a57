"""
A shuffler's receipts: its signature over what it has stored. Pure.

A receipt is given after the commit. Beside a batch commitment that lacks its reports it is evidence
that what was acknowledged was not passed on. It is about an envelope, which the shuffler's key
opens; a receipt alone does not show what was inside.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from common.crypto.signing import PublicIdentity, SigningIdentity
from common.task_digest import TaskDigest

_LABEL: Final = b"shuffledp v1 receipt"
_BULK_LABEL: Final = b"shuffledp v1 bulk receipt"


def envelope_hash(envelope: bytes) -> bytes:
    """Return what a receipt says of an envelope: its SHA-256."""
    return hashlib.sha256(envelope).digest()


def sign_receipt(identity: SigningIdentity, digest: TaskDigest, envelope: bytes) -> bytes:
    """
    Acknowledge one stored submission. Run by the shuffler.

    Cost: one Ed25519 signature, some 30 µs.
    """
    return identity.sign_message(_LABEL, digest + envelope_hash(envelope))


def receipt_holds(
    identity: PublicIdentity, digest: TaskDigest, envelope: bytes, receipt: bytes
) -> bool:
    """
    Return whether a receipt acknowledges this very envelope. Run by the user agent.

    Cost: one Ed25519 verification, some 100 µs.
    """
    return identity.signed(_LABEL, digest + envelope_hash(envelope), receipt)


def sign_bulk_receipt(
    identity: SigningIdentity, digest: TaskDigest, stored: Iterable[bytes]
) -> bytes:
    """
    Acknowledge many stored submissions with one signature. Run by the shuffler.

    Args:
        identity: The shuffler's.
        digest: Their task.
        stored: The envelopes that were stored, or had been before, in the order of the call.

    Cost: one signature, and a hash for each envelope.
    """
    return identity.sign_message(_BULK_LABEL, digest + _all_of(stored))


def bulk_receipt_holds(
    identity: PublicIdentity, digest: TaskDigest, stored: Iterable[bytes], receipt: bytes
) -> bool:
    """Return whether a receipt acknowledges these envelopes, in this order, and no others."""
    return identity.signed(_BULK_LABEL, digest + _all_of(stored), receipt)


def _all_of(envelopes: Iterable[bytes]) -> bytes:
    one = hashlib.sha256  # each envelope's hash, as `envelope_hash` gives it, for thousands a call
    return one(b"".join([one(envelope).digest() for envelope in envelopes])).digest()
