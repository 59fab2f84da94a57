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
    """Acknowledge one stored submission. Run by the shuffler. Cost: one signature, some 30 µs."""
    return identity.sign_message(_LABEL, digest + envelope_hash(envelope))


def receipt_holds(
    identity: PublicIdentity, digest: TaskDigest, envelope: bytes, receipt: bytes
) -> bool:
    """Check that a receipt acknowledges this very envelope. Run by the user agent. Cost: 100 µs."""
    return identity.signed(_LABEL, digest + envelope_hash(envelope), receipt)


def sign_bulk_receipt(
    identity: SigningIdentity, digest: TaskDigest, stored: Iterable[bytes]
) -> bytes:
    """
    Acknowledge many stored submissions, in the order of the call. Run by the shuffler.

    Cost: one signature, and a hash for each envelope.
    """
    hashes = b"".join([hashlib.sha256(envelope).digest() for envelope in stored])
    return identity.sign_message(_BULK_LABEL, digest + hashlib.sha256(hashes).digest())
